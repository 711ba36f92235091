"""What a user does with a session file without wanting to change it, in this process, and what must hold of it.

A look may refuse a file with one of the project's own errors, which must name the file if it says that the file is
none. Anything else that is raised, a plugin that failed, a request that a provider would refuse, or a byte or name that
changed is a fault.
"""

from __future__ import annotations

import io
import random
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from contexthost._dispatch import Caught
from contexthost.cli import compact, context, doctor, inspect, run
from contexthost.context import ModelRequest
from contexthost.errors import ContexthostError, ParentCycle, SessionFormatError
from contexthost.history import History
from contexthost.models.chat import chat_body
from contexthost.models.responses import responses_body
from contexthost.projection import ProjectionAuthority, Snapshot
from contexthost.session import Session
from contexthost_codex_native.cli import codex
from contexthost_jev.cli import jev
from contexthost_masking.cli import mask
from contexthost_masking.cli_query import status, tree_query
from contexthost_relay.cli import recall, relay
from support.asking import model_info
from support.model_server import CHAT, RESPONSES
from support.provider_rules import request_problems
from support.talk import unpaired

__all__ = ["COMMANDS", "LOOKS", "Outcome", "call", "faults_of_request", "look_once", "standing"]

COMMANDS: Final[dict[str, click.Command]] = {
    "codex": codex, "compact": compact.command, "context": context.command, "doctor": doctor.command,
    "inspect": inspect.command, "jev": jev, "mask": mask, "recall": recall, "relay": relay, "run": run.command,
    "status": status, "tool": run.tool_command, "tree-query": tree_query,
}  # fmt: skip
"""The commands of the command line that take a session, host's and plugins'."""

FREQUENT: Final[tuple[tuple[str, ...], ...]] = (("doctor", "FILE"), ("inspect", "FILE", "--json"))
"""One of them looks at every file, besides opening it."""
RARE: Final = 1 / 5
"""The share of files that one of the other commands looks at as well: they take several times as long."""

LOOKS: Final[tuple[tuple[str, ...], ...]] = (
    ("doctor", "FILE", "--json"),
    ("doctor", "FILE", "--repair", "--dry-run"),
    ("doctor", "FILE", "--rescue", "OUT/rescued.jsonl", "--dry-run"),
    ("inspect", "FILE", "--leaf", "ID", "--keep-recent", "50"),
    ("context", "FILE"),
    ("context", "FILE", "--json"),
    ("context", "FILE", "--html", "OUT/page.html", "--force"),
    ("recall", "FILE", "the", "file"),
    ("recall", "FILE", "--json", "--lineage", "read"),
    ("recall", "FILE", "--entry", "ID"),
    ("tree-query", "FILE", "--text", "file", "--scope", "all"),
    ("tree-query", "FILE", "--tool", "read"),
    ("tree-query", "FILE", "--entry", "ID", "--json"),
    ("tree-query", "FILE", "--turns", "1-3"),
    ("status", "FILE"),
    ("status", "FILE", "--json", "--context-window", "500"),
    ("mask", "FILE", "--dry-run", "--context-window", "500"),
    ("mask", "FILE", "--dry-run", "--json"),
    ("relay", "FILE", "--dry-run"),
    ("relay", "FILE", "--dry-run", "--json", "--context-window", "500"),
    ("compact", "FILE", "--dry-run"),
    ("jev", "plan", "FILE"),
    ("jev", "plan", "FILE", "--json"),
    ("codex", "status", "FILE"),
    ("codex", "status", "FILE", "--json"),
    ("tool", "FILE", "recall", '{"query": "file"}'),
    ("tool", "FILE", "context_tree_query", '{"text": "file"}'),
    ("run", "FILE", "/context"),
    ("run", "FILE", "/jev-status"),
)
"""One of these for each file, drawn; FILE, OUT (a directory) and ID (an entry's) stand for what is at hand."""


@dataclass
class Outcome:
    """What became of one file.

    ``refused`` is the error's class if the session could not be opened, ``blocked`` if it could but not projected;
    ``errors`` counts what commands refused it with. ``faults`` must be empty.
    """

    refused: str | None = None
    blocked: str | None = None
    entries: int = 0
    errors: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    looks: list[str] = field(default_factory=list)


def standing(directory: Path) -> dict[str, tuple[int, int, int]]:
    """Every file below a directory: inode, size, and time of the last change in nanoseconds. A directory that a
    plugin made for what it may want to keep is none."""
    found = {}
    for path in directory.rglob("*"):
        state = path.lstat()
        if not stat.S_ISDIR(state.st_mode):
            found[str(path)] = (state.st_ino, state.st_size, state.st_mtime_ns)
    return found


@contextmanager
def _streams() -> Iterator[tuple[io.BytesIO, io.BytesIO]]:
    """Standard output and error as a UTF-8 terminal has them: text that cannot be encoded fails."""
    kept = sys.stdout, sys.stderr
    out, err = io.BytesIO(), io.BytesIO()
    # As `main` sets them up.
    sys.stdout = io.TextIOWrapper(out, encoding="utf-8", errors="replace", write_through=True)
    sys.stderr = io.TextIOWrapper(err, encoding="utf-8", errors="backslashreplace", write_through=True)
    try:
        yield out, err
    finally:
        sys.stdout.detach()
        sys.stderr.detach()
        sys.stdout, sys.stderr = kept


