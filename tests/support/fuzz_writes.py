"""The commands that write to a session, on a damaged one: the file only grows, and can still be read afterwards."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from contexthost.diagnosis import examine
from contexthost.errors import ContexthostError, ParentCycle
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from contexthost.session.load import Header
from support.fuzz_looks import call, faults_of_request, standing

__all__ = ["WRITES", "Written", "small_settings", "write_once"]

_MESSAGE: Final = {"type": "message", "message": {"role": "user", "content": "Go on.", "timestamp": 1_796_040_000_000}}

WRITES: Final[dict[str, tuple[str, ...]]] = {
    "mask": ("mask", "FILE", "--context-window", "2000"),
    "relay": ("relay", "FILE"),
    "append": (),
    "doctor --repair": ("doctor", "FILE", "--repair", "--yes"),
    "doctor --rescue": ("doctor", "FILE", "--rescue", "OUT/rescued.jsonl"),
}
"""What writes, and the command for it; a plain append is what every live session does."""


@dataclass
class Written:
    """What a writing command did: whether it wrote, with which error it refused, and what is wrong with that."""

    command: str
    applied: bool = False
    refused: str | None = None
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _State:
    """What can be made of a file: its header, its entries' ids, and whether it can be projected."""

    header: Header | None
    ids: tuple[str, ...] = ()
    projects: bool = False


def small_settings(home: Path) -> None:
    """Settings under which files of a few thousand tokens have something to mask, relay and compact."""
    config = home / "config"
    config.mkdir(parents=True)
    settings = {
        "host": {"compaction": {"keepRecentTokens": 200}},
        "masking": {"mask": {"minClearTokens": 0, "minEntryTokens": 30, "keepRecentTurns": 1}},
    }
    for name, values in settings.items():
        path = config / f"{name}.json"
        path.write_text(json.dumps(values), encoding="utf-8")
        path.chmod(0o600)


def write_once(path: Path, out: Path, draw: random.Random, *, watch: Callable[[str], None]) -> Written:
    """Runs one writing command on a file that lies alone in its directory; ``out`` is an empty one for a rescue."""
    name = draw.choice(list(WRITES))
    arguments = [part.replace("FILE", str(path)).replace("OUT", str(out)) for part in WRITES[name]]
    written = Written(name)
    before, state = path.read_bytes(), _state(path)
    watch(" ".join([name, *arguments]))
    if arguments:
        written.refused, _, written.faults = call(arguments)
    else:
        written.refused = _append(path)
    after = path.read_bytes()
    if name == "doctor --rescue":
        new = out / "rescued.jsonl"
        written.applied = new.exists()
        written.faults += [f"{name}: the old file changed"] if after != before or len(standing(path.parent)) > 1 else []
        if written.applied:
            written.faults += [f"{name}: the new file: {fault}" for fault in _of_mended(new, "append", "rescue")]
            new.unlink()
        return written
    written.applied = after != before
    if written.applied:
        faults = _of_growth(path, before, after, state)
        if written.refused is not None:
            faults.append(f"it was refused ({written.refused}) and wrote all the same")
        if name == "doctor --repair":
            faults += _of_mended(path, "append")
        written.faults += [f"{name}: {fault}" for fault in faults]
    elif len(standing(path.parent)) > 1:
        written.faults.append(f"{name}: nothing was appended, but something lies beside the file")
    return written


def _append(path: Path) -> str | None:
    """Says something in the session, if it opens; the class of the error if it does not."""
    try:
        Session.open(path).append([_MESSAGE])
    except ContexthostError as error:
        return type(error).__name__
    return None


def _state(path: Path) -> _State:
    try:
        session = Session.open(path)
    except ContexthostError:
        return _State(None)
    ids = tuple(entry.id for entry in session.entries)
    try:
        ProjectionAuthority(session).snapshot()
    except ParentCycle:
        return _State(session.header, ids)
    return _State(session.header, ids, projects=True)


def _of_growth(path: Path, before: bytes, after: bytes, state: _State) -> list[str]:
    """What is wrong with a file that was appended to."""
    beside = [Path(one) for one in standing(path.parent) if one != str(path)]
    if state.header is None:
        return ["a file was written to that could not be opened"]
    faults: list[str] = []
    if state.header.version < 3:
        kept = path.with_name(f"{path.name}.v{state.header.version}.bak")
        if beside != [kept] or kept.read_bytes() != before:
            faults.append("the original of an older version was not kept")
    elif not after.startswith(before):
        faults.append("the file did not only grow")
    elif beside:
        faults.append(f"files beside it: {beside}")
    new = _state(path)
    if new.ids[: len(state.ids)] != state.ids:
        faults.append("entries changed their ids or places")
    if not new.projects:
        return [*faults, *(["it cannot be projected any more"] if state.projects else [])]
    return faults + faults_of_request(ProjectionAuthority(Session.open(path)).snapshot())


def _of_mended(path: Path, *mends: str) -> list[str]:
    """The problems that doctor still finds and had said that it mends, and what a provider would refuse."""
    authority = ProjectionAuthority(Session.open(path))
    left = [f"left: {one.kind}, {one.problem}" for one in examine(authority).problems if one.mend in mends]
    try:
        return left + faults_of_request(authority.snapshot())
    except ParentCycle:
        return left
