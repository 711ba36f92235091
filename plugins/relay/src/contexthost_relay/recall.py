"""``recall``: finds and gives back what the context no longer shows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from contexthost.history import Ancestor, Found, History, HistoryEntry, Page, paged
from contexthost.text import one_line, shorten
from contexthost_relay.files import note_path
from contexthost_relay.material import is_relay, note_number

__all__ = ["DESCRIPTION", "PARAMETERS", "Recalled", "recall"]

DEFAULT_LIMIT: Final = 8
MAX_LIMIT: Final = 30
SEARCH_CHARS: Final = 8_000
"""Characters that the answer to a search has at most."""
PAGE_CHARS: Final = 12_000
"""Characters of an entry's text on one page."""
ECHO_CHARS: Final = 120
"""Characters of what was asked that an answer repeats."""

# A search must not find earlier searches.
_SKIPPED_TOOLS: Final = frozenset({"recall", "context_tree_query"})
_NOTE: Final = re.compile(r"\s*note:\s*(\d{1,9})\s*\Z", re.IGNORECASE)

DESCRIPTION: Final = (
    "Search this session's record, or read one entry of it whole: also what was compacted away, relayed or masked "
    "and is no longer in your context. Give `query` to search (all words, case aside), or `entryId` to read."
)
# No types on purpose: arguments of a wrong type are ignored, not refused.
PARAMETERS: Final[Mapping[str, Any]] = {
    "type": "object",
    "properties": {
        "query": {"description": "string: words that must all occur"},
        "limit": {"description": f"integer: hits at most, 1 to {MAX_LIMIT}; {DEFAULT_LIMIT} by default"},
        "scope": {"description": 'string: "lineage" also searches the sessions that this one was forked from'},
        "entryId": {"description": "string: the entry to read; note:1, note:2, … read relay notes"},
        "offset": {"description": "integer: where to read on, as the page before said; 0 by default"},
    },
}


@dataclass(frozen=True, slots=True)
class Recalled:
    """The answer: text for the model, and the same as data with camelCase keys; ``found`` false when there is
    nothing to give."""

    text: str
    found: bool
    data: Mapping[str, Any] = field(default_factory=dict)


def recall(arguments: Mapping[str, Any], history: History, data_dir: Path) -> Recalled:
    """Answers one call. Arguments of a wrong type are ignored, numbers brought into their range; with both given,
    ``entryId`` counts."""
    entry_id, query = arguments.get("entryId"), arguments.get("query")
    if isinstance(entry_id, str) and entry_id.strip():
        return _read(entry_id.strip(), _whole(arguments.get("offset"), 0), history, data_dir)
    if isinstance(query, str) and query.strip():
        limit = min(max(_whole(arguments.get("limit"), DEFAULT_LIMIT), 1), MAX_LIMIT)
        return _search(query, limit, history, lineage=arguments.get("scope") == "lineage")
    return Recalled("Give a query (words to search for) or an entryId (an entry to read).", False)


def _whole(value: Any, default: int) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) > 1e15:
        return default
    return int(value)


# Searching -----------------------------------------------------------------------------------------------------------


def _search(query: str, limit: int, history: History, *, lineage: bool) -> Recalled:
    found = history.search(query, limit=limit, skip_tools=_SKIPPED_TOOLS)
    problems: list[str] = []
    if lineage and len(found) < limit:
        nearer: list[History] = [history]
        for ancestor in history.lineage():
            if ancestor.history is None:
                problems.append(_unreadable(ancestor))
                continue
            # An id that a nearer session has is that session's to tell: it may have been omitted there.
            found += ancestor.history.search(
                query, limit=limit - len(found), skip_tools=_SKIPPED_TOOLS, skip_ids=partial(_is_known, tuple(nearer))
            )
            nearer.append(ancestor.history)
    echo = shorten(one_line(query), ECHO_CHARS)
    data: dict[str, Any] = {"query": query, "hits": [_hit_data(hit) for hit in found], "problems": problems}
    if not found:
        hint = "" if lineage else ' scope "lineage" also looks into the sessions that this one was forked from.'
        text = "\n".join([f"Nothing recorded holds all of: {echo}.{hint}", *problems])
        return Recalled(shorten(text, SEARCH_CHARS), False, data)
    text = f"Entries with all of: {echo}. Read one whole by its id.\n"
    for number, hit in enumerate(found):
        block = f"\n{_head(hit.item, history)}\n{one_line(hit.snippet)}\n"
        rest = f"\n({len(found) - number} more did not fit: ask with more words)\n"
        if len(text) + len(block) + (len(rest) if number + 1 < len(found) else 0) > SEARCH_CHARS:
            text += rest
            break
        text += block
    return Recalled(shorten("\n".join([text.rstrip("\n"), *problems]), SEARCH_CHARS), True, data)


