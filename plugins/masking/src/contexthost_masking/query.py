"""``context_tree_query``: finds entries that the model no longer sees as they were, and gives their text back in pages.

What comes back is what the host's history tells: the original of a masked entry, the effective content of every other.
An omitted entry can be found by its id, call or tool, but says nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal

from contexthost.context import SessionView
from contexthost.history import Found, History, HistoryEntry, paged
from contexthost.messages import own_text
from contexthost.session import Entry
from contexthost.text import one_line, shorten
from contexthost_masking.superseded import path_of

__all__ = ["DESCRIPTION", "PAGE_CHARS", "PARAMETERS", "TOOL", "Answer", "QueryError", "Request", "answer"]

TOOL: Final = "context_tree_query"
PAGE_CHARS: Final = 8_000
"""Code points of an entry's text on one page, and of a list with all that is said around it."""
_TEXTS: Final = ("entry", "call", "tool", "path", "text")
_SNIPPET_CHARS: Final = 200
_MAX_HITS: Final = 30
_ECHO_CHARS: Final = 120
_ID_CHARS: Final = 200
_TURNS: Final = re.compile(r"\s*(\d{1,9})\s*(?:(-)\s*(\d{1,9})?\s*)?\Z")
# A search must not find earlier searches.
_SEARCHES: Final = frozenset({TOOL, "recall"})

DESCRIPTION: Final = (
    "Gives back what was masked, replaced or compacted away and is no longer in your context as it was. With `entry` "
    "(the id that a placeholder names) or `call`, the full text in pages; with the others, a list of entries that "
    "fulfil all of them. `continue` with the token of an answer gives its next page."
)
PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "entry": {"type": "string", "description": "entry id: read this entry"},
        "call": {"type": "string", "description": "tool call id: read its result"},
        "tool": {"type": "string", "description": "results of this tool"},
        "path": {"type": "string", "description": "calls about this file and their results; its end will do"},
        "text": {"type": "string", "description": "words that must all occur, case aside"},
        "turns": {"type": ["string", "integer"], "description": 'turns of the branch: "7", "3-12" or "40-"'},
        "scope": {"type": "string", "enum": ["branch", "all"], "description": '"all": other branches too'},
        "continue": {"type": "string", "description": "token of an earlier answer; nothing else is needed with it"},
    },
    "additionalProperties": False,
}


class QueryError(ValueError):
    """The request makes no sense; the message says what would."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for. ``offset`` is the place to read on from: code points of a text, hits of a list; ``upto``
    leaves out what came after the first page of a list was made."""

    entry: str = ""
    call: str = ""
    tool: str = ""
    path: str = ""
    text: str = ""
    turns: tuple[int, int | None] | None = None
    scope: Literal["branch", "all"] = "branch"
    offset: int = 0
    upto: int | None = None

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> Request:
        """The request that arguments make.

        Raises:
            QueryError: nothing to look for, turns that are no range, a token that is none.
        """
        token = arguments.get("continue")
        if isinstance(token, str) and token.strip():
            return cls._continued(token.strip())
        entry, call, tool, path, text = (_text(arguments.get(name)) for name in _TEXTS)
        turns = arguments.get("turns")
        if not (entry or call or tool or path or text) and turns in (None, ""):
            raise QueryError("say what to look for: entry, call, tool, path, text or turns")
        scope: Literal["branch", "all"] = "all" if arguments.get("scope") == "all" else "branch"
        within = None if turns in (None, "") else _turns(turns)
        return cls(entry=entry, call=call, tool=tool, path=path, text=text, turns=within, scope=scope)

    @classmethod
    def _continued(cls, token: str) -> Request:
        try:
            kept = json.loads(base64.urlsafe_b64decode(token.encode() + b"=" * (-len(token) % 4)))
            if not isinstance(kept, dict):
                raise ValueError(token)
            turns = kept.pop("turns", None)
            made = cls(**kept, turns=(int(turns[0]), None if turns[1] is None else int(turns[1])) if turns else None)
            if not isinstance(made.offset, int) or made.offset < 0:
                raise ValueError(token)
            texts = [kept.get(name, "") for name in _TEXTS]
            if not all(isinstance(text, str) for text in texts) or not (any(texts) or turns):
                raise ValueError(token)
        except (ValueError, TypeError, IndexError, binascii.Error):
            raise QueryError(f"{shorten(one_line(token), _ECHO_CHARS)} is no token of an earlier answer") from None
        return made

    def token(self) -> str:
        """What ``continue`` takes for this very request."""
        default = asdict(Request())
        kept = {name: value for name, value in asdict(self).items() if value != default[name]}
        return base64.urlsafe_b64encode(json.dumps(kept, separators=(",", ":")).encode()).decode().rstrip("=")


@dataclass(frozen=True, slots=True)
class Answer:
    """Text for the model, and the same as data with camelCase keys; ``found`` false when there is nothing to give."""

    text: str
    found: bool
    data: Mapping[str, Any] = field(default_factory=dict)


