"""The portable summary: what stands in for the opaque item wherever that cannot be read.

It is made from the snapshot alone, without a model, so it is the same every time, costs nothing and cannot fail.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from contexthost.compaction import collect_file_ops, compute_file_lists
from contexthost.messages import js_json, text_of
from contexthost.models.conversion import clean
from contexthost_codex_native.checkpoint import Checkpoint
from contexthost_codex_native.items import messages_of

if TYPE_CHECKING:
    from contexthost.messages import Message
    from contexthost.projection import Snapshot

__all__ = ["Portable", "portable_of", "portable_text"]

_GOAL_MAX: Final = 2_000
"""Characters of the first request that are carried on from checkpoint to checkpoint."""
_PATHS_MAX: Final = 200
"""Paths carried on, of each kind: the last ones by name are left out."""
_INTRO: Final = (
    "The provider compacted the conversation before this point itself; only its own model can read the result. These "
    "are the bare facts for whoever goes on without it."
)
_LOOK_UP: Final = (
    "Nothing is lost: the session still holds every message and tool result. Look details up with the recall or "
    "context_tree_query tool where there is one; otherwise read the files again, and ask the user only for what is in "
    "neither."
)
# Shares of the room for what varies; what a section leaves goes to those after it.
_SHARES: Final = {"goal": 0.15, "before": 0.2, "requests": 0.35, "state": 0.4, "calls": 0.3, "files": 1.0}
_BLANKS: Final = re.compile(r"\n{3,}")


@dataclass(frozen=True, slots=True)
class Portable:
    """The facts; every text as the session has it, context edits applied."""

    goal: str = ""
    before: str = ""
    """The summary of an older compaction of another making."""
    requests: tuple[str, ...] = ()
    """The user's later messages, oldest first."""
    state: str = ""
    open_calls: tuple[str, ...] = ()
    read_files: tuple[str, ...] = ()
    modified_files: tuple[str, ...] = ()
    focus: str = field(default="", kw_only=True)
    """What the user asked the summary to heed."""

    def carried(self) -> dict[str, Any]:
        """What the next checkpoint's summary needs of this one."""
        return {
            "goal": self.goal[:_GOAL_MAX],
            "readFiles": list(self.read_files[:_PATHS_MAX]),
            "modifiedFiles": list(self.modified_files[:_PATHS_MAX]),
        }


def portable_of(snapshot: Snapshot, checkpoint: Checkpoint | None, *, focus: str | None = None) -> Portable:
    """The facts of a snapshot; ``checkpoint`` is the native one in force that the compaction starts from."""
    head = snapshot.checkpoint
    details = head.data.get("details") if head is not None else None
    if checkpoint is not None:
        messages = messages_of(snapshot.since_checkpoint)
        earlier = [_item_text(item) for item in checkpoint.user_items]
        carried: Mapping[str, Any] = checkpoint.portable
        before = ""
    else:
        messages = [message for message in snapshot.messages if message.get("role") != "compactionSummary"]
        earlier = []
        carried = details if isinstance(details, dict) else {}
        carried = carried["portable"] if isinstance(carried.get("portable"), dict) else carried
        before = _text(head.data.get("summary")) if head is not None else ""
    requests = [text for text in (*earlier, *_requests(messages)) if text]
    carried_goal = _text(carried.get("goal")).strip()
    goal = carried_goal or (requests[0] if requests and not before else "")
    later = [text for text in requests if text != goal and text[:_GOAL_MAX] != goal]
    ops = compute_file_lists(collect_file_ops(messages))
    modified = {*ops.modified_files, *_paths(carried.get("modifiedFiles"))}
    read = {*ops.read_files, *_paths(carried.get("readFiles"))} - modified
    return Portable(
        goal=goal,
        before=before,
        requests=tuple(later),
        state=_last_answer(messages),
        open_calls=tuple(_open_calls(messages)),
        read_files=tuple(sorted(read)),
        modified_files=tuple(sorted(modified)),
        focus=(focus or "").strip(),
    )