def _is_known(nearer: Sequence[History], entry_id: str) -> bool:
    return any(one.session.get(entry_id) is not None for one in nearer)


def _unreadable(ancestor: Ancestor) -> str:
    path, problem = one_line(str(ancestor.path)), one_line(ancestor.problem or "")
    return f"({shorten(path, 200)} cannot be read: {shorten(problem, 200)})"


def _head(item: HistoryEntry, history: History) -> str:
    kind = item.recorded.kind + (f" ({shorten(one_line(item.recorded.tool), 40)})" if item.recorded.tool else "")
    session = f" · session {shorten(one_line(item.session_id), 100)}" if item.session_id != history.session.id else ""
    entry_id, stamp = shorten(one_line(item.entry.id), 60), shorten(one_line(item.entry.timestamp), 30)
    return f"[{entry_id}] {kind} · {stamp} · {item.state}{session}"


def _hit_data(hit: Found) -> dict[str, Any]:
    return {**_item_data(hit.item), "snippet": hit.snippet}


def _item_data(item: HistoryEntry) -> dict[str, Any]:
    return {
        "entryId": item.entry.id,
        "kind": item.recorded.kind,
        "tool": item.recorded.tool,
        "timestamp": item.entry.timestamp,
        "state": item.state,
        "sessionId": item.session_id,
    }


# Reading -------------------------------------------------------------------------------------------------------------


def _read(entry_id: str, offset: int, history: History, data_dir: Path) -> Recalled:
    note = _NOTE.match(entry_id)
    echo = shorten(one_line(entry_id), ECHO_CHARS)
    if note is not None:
        text = _note_text(int(note[1]), history, data_dir)
        if text is None:
            return Recalled(f"There is no relay note {note[1]} in this session.", False, {"entryId": entry_id})
        page = paged(text, offset, PAGE_CHARS)
        return Recalled(_page_text(f"[note:{int(note[1])}]", page), True, {"entryId": entry_id, **_page_data(page)})
    item, nearest = _look_up(entry_id, history)
    data: dict[str, Any] = {"entryId": entry_id}
    if item is None:
        known = nearest is not None
        text = f"Entry {echo} says nothing that could be recalled." if known else f"There is no entry {echo} here."
        return Recalled(text, False, data)
    data = {**data, **_item_data(item)}
    if item.change == "omitted":
        return Recalled(f"Entry {echo} was omitted from the conversation: its text is not to be recalled.", False, data)
    if item.change == "hidden":
        return Recalled(f"Entry {echo} is a command that the user kept from the conversation.", False, data)
    if item.place == "other branch":
        return Recalled(f"Entry {echo} is on another branch of this session, which recall does not read.", False, data)
    page = paged(item.text, offset, PAGE_CHARS)
    return Recalled(_page_text(_head(item, history), page), True, {**data, **_page_data(page)})


def _look_up(entry_id: str, history: History) -> tuple[HistoryEntry | None, History | None]:
    """The entry in the nearest session that has it."""
    for one in _generations(history):
        if one.session.get(entry_id) is not None:
            return one.get(entry_id), one
    return None, None


def _generations(history: History) -> Iterator[History]:
    yield history
    yield from (ancestor.history for ancestor in history.lineage() if ancestor.history is not None)


def _note_text(number: int, history: History, data_dir: Path) -> str | None:
    """A relay's note: from the session, which has it as the compaction's summary, else from its file."""
    for entry in reversed(history.session.entries):
        if is_relay(entry) and note_number(entry) == number:
            summary = entry.data.get("summary")
            return summary if isinstance(summary, str) else None
    try:
        return note_path(data_dir, history.session.id, number).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return None


def _page_text(head: str, page: Page) -> str:
    if page.total == 0:
        return f"{head}\n(no text)"
    if page.offset >= page.total:
        return f"{head}\n(the text ends at {page.total:,})"
    span = f"characters {page.offset:,} to {page.offset + len(page.text):,} of {page.total:,}"
    whole = page.offset == 0 and page.next_offset is None
    more = f"\n\n(goes on: offset {page.next_offset})" if page.next_offset is not None else ""
    return f"{head}{'' if whole else f' · {span}'}\n{page.text}{more}"


def _page_data(page: Page) -> dict[str, Any]:
    return {"text": page.text, "offset": page.offset, "nextOffset": page.next_offset, "total": page.total}