def answer(request: Request, history: History, session: SessionView) -> Answer:
    """Answers a request from what the session has recorded; writes nothing."""
    if request.entry:
        return _read(history.get(request.entry), request, session, f"entry {_echo(request.entry)}")
    if request.call:
        found = [item for item in _scan(request, history, session) if item.recorded.call_id == request.call]
        if len(found) <= 1:
            item = found[0] if found else None
            return _read(item, request, session, f"result of a call {_echo(request.call)}")
    return _list(request, history, session)


# Reading one entry ---------------------------------------------------------------------------------------------------


def _read(item: HistoryEntry | None, request: Request, session: SessionView, what: str) -> Answer:
    if item is None or item.change == "hidden":
        return Answer(f"There is no {what} here.", False)
    if item.place == "other branch" and request.scope != "all":
        return Answer(f'The {what} is on another branch: ask with scope "all".', False)
    turn = _Turns(session).of(item.entry)
    about = _about(item, turn)
    if item.change == "omitted":
        gone = "It was omitted from the conversation; there is no text to give."
        return Answer(f"{_head(item, turn)}\n{gone}", False, about)
    page = paged(item.text, request.offset, PAGE_CHARS)
    token = None
    if page.next_offset is not None:
        token = Request(entry=item.entry.id, scope=request.scope, offset=page.next_offset).token()
    span = ""
    if page.offset or token is not None:
        span = f" · characters {page.offset:,} to {page.offset + len(page.text):,} of {page.total:,}"
    more = f"\n\n(more: continue {token})" if token is not None else ""
    text = f"{_head(item, turn)}{span}\n{page.text or '(no text)'}{more}"
    data = {
        **about, "blocks": _blocks(item), "text": page.text, "offset": page.offset, "total": page.total,
        "continue": token,
    }  # fmt: skip
    return Answer(text, True, data)


def _blocks(item: HistoryEntry) -> list[int] | None:
    """The lengths of the text blocks that the text is joined from, by line feeds; None when it is not from blocks."""
    message = item.entry.message if item.change in (None, "masked") else None
    content = message.get("content") if message is not None else None
    if not isinstance(content, list) or any(_block_text(block) is None for block in content):
        return None
    return [len(_block_text(block) or "") for block in content]


def _block_text(block: Any) -> str | None:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return text if isinstance(text, str) else None


# Lists ---------------------------------------------------------------------------------------------------------------


def _list(request: Request, history: History, session: SessionView) -> Answer:
    upto = request.upto if request.upto is not None else len(session.entries)
    request = replace(request, upto=upto)
    turns = _Turns(session)
    fits = _condition(request, session, turns)
    if request.text:
        skip = _SEARCHES if not request.tool else frozenset()
        found = history.search(
            request.text,
            limit=request.offset + _MAX_HITS + 1,
            scope=request.scope,
            skip_tools=skip,
            where=fits,
        )
    else:
        gone: list[Found] = []
        seen: list[Found] = []
        for item in _scan(request, history, session):
            if fits(item):
                known = item.place == "in context" and item.change is None
                (seen if known else gone).append(Found(item, _beginning(item.text)))
        found = [*gone, *seen]
    hits = found[request.offset : request.offset + _MAX_HITS]
    if not hits:
        more = "" if request.scope == "all" else ' Scope "all" looks at other branches too.'
        none = "There is nothing more." if request.offset else f"No entry is like that.{more}"
        return Answer(none, False, {"results": [], "continue": None})
    blocks = [f"\n{_head(hit.item, turns.of(hit.item.entry))}\n{one_line(hit.snippet)}\n" for hit in hits]
    text = "Entries, what you do not see first, newest first. Read one by its id.\n"
    reserve = 40 + len(replace(request, offset=request.offset + _MAX_HITS).token()) + 8
    shown = 0
    while shown < len(hits) and (shown == 0 or len(text) + len(blocks[shown]) + reserve <= PAGE_CHARS):
        text += blocks[shown]
        shown += 1
    token = None
    if request.offset + shown < len(found):
        token = replace(request, offset=request.offset + shown).token()
        text += f"\n(more: continue {token})\n"
    results = [{**_about(hit.item, turns.of(hit.item.entry)), "snippet": hit.snippet} for hit in hits[:shown]]
    return Answer(text.rstrip("\n"), True, {"results": results, "continue": token})


def _scan(request: Request, history: History, session: SessionView) -> Iterator[HistoryEntry]:
    """What the entries in the request's scope say, newest first; omitted ones are among them, without a text."""
    entries = session.entries if request.scope == "all" else session.branch()
    wanted = bool(request.tool)
    for entry in reversed(entries):
        if entry.type == "compaction" or (entry.type == "message" and _cannot_be(entry, request)):
            continue
        item = history.effective(entry)
        if item is None or item.change == "hidden":
            continue
        if wanted or request.call or not _is_search(item):
            yield item