def portable_text(facts: Portable, max_chars: int) -> str:
    """The summary, never empty and never longer than ``max_chars`` characters (at least 1,000)."""
    room = max_chars - len(_INTRO) - len(_LOOK_UP) - 300  # the headings and the blank lines between
    sections: list[str] = [_INTRO]

    def add(title: str, name: str, make: Any) -> None:
        nonlocal room
        text = make(int(room * _SHARES[name]))
        if text:
            room -= len(text)
            sections.append(f"## {title}\n{text}")

    add("Goal", "goal", lambda most: _middle_cut(facts.goal, most))
    if facts.focus:
        add("Asked for in this summary", "goal", lambda most: _middle_cut(facts.focus, most))
    add("Before that", "before", lambda most: _middle_cut(facts.before, most))
    add("What the user said since, newest last", "requests", lambda most: _newest(facts.requests, most))
    add("State: the last answer", "state", lambda most: _middle_cut(facts.state, most))
    add("Calls without a result", "calls", lambda most: _listed(facts.open_calls, most))
    add("Files changed", "files", lambda most: _listed(facts.modified_files, most))
    add("Files read", "files", lambda most: _listed(facts.read_files, most))
    sections.append(f"## The rest\n{_LOOK_UP}")
    return _middle_cut(_BLANKS.sub("\n\n", clean("\n\n".join(sections))), max_chars)


# The facts ---------------------------------------------------------------------------------------------------------


def _requests(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        if message.get("role") == "user":
            yield text_of(message.get("content"), "\n").strip()


def _last_answer(messages: Sequence[Message]) -> str:
    for message in reversed(messages):
        if message.get("role") == "assistant" and message.get("stopReason") not in ("error", "aborted"):
            text = text_of(message.get("content"), "\n").strip()
            if text:
                return text
    return ""


def _open_calls(messages: Iterable[Message]) -> Iterator[str]:
    """Calls of the newest answers that no result follows."""
    waiting: dict[str, str] = {}
    for message in messages:
        role = message.get("role")
        content = message.get("content")
        if role == "toolResult":
            waiting.pop(_text(message.get("toolCallId")), None)
        elif role == "assistant" and message.get("stopReason") not in ("error", "aborted"):
            for block in content if isinstance(content, list) else ():
                if isinstance(block, dict) and block.get("type") == "toolCall" and isinstance(block.get("id"), str):
                    arguments = js_json(block.get("arguments"))
                    waiting[block["id"]] = f"{_text(block.get('name'))} {_middle_cut(arguments, 300)}"
    yield from waiting.values()


def _item_text(item: Mapping[str, Any]) -> str:
    parts = item.get("content")
    texts = [part["text"] for part in parts if part.get("type") == "input_text"] if isinstance(parts, list) else []
    return "\n".join(texts).strip()


def _paths(value: object) -> list[str]:
    return [path for path in value if isinstance(path, str)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


# The text ----------------------------------------------------------------------------------------------------------


def _middle_cut(text: str, most: int) -> str:
    """``text``, or its beginning and its end with a mark between them."""
    if len(text) <= most:
        return text
    mark = " […] "
    space = most - len(mark)
    if space < 2:
        return ""
    tail = space // 3
    return text[: space - tail] + mark + text[len(text) - tail :]


def _newest(texts: Sequence[str], most: int) -> str:
    """As many of the newest as fit, each shortened to a share; in their order."""
    each = max(most // 4, 1)
    kept: list[str] = []
    for text in reversed(texts):
        line = f"- {_middle_cut(text, each)}"
        if len(line) + 1 > most:
            kept.append(f"- ({len(texts) - len(kept):,} earlier ones are left out)")
            break
        kept.append(line)
        most -= len(line) + 1
    return "\n".join(reversed(kept))


def _listed(names: Sequence[str], most: int) -> str:
    kept: list[str] = []
    for name in names:
        line = f"- {name}"
        if len(line) + 1 > most - 30:
            kept.append(f"- and {len(names) - len(kept):,} more")
            break
        kept.append(line)
        most -= len(line) + 1
    return "\n".join(kept)
