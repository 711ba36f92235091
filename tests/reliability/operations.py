"""Every way in which the product writes, as a command to run in a place that is made ready for it, and what must be
true of that place whenever the command was stopped."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contexthost.diagnosis import examine
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from reliability.running import Place
from reliability.writers import ROOT
from support.builder import SessionBuilder, tool_call, usage_of

__all__ = ["NOT_FILES", "OPERATIONS", "ROTATION", "Operation", "check_place", "litter", "made_ready", "whole"]

SETTINGS: Final[Mapping[str, Any]] = {
    "host": {"compaction": {"keepRecentTokens": 400}},
    "relay": {"gitTimeoutMs": 0},
    "masking": {
        "mask": {"triggerTokens": 100, "targetTokens": 10, "minClearTokens": 10, "keepRecentTurns": 1,
                 "minEntryTokens": 20},
    },
}  # fmt: skip
TEMPORARY: Final = re.compile(r"\.(.+)\.contexthost-[a-z0-9_]{8}\.tmp")
"""The names of files that are written under another name first."""

NOT_FILES: Final[Mapping[str, str]] = {
    "contexthost.cli:main": "opens /dev/null in the place of an output that nobody reads any more",
    "contexthost.models.responses:_ResponsesReader.feed": "replaces what it has read of an answer in memory",
    "contexthost.models.responses:_ResponsesReader._end_item": "as above",
    "contexthost.pi.protocol:Peer._write": "writes to Pi, through a pipe; test_bridge.py kills both ends",
    "contexthost_relay.cli:recall": "asks where the data directory is, and does not make it",
    "contexthost.pi.server:_PrivateLog": "a class; what it writes by is `_open`",
}
"""What looks like a function that changes files and is none."""

ROTATION: Final = "logging.handlers:RotatingFileHandler.doRollover"
"""The standard library's, by which the bridge's log begins anew."""


@dataclass(frozen=True)
class Operation:
    """A command that writes.

    ``arguments`` are formatted with ``s`` (the session, in the working directory) and ``url`` (a model on loopback);
    ``extra`` makes the place ready for it.
    """

    name: str
    arguments: tuple[str, ...]
    uncertain: str | None = None  # a file that is there or not after a kill, from the place's root
    done: str = ""  # what it says when there is nothing left to do, if that is an error
    extra: Callable[[Place], None] = lambda place: None
    stdin: str = ""
    session: str = "work/s.jsonl"

    def command(self, url: str) -> list[str]:
        """The arguments for the command line."""
        return [one.format(s="s.jsonl", url=url) for one in self.arguments]


_LINES: Final = "Hello.\nAnd on.\n"
_MODEL: Final = ("--base-url", "{url}", "--model", "faux-1")


def _unanswered(version: int) -> Callable[[Place], None]:
    """A session with a call that nobody answered, which doctor repairs."""

    def prepare(place: Place) -> None:
        build = some_session(version)
        build.assistant("one moment", calls=[tool_call("lost", "read", {"path": "x"})])
        build.user("and?")
        build.write(place.work / "s.jsonl")

    return prepare


def _installed(place: Place) -> None:
    """An extension as an earlier version would have written it, which is replaced."""
    path = place.agent / "extensions" / "contexthost.ts"
    path.parent.mkdir(parents=True)
    old = (ROOT / "host/src/contexthost/pi/extension.ts").read_bytes()
    path.write_bytes(old + b"// contexthost-digest: " + hashlib.sha256(old).hexdigest().encode() + b"\n")


def _page(place: Place) -> None:
    (place.work / "page.html").write_text("<!doctype html><p>mine</p></html>\n")


def _full_log(place: Place) -> None:
    (place.home / "state").mkdir(exist_ok=True)
    (place.home / "state" / "pi-bridge.log").write_bytes(b"an earlier line\n" * 62_500)


def _some_gateways(place: Place) -> None:
    path = place.home / "data" / "plugins" / "codex_native" / "unsupported.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({f"session-{number}": {"0" * 16: "404"} for number in range(200)}))


OPERATIONS: Final = (
    Operation("append", ("mask", "{s}")),
    Operation("migrate", ("doctor", "{s}", "--repair", "--yes"), extra=_unanswered(1)),
    Operation("repair", ("doctor", "{s}", "--repair", "--yes"), extra=_unanswered(3)),
    Operation("chat in a new session", ("chat", "new.jsonl", *_MODEL), stdin=_LINES, session="work/new.jsonl"),
    Operation("chat that goes on", ("chat", "./{s}", *_MODEL), stdin=_LINES),
    Operation("compact", ("compact", "{s}", *_MODEL), done="nothing to compact"),
    Operation("relay", ("relay", "{s}"), done="nothing to relay", uncertain="home/data/plugins/relay/log.jsonl"),
    Operation("a relay's note goes", ("drop-note", "{s}"), uncertain="home/data/plugins/relay/session-1/1.md"),
    Operation("rescue", ("doctor", "{s}", "--rescue", "rescued.jsonl"), extra=_unanswered(3), done="exists already"),
    Operation("page", ("context", "{s}", "--html", "page.html"), done="exists already"),
    Operation("page over another", ("context", "{s}", "--html", "page.html", "--force"), extra=_page),
    Operation("demo", ("demo", "--directory", "demo"), done="exists already"),
    Operation("settings", ("config", "init", "host", "--force")),
    Operation("install into Pi", ("pi", "install")),
    Operation("install over an older one", ("pi", "install"), extra=_installed),
    Operation("uninstall", ("pi", "uninstall"), extra=_installed),
    Operation("the bridge's log", ("pi", "serve")),
    Operation("the bridge's log, when it is full", ("pi", "serve"), extra=_full_log),
    Operation("which gateways cannot compact", ("remember-gateway", "{s}"), extra=_some_gateways),
)


def some_session(version: int = 3) -> SessionBuilder:
    """Eight turns with a call each: enough to mask, to relay and to compact."""
    build = SessionBuilder(version=version)
    for turn in range(8):
        build.user(f"request {turn}: look at the file")
        build.assistant(f"I look. {'because ' * 30}", calls=[tool_call(f"call_{turn}", "read", {"path": f"f{turn}"})])
        build.tool_result(f"call_{turn}", f"line {turn} of the file\n" * 40)
        build.assistant(f"That was file {turn}.", usage=usage_of(400 * (turn + 1)))
    return build


def made_ready(operation: Operation, root: Path) -> Place:
    """A place for an operation: settings, a session, and what else it needs."""
    place = Place(root)
    for directory in (place.home / "config", place.agent, place.work):
        directory.mkdir(parents=True)
    for name, values in SETTINGS.items():
        (place.home / "config" / f"{name}.json").write_text(json.dumps(values))
    some_session().write(place.work / "s.jsonl")
    operation.extra(place)
    return place


def litter(place: Place) -> list[Path]:
    """The files that were being written under another name when a process was killed."""
    return [path for path in place.root.rglob(".*") if TEMPORARY.fullmatch(path.name)]


def check_place(operation: Operation, place: Place, before: Mapping[str, bytes], after: Mapping[str, bytes]) -> None:
    """What holds however the command ended: sessions grew by whole lines and can be opened and mended, every other
    file is the old one or the new one, and nothing else is there but files with a temporary name.

    ``before`` are the files before the command, ``after`` those that it leaves when nothing gets in its way.
    """
    names = {str(path.relative_to(place.root)) for path in litter(place)}
    now = place.files()
    new = set(now) - names - {*before, *after, operation.uncertain}
    assert new == set()
    for name, content in now.items():
        path = place.root / name
        if name in names or content == before.get(name):
            continue
        if name.endswith(".bak"):
            assert content == before[name.removesuffix(".v1.bak")]
        elif name.startswith("work/") and name.endswith(".jsonl"):
            _check_session(path, before.get(name))
        else:
            assert whole(path), f"{name}: {content[-200:]!r}"
    for name in set(before) - set(now):  # removed, or renamed by the log when it is full
        assert name not in after or name.endswith("pi-bridge.log"), name


def _check_session(path: Path, before: bytes | None) -> None:
    content = path.read_bytes()
    old = path.with_name(f"{path.name}.v1.bak")
    if before is not None and not content.startswith(before):
        assert old.read_bytes() == before  # migrated: the original lies beside it
    session = Session.open(path)
    # One write was cut off at most, in its last line; later appends begin below it.
    assert len(session.problems) <= 1
    assert {problem.kind for problem in session.problems} <= {"torn-line", "malformed-line"}
    if before is not None:
        assert [entry.id for entry in session.branch()] == [entry.id for entry in session.entries]
    assert all(problem.mend == "append" for problem in examine(ProjectionAuthority(session)).problems)


def whole(path: Path) -> bool:
    """Whether a file is all that it was meant to be, by its kind."""
    text = path.read_text("utf-8")
    if path.suffix == ".json":
        return isinstance(json.loads(text), dict)
    if path.suffix == ".jsonl":
        return sum(not is_object(line) for line in text.split("\n")[:-1]) <= 1  # one write was cut off, at most
    if path.suffix in (".log", ".1"):
        return text == "" or re.match(r"\d|an earlier line\n", text) is not None
    if path.suffix == ".ts":
        body, _, digest = text.rpartition("// contexthost-digest: ")
        return hashlib.sha256(body.encode()).hexdigest() + "\n" == digest
    if path.suffix == ".html":
        return text.rstrip().endswith("</html>")
    if path.suffix == ".md":
        return text.startswith("# Relay note 1\n") and text.endswith("\n")
    raise AssertionError(f"what is {path}?")


def is_object(line: str) -> bool:
    """Whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False