def _is_search(item: HistoryEntry) -> bool:
    """Whether it is a call of a recovery tool and nothing else, or its result."""
    calls = item.recorded.calls
    if calls and _SEARCHES.issuperset(calls):
        return item.text.startswith("[call ")
    return item.recorded.tool in _SEARCHES


def _cannot_be(entry: Entry, request: Request) -> bool:
    """A quick look before an entry is decoded."""
    return bool(request.call or request.tool) and entry.role != "toolResult"


def _condition(request: Request, session: SessionView, turns: _Turns) -> Callable[[HistoryEntry], bool]:
    calls = _calls_about(request, session) if request.path else frozenset()
    tool = request.tool.lower()

    def fits(item: HistoryEntry) -> bool:
        if request.upto is not None and item.entry.position >= request.upto:
            return False
        if request.call and item.recorded.call_id != request.call:
            return False
        if tool and (item.recorded.tool or "").lower() != tool:
            return False
        if request.path and item.entry.id not in calls and item.recorded.call_id not in calls:
            return False
        if request.turns is None:
            return True
        turn = turns.of(item.entry)
        first, last = request.turns
        return turn is not None and first <= turn and (last is None or turn <= last)

    return fits


def _calls_about(request: Request, session: SessionView) -> frozenset[str]:
    """The ids of calls about a file, and of the entries that make them; not of calls that an edit has changed."""
    wanted = path_of({"path": request.path})
    entries = session.entries if request.scope == "all" else session.branch()
    targets = [entry.data.get("targetId") for entry in entries if entry.type == "context_edit"]
    edited = {target for target in targets if isinstance(target, str)}
    name = wanted.rsplit("/", 1)[-1].encode("utf-8", "surrogatepass")
    quick = name if re.fullmatch(rb"[\w.-]+", name) else b""  # may be escaped in the line otherwise
    found: set[str] = set()
    for entry in entries:
        if entry.role != "assistant" or entry.id in edited or quick not in entry.raw:
            continue
        content = (entry.message or {}).get("content")
        for block in content if isinstance(content, list) else ():
            call = block if isinstance(block, dict) and block.get("type") == "toolCall" else {}
            if _same(wanted, path_of(call.get("arguments"))):
                found.update((entry.id, own_text(call.get("id"))))
    return frozenset(found)


def _same(wanted: str, path: str) -> bool:
    return bool(path) and (path == wanted or path.endswith(f"/{wanted}") or wanted.endswith(f"/{path}"))


class _Turns:
    """The turn of each entry of the branch: its assistant messages, numbered from 1; what a user says is part of the
    turn that answers it."""

    def __init__(self, session: SessionView) -> None:
        self._session = session
        self._numbers: dict[int, int] | None = None

    def of(self, entry: Entry) -> int | None:
        """The number; None for an entry of another branch."""
        if self._numbers is None:
            self._numbers = {}
            turn = 0
            for passed in self._session.branch():
                role = passed.role
                turn += role == "assistant"
                self._numbers[passed.position] = turn if role in ("assistant", "toolResult") else turn + 1
        return self._numbers.get(entry.position)


# Words ---------------------------------------------------------------------------------------------------------------


def _head(item: HistoryEntry, turn: int | None) -> str:
    recorded = item.recorded
    tool = f" {shorten(one_line(recorded.tool), 40)}" if recorded.tool else ""
    calls = f" ({shorten(one_line(', '.join(recorded.calls)), 60)})" if recorded.calls else ""
    numbered = f" · turn {turn}" if turn is not None else ""
    entry_id = shorten(one_line(item.entry.id), _ID_CHARS)
    return f"[{entry_id}] {recorded.kind}{tool}{calls}{numbered} · {item.state} · {len(item.text):,} characters"


def _about(item: HistoryEntry, turn: int | None) -> dict[str, Any]:
    return {
        "entryId": item.entry.id,
        "kind": item.recorded.kind,
        "tool": item.recorded.tool,
        "callId": item.recorded.call_id,
        "turn": turn,
        "timestamp": item.entry.timestamp,
        "place": item.place,
        "change": item.change,
        "characters": len(item.text),
    }


def _beginning(text: str) -> str:
    return text if len(text) <= 2 * _SNIPPET_CHARS else text[: 2 * _SNIPPET_CHARS] + "…"


def _echo(text: str) -> str:
    return shorten(one_line(text), _ECHO_CHARS)


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else ""


def _turns(value: Any) -> tuple[int, int | None]:
    match = _TURNS.match(str(value)) if not isinstance(value, bool) else None
    if match is None:
        raise QueryError('turns are a number or a range: "7", "3-12" or "40-"')
    first = int(match[1])
    last = None if match[2] and not match[3] else int(match[3] or match[1])
    if last is not None and last < first:
        raise QueryError(f"turns {first} to {last} are no range: the first must not be after the last")
    return first, last
