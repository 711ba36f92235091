"""Subagents as a session's record shows them: who was started, who has come back, with what."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from contexthost.history import History
from contexthost.session import Entry

__all__ = ["Subagent", "find_subagents", "worktree_paths"]

RECORD_TYPE: Final = "subagents:record"
NOTIFICATION_TYPE: Final = "subagent-notification"
TOOL: Final = "Agent"
"""Where pi-subagents leaves its traces: custom entries, custom messages, results of the tool that starts one."""

_RUNNING: Final = frozenset({"running", "background", "queued", "started", "starting", "pending"})
_TREE_NAME: Final = re.compile(r"/worktrees/[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_TREE_PARENT: Final = re.compile(r"/[^\s\"'`<>|:*?\x00-\x1f]*$|$")
_LONGEST_PARENT: Final = 500
_BRANCH: Final = re.compile(
    r"\bbranch(?: name)?(?:[ ]*[:=][ ]*[`'\"]?|[ ]+[`'\"])([A-Za-z0-9][A-Za-z0-9._/-]{0,98}[A-Za-z0-9_])", re.IGNORECASE
)
_FIELD: Final = {
    "id": re.compile(r"(?:\bAgent ID:\s*|<task-id>\s*)([A-Za-z0-9][A-Za-z0-9._-]{0,99})", re.IGNORECASE),
    "type": re.compile(r"^Type:\s*(.+)$", re.MULTILINE),
    "description": re.compile(r"^Description:\s*(.+)$", re.MULTILINE),
    "status": re.compile(r"<status>\s*([A-Za-z]+)"),
}
_RESULT: Final = re.compile(r"<result>(.*?)(?:</result>|\Z)", re.DOTALL)
_NOTIFICATION: Final = re.compile(r"<task-notification>.*?(?:</task-notification>|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Subagent:
    """One subagent, as far as the record tells. ``state`` is ``RUNNING`` for one that was started and has not come
    back, which one that died with its process may be too; times are ISO 8601."""

    id: str
    type: str = ""
    description: str = ""
    state: str = "RUNNING"
    started: str = ""
    worktree: str | None = None
    branch: str | None = None
    result: str = ""
    entry_id: str = ""

    @property
    def running(self) -> bool:
        """Whether nothing says that it has come back."""
        return self.state == "RUNNING"


def find_subagents(branch: Iterable[Entry], history: History) -> list[Subagent]:
    """The subagents of a branch in the order in which they first appear; what edits omitted does not count."""
    found: dict[str, Subagent] = {}
    for entry in branch:
        if b"ubagent" not in entry.raw and b'"Agent"' not in entry.raw:
            continue
        for seen in _sightings(entry, history):
            known = found.get(seen.id)
            found[seen.id] = seen if known is None else _merged(known, seen)
    return list(found.values())


def _merged(known: Subagent, seen: Subagent) -> Subagent:
    """What is known, with the newer word where it says anything; a new start forgets the earlier result."""
    restarted = seen.running and not known.running
    return replace(
        known,
        type=seen.type or known.type,
        description=seen.description or known.description,
        state=seen.state,
        started=seen.started if restarted and seen.started else known.started or seen.started,
        worktree=seen.worktree or known.worktree,
        branch=seen.branch or known.branch,
        result="" if restarted else seen.result or known.result,
        entry_id=seen.entry_id if restarted or seen.result or not known.result else known.entry_id,
    )


def _sightings(entry: Entry, history: History) -> Iterator[Subagent]:
    if entry.type == "custom":
        data = entry.data.get("data")
        if entry.data.get("customType") == RECORD_TYPE and isinstance(data, Mapping):
            text = _text(data.get("result")) or _text(data.get("error"))
            yield from _sighting(data, text, entry, default="completed")
        return
    is_notification = entry.type == "custom_message" and entry.data.get("customType") == NOTIFICATION_TYPE
    if not is_notification and not (entry.role == "toolResult" and (entry.message or {}).get("toolName") == TOOL):
        return
    item = history.effective(entry)
    if item is None or item.withheld:
        return
    # What stands in place of a replaced text stands in place of what goes with it.
    given = entry.data.get("details") if is_notification else (entry.message or {}).get("details")
    details: Mapping[str, Any] = given if isinstance(given, Mapping) and item.change != "replaced" else {}
    if not is_notification:
        default = "error" if item.recorded.is_error else "RUNNING" if _says_started(item.text) else "completed"
        yield from _sighting(details, item.text, entry, default=default)
        return
    pieces = _NOTIFICATION.findall(item.text) or [item.text]
    others = details.get("others")
    all_details = [details, *(others if isinstance(others, list) else ())]
    for number in range(max(len(pieces), len(all_details))):
        one = all_details[number] if number < len(all_details) else {}
        piece = pieces[number] if number < len(pieces) else ""
        yield from _sighting(one if isinstance(one, Mapping) else {}, piece, entry, default="completed")


def _says_started(text: str) -> bool:
    head = text[:400].lower()
    return "started in background" in head or "agent queued" in head or "queued in background" in head


def _sighting(details: Mapping[str, Any], text: str, entry: Entry, *, default: str) -> Iterator[Subagent]:
    def field(*keys: str) -> str:
        for key in keys:
            value = details.get(key)
            if isinstance(value, str) and value:
                return value
        pattern = _FIELD.get(keys[0])
        match = pattern.search(text) if pattern is not None else None
        return match[1].strip() if match is not None else ""

    agent_id = field("id", "agentId")
    if not agent_id:
        return
    status = field("status") or default
    state = "RUNNING" if status.lower() in _RUNNING or status == "RUNNING" else status
    tree = _text(details.get("worktree")) or _text(details.get("worktreePath"))
    trees = worktree_paths(f"{tree}\n{text}")
    branch = _text(details.get("branch")) or next(iter(_BRANCH.findall(text)), "")
    result = _RESULT.search(text)
    own = result[1] if result is not None else text
    yield Subagent(
        id=agent_id,
        type=field("type", "subagentType", "displayName"),
        description=field("description"),
        state=state,
        started=_iso(details.get("startedAt")) or entry.timestamp,
        worktree=trees[0] if trees else None,
        branch=branch or None,
        result="" if state == "RUNNING" else own.strip() or _text(details.get("resultPreview")),
        entry_id=entry.id,
    )


def worktree_paths(text: str) -> list[str]:
    """The absolute paths in a text that look like ``…/worktrees/<name>``."""
    found = []
    for name in _TREE_NAME.finditer(text):
        before = text[max(name.start() - _LONGEST_PARENT, 0) : name.start()]
        parent = _TREE_PARENT.search(before)
        found.append((parent[0] if parent is not None else "") + name[0])
    return found


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _iso(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e14:
        return ""
    return datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
