"""What is wrong with the lines and the tree of a session file, whatever the model would see of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from contexthost.diagnosis.finding import Finding
from contexthost.diagnosis.lines import Line, Survey
from contexthost.diagnosis.siblings import dead_siblings
from contexthost.diagnosis.usages import broken_usages
from contexthost.messages import js_json, js_truthy
from contexthost.projection import CustomDraft, Draft
from contexthost.session import Entry, Session

__all__ = ["RECORD_TYPE", "examine_structure"]

RECORD_TYPE: Final = "contexthost.doctor"
"""The custom entry that a repair appends where nothing but a new last entry is needed."""

_ROLES: Final = frozenset(
    {"system", "user", "assistant", "toolResult", "bashExecution", "custom", "branchSummary", "compactionSummary"}
)
_SOUND: Final = _ROLES - {"bashExecution"}  # roles about which there is nothing more to ask here
_RESCUE: Final = "Appending cannot mend this. --rescue NEWFILE "


def examine_structure(session: Session, branch: Sequence[Entry] | None, lines: Survey) -> Iterator[Finding]:
    """The findings about lines and tree, in no particular order.

    Args:
        branch: the entries from the root to the leaf; None when the parents lead in a circle there.
        lines: the file's lines; empty for a session in memory.
    """
    line_of = lines.line_of
    on_branch = {id(entry) for entry in branch or ()}
    yield from _lines(session, lines)
    yield from _duplicates(session, line_of)
    yield from _parents(session, branch, line_of)
    yield from _cycles(session, branch is None, line_of)
    for entry in session.entries:
        if entry.type == "message":
            yield from _message(entry, id(entry) in on_branch, line_of.get(entry.position, 0))
    yield from broken_usages(session.entries, line_of)
    if branch is not None:
        yield from dead_siblings(session, branch, line_of)


def _lines(session: Session, lines: Survey) -> Iterator[Finding]:
    torn = any(problem.kind == "torn-line" for problem in session.problems)
    header_seen = False
    for line in lines.odd:
        is_last = line.number == lines.last
        if line.malformed and torn and line is lines.odd[-1]:
            yield _skipped("torn-line", line, "the file ends in half a line")
        elif line.malformed:
            yield _skipped("malformed-line", line, "this line is not JSON")
        elif line.skipped:
            continue
        elif not isinstance(line.value, dict):
            if session.header.version < 2:
                yield _stops_migration(line)
            else:
                yield _lost_place(session, line, is_last)
        elif line.value.get("type") == "session":
            if header_seen:
                yield Finding(
                    kind="second-header", severity="notice", mend="none", entry_id=None, line=line.number,
                    problem="a second session header",
                    model_sees="The same as without it: readers skip it.",
                    repair="Nothing is needed.",
                )  # fmt: skip
            header_seen = True
        elif session.header.version >= 2 and not (isinstance(line.value.get("id"), str) and line.value["id"]):
            yield _lost_place(session, line, is_last)


def _skipped(kind: str, line: Line, what: str) -> Finding:
    return Finding(
        kind=kind, severity="notice", mend="none", entry_id=None, line=line.number,
        problem=f"{what} ({len(line.raw):,} byte{'' if len(line.raw) == 1 else 's'})",
        model_sees="Nothing of it: every reader skips the line. What it held is lost, unless it can be read by eye.",
        repair="Nothing: the line stays, and what is appended begins on a new one. --rescue NEWFILE looks in it for "
        "whole entries.",
    )  # fmt: skip


def _stops_migration(line: Line) -> Finding:
    sees = "Nothing at all: Pi fails to open the session, since it cannot give the line an id."
    if isinstance(line.value, list):
        sees = "The line takes a place in the chain, but loses it when Pi writes the file as version 3: what came "
        sees += "before is cut off then."
    return Finding(
        kind="not-an-object", mend="append", entry_id=None, line=line.number,
        problem="this line is JSON, but not an object, in a version 1 file",
        model_sees=sees,
        repair="Bring the file to version 3 (the original stays beside it as *.v1.bak) and append a record; Pi opens "
        "it then.",
        drafts=_record(line),
    )  # fmt: skip


def _lost_place(session: Session, line: Line, is_last: bool) -> Finding:
    """About a line that is not an object, or an entry without an id that could be named.

    Pi keeps both under no id at all. As the last line they are its leaf: it finds no branch there, or one only until
    it adds an entry, which then has no parent. An id that is not text, such as 7, it finds again.
    """
    place: dict[str, Any] = {"entry_id": None, "line": line.number}
    if not isinstance(line.value, dict):
        place |= {"kind": "not-an-object", "problem": "this line is JSON, but not an object"}
    elif js_truthy(line.value.get("id")):
        return Finding(
            kind="missing-id", **place, mend="rescue", problem="the id of this entry is not text",
            model_sees="It, for as long as Pi finds it; other readers skip it, and what follows it.",
            repair=f"{_RESCUE}gives it an id.",
        )  # fmt: skip
    else:
        place |= {"kind": "missing-id", "problem": "this entry has no id"}
    saved = isinstance(line.value, dict)
    if is_last and session.entries:
        return Finding(
            **{**place, "problem": f"{place['problem']}, and it is the file's last"}, mend="append",
            model_sees="The history until the next message at most: Pi adds that without a parent, and what came "
            "before is cut off." if saved
            else "Nothing of the session: Pi takes this for the place where the work goes on, and finds nothing there.",
            repair=f"Append a record behind entry {session.leaf_id}, so that Pi goes on from there."
            + (" --rescue NEWFILE gives this entry an id as well." if saved else ""),
            drafts=_record(line),
        )  # fmt: skip
    return Finding(
        **place, severity="problem" if saved else "notice", mend="rescue" if saved else "none",
        model_sees="Nothing of it: no other entry can name it as its parent.",
        repair=f"{_RESCUE}gives it an id and puts it back where it stood." if saved else "Nothing is needed: entries "
        "follow it.",
    )  # fmt: skip


def _record(line: Line) -> tuple[Draft, ...]:
    return (CustomDraft(custom_type=RECORD_TYPE, data={"passedOverLine": line.number}),)


def _duplicates(session: Session, line_of: Mapping[int, int]) -> Iterator[Finding]:
    seen: dict[str, Entry] = {}
    for entry in session.entries:
        earlier = seen.get(entry.id)
        if earlier is not None:
            same = earlier.raw == entry.raw
            yield Finding(
                kind="duplicate-id", severity="notice" if same else "problem", mend="none" if same else "rescue",
                entry_id=entry.id, line=line_of.get(entry.position, 0),
                problem=f"the id is that of line {line_of.get(earlier.position, 0)} too"
                + (", which is the same line" if same else ""),
                model_sees="The last entry with the id only; the others are hidden, and what followed them now follows "
                "it.",
                repair="Nothing is needed." if same else f"{_RESCUE}gives one of them a new id; what followed each "
                "follows it again.",
            )  # fmt: skip
        seen[entry.id] = entry


def _parents(session: Session, branch: Sequence[Entry] | None, line_of: Mapping[int, int]) -> Iterator[Finding]:
    top = branch[0] if branch else None
    for at, entry in enumerate(session.entries):
        why = _why_cut(session, entry, at)
        if why is None:
            continue
        cut = entry is top
        yield Finding(
            kind="missing-parent", mend="rescue", entry_id=entry.id, line=line_of.get(entry.position, 0), problem=why,
            model_sees="The branch in use begins here: nothing of what came before."
            if cut else "The same as without it: the branch in use does not pass here, but this part of the session is "
            "cut off from the rest.",
            severity="problem" if cut else "notice",
            repair=f"{_RESCUE}hangs it on the entry before it in the file.",
        )  # fmt: skip


def _why_cut(session: Session, entry: Entry, at: int) -> str | None:
    if entry.parent_id is not None:
        return None if session.get(entry.parent_id) is not None else f"its parent {entry.parent_id} is not in the file"
    if session.header.version < 2 or at == 0:
        return None
    parent = entry.data.get("parentId", _ABSENT)
    if parent is None or parent == "":
        return None
    # Pi leaves the key out when it had lost its place (see `_lost_place`), and never writes anything but text.
    return "it has no parentId" if parent is _ABSENT else "its parentId is not text"


_ABSENT: Final = object()


def _cycles(session: Session, on_branch: bool, line_of: Mapping[int, int]) -> Iterator[Finding]:
    done: set[str] = set()
    for start in session.entries:
        if session.depth(start) >= 0 or start.id in done:
            continue
        path: dict[str, Entry] = {}
        at: Entry | None = session.get(start.id)
        while at is not None and at.id not in path and at.id not in done:
            path[at.id] = at
            at = session.parent(at)
        done.update(path)  # in place, unlike `|=` with keys
        if at is None or at.id not in path:
            continue
        ids = list(path)
        ring = sorted((path[one] for one in ids[ids.index(at.id) :]), key=lambda entry: entry.position)
        first = ring[0]
        yield Finding(
            kind="parent-cycle", mend="rescue", entry_id=first.id, line=line_of.get(first.position, 0),
            problem=f"its parents lead back to itself, through {len(ring)} "
            f"{'entry' if len(ring) == 1 else 'entries'}",
            model_sees="Nothing at all: Pi follows the circle until its memory is full." if on_branch
            else "The same as without it, until somebody goes there: Pi then follows the circle until its memory is "
            "full.",
            repair=f"{_RESCUE}hangs the first entry of the circle on the one before it in the file.",
        )  # fmt: skip


def _message(entry: Entry, on_branch: bool, line: int) -> Iterator[Finding]:
    if entry.role in _SOUND or (entry.role in _ROLES and not on_branch):
        return  # without decoding the message
    message: Any = entry.message
    if message is None:
        value = entry.data.get("message")
        yield Finding(
            kind="no-message", mend="rescue", entry_id=entry.id, line=line,
            problem="an entry of type message without a message object",
            model_sees=("Nothing at all: Pi fails on it." if value is None else "Nothing of it.") if on_branch
            else "The same as without it: the branch in use does not pass here.",
            severity="problem" if on_branch else "notice",
            repair=f"{_RESCUE}leaves it out; what followed it follows the entry before it.",
        )  # fmt: skip
    elif on_branch and entry.role == "bashExecution" and not _is_command(message):
        yield Finding(
            kind="bad-content", mend="rescue", entry_id=entry.id, line=line,
            problem="a command without its text or its output",
            model_sees="Nothing at all: Pi fails when it counts tokens.",
            repair=f"{_RESCUE}puts an empty text there.",
        )  # fmt: skip
    elif on_branch and entry.role not in _ROLES:
        yield Finding(
            kind="unknown-role", severity="notice", mend="none", entry_id=entry.id, line=line,
            problem=f"a message of the role {_quoted(message.get('role'))}, which Pi does not know",
            model_sees="Nothing of it: Pi leaves it out of requests.",
            repair="Nothing is needed.",
        )  # fmt: skip


def _quoted(role: Any) -> str:
    return repr(role) if isinstance(role, str) else js_json(role)


def _is_command(message: Mapping[str, Any]) -> bool:
    return isinstance(message.get("command"), str) and isinstance(message.get("output"), str)