def call(arguments: list[str]) -> tuple[str | None, str, list[str]]:
    """Runs a command as `main` does: (the class of the error it refused with, what it printed, faults)."""
    refused: str | None = None
    faults: list[str] = []
    with _streams() as (out, err), Caught() as caught:
        COMMANDS[arguments[0]].main(arguments[1:], prog_name=arguments[0], standalone_mode=False)
    error = caught.error
    if isinstance(error, ContexthostError):
        refused = type(error).__name__
        if not isinstance(error.__cause__, OSError | ContexthostError | None):
            faults.append(f"{refused} hides a failure: {_trace(error)}")
    elif isinstance(error, click.ClickException):
        refused = type(error).__name__
        faults += [error.message] if isinstance(error, click.UsageError) else []
    elif error is not None and not isinstance(error, click.exceptions.Exit):
        faults.append(_trace(error))
    printed, told = out.getvalue().decode(), err.getvalue().decode()
    if ", hook " in told or "Traceback" in told:
        faults.append(f"a plugin failed: {told[-2_000:]}")
    return refused, printed, [f"{' '.join(arguments)}: {fault}" for fault in faults]


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error, limit=-14))[-4_000:]


def faults_of_request(snapshot: Snapshot) -> list[str]:
    """What a provider would refuse about the requests that a projection leads to, one text each."""
    messages = list(snapshot.provider_messages)
    found = [f"pairs: {one}" for one in unpaired(messages)]
    for api, body in ((CHAT, chat_body), (RESPONSES, responses_body)):
        made = body(ModelRequest(messages=messages), model_info(api))
        nothing = {"no messages", "no input", "only instructions"}  # a session in which nobody has said anything
        found += [f"{api}: {one}" for one in request_problems(made, api) if one not in nothing]
    return found


def look_once(path: Path, out: Path, draw: random.Random, *, watch: Callable[[str], None]) -> Outcome:
    """Does with a file what a user does.

    Args:
        path: the session, alone in its directory.
        out: a directory for what is written on purpose.
        draw: chooses among the commands.
        watch: told what is begun, for whoever waits.
    """
    outcome = Outcome()
    before = standing(path.parent)
    content = path.read_bytes()

    def done(what: str) -> None:
        outcome.looks.append(what)
        if standing(path.parent) != before or path.read_bytes() != content:
            outcome.faults.append(f"{what}: something was written")

    watch("open")
    known = _open(path, draw, outcome)
    done("open")
    commands = [draw.choice(FREQUENT)]
    if draw.random() < RARE:
        commands.append(draw.choice(LOOKS))
    for command in commands:
        arguments = [draw.choice(known or ["missing"]) if part == "ID" else part for part in command]
        arguments = [part.replace("FILE", str(path)).replace("OUT", str(out)) for part in arguments]
        name = " ".join(part for part in command if part.islower() or part.startswith("-"))
        watch(" ".join(arguments))
        refused, _, faults = call(arguments)
        outcome.errors += [] if refused is None else [refused]
        outcome.faults += faults
        done(name)
    return outcome


def _open(path: Path, draw: random.Random, outcome: Outcome) -> list[str]:
    """Opens and projects a file, and walks and searches it; the ids in it."""
    session: Session | None = None
    ids: list[str] = []
    with Caught() as caught:
        session = Session.open(path)
        ids = [entry.id for entry in session.entries]
        outcome.entries = len(ids)
        _walk(session)
        _project(session, draw, outcome)
    error = caught.error
    if session is None and isinstance(error, SessionFormatError):
        outcome.refused = type(error).__name__
        if str(path) not in str(error):
            outcome.faults.append(f"open: the error does not name the file: {error}")
    elif error is not None:
        outcome.faults.append(f"open: {_trace(error)}")
    # What the command line cannot be given as an argument.
    return [one for one in ids if one and "\0" not in one and one.isprintable() and not one.startswith("-")]


def _walk(session: Session) -> None:
    """The tree, as a tree view draws it: every entry is reached from the roots once, but for rings of parents."""
    assert all(0 <= problem.line <= len(session.entries) * 2 + 100_000 for problem in session.problems)
    reached: set[str] = set()
    waiting = session.children(None)
    while waiting:
        entry = waiting.pop()
        assert entry.id not in reached, "an entry is reached twice"
        reached.add(entry.id)
        waiting += session.children(entry.id)
        session.label(entry.id)
    for entry in session.entries:
        assert (session.depth(entry) < 0) != (entry.id in reached) or session.get(entry.id) is not entry, entry
    assert session.name is None or session.name.strip()


def _project(session: Session, draw: random.Random, outcome: Outcome) -> None:
    authority = ProjectionAuthority(session)
    leaves = [None, *draw.sample(list(session.entries), min(1, len(session.entries)))]
    for leaf in leaves:
        try:
            snapshot = authority.snapshot() if leaf is None else authority.at(leaf.id)
        except ParentCycle as error:
            outcome.blocked = type(error).__name__ if leaf is None else outcome.blocked
            if session.depth(session.require(error.entry_id)) >= 0:
                outcome.faults.append(f"open: no cycle at {error.entry_id}")
            continue
        assert snapshot.tokens >= 0
        assert 0 <= snapshot.usage.lower <= snapshot.usage.tokens <= snapshot.usage.upper, snapshot.usage
        where = "the leaf" if leaf is None else leaf.id
        outcome.faults += [f"open: the request at {where}: {fault}" for fault in faults_of_request(snapshot)]
    if outcome.blocked is None:
        history = History(session, authority.snapshot)
        found: Any = history.search("the", limit=5, scope="all")
        assert all("the" in one.item.text.casefold() for one in found)
