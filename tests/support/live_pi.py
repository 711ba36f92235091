"""The real Pi with contexthost installed in it, and a plugin of the test's own, against a model server on loopback.

Everything a run touches lies in one directory: Pi's agent directory, the project, the sessions, contexthost's settings
and state, and the plugin, which is a real package (with entry points) on ``PYTHONPATH``.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pytest

from support.model_server import ModelServer, Received
from support.pi import node, pi_home

Json = dict[str, Any]
TIMEOUT = 60.0  # seconds for one thing to happen; Pi's first event takes about 2, more on a busy machine
_extensions: dict[tuple[tuple[str, bytes], ...], bytes] = {}
"""What `contexthost pi install` wrote, by the plugins and settings that were there."""


def _shared(extension: bytes) -> Path:
    """A file with this content, whose path says so."""
    path = pi_home() / "extensions" / hashlib.sha256(extension).hexdigest()[:16] / "contexthost.ts"
    if not path.exists() or path.read_bytes() != extension:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(f".{os.getpid()}")
        new.write_bytes(extension)
        new.rename(path)
    return path


def _write(path: Path, text: str) -> None:
    """Writes a file that a Python side may be reading: it finds the old one or the new one whole."""
    new = path.with_name(f"{path.name}.new")
    new.write_text(text)
    new.rename(path)


class PiHome:
    """The directories that runs of Pi share."""

    def __init__(
        self,
        root: Path,
        server: ModelServer,
        *,
        window: int = 128_000,
        plugins: Sequence[str] = (),
        provider: str = "faux",
        api: str = "openai-completions",
        api_key: str = "x",
        **model: Any,
    ) -> None:
        """``plugins`` names those of the workspace that take part besides the test's own; the rest is for Pi."""
        installed = {point.name for point in importlib.metadata.entry_points(group="contexthost")}
        self._disabled = sorted(installed - set(plugins))
        self.root = root
        self.server = server
        self.agent, self.project, self.sessions = root / "agent", root / "project", root / "sessions"
        self.host, self.packages = root / "contexthost", root / "packages"
        for directory in (self.agent, self.project, self.sessions, self.host / "config", self.packages):
            directory.mkdir(parents=True)
        entry = {"id": "faux-1", "contextWindow": window, "maxTokens": 1000, "input": ["text", "image"], **model}
        self._model = (provider, str(entry["id"]))
        self._providers: Json = {}
        self.provider(provider, entry, api=api, apiKey=api_key)
        self.settings()
        self.host_settings()

    def provider(self, name: str, *models: Json, api: str = "openai-completions", **more: Any) -> None:
        """One more provider in ``models.json``, on the same server, or what is new of one."""
        self._providers[name] = {"baseUrl": self.server.base_url, "api": api, "models": list(models), **more}
        (self.agent / "models.json").write_text(json.dumps({"providers": self._providers}))

    def settings(self, **pi: Any) -> None:
        """Pi's own settings."""
        (self.agent / "settings.json").write_text(json.dumps(pi))

    def host_settings(self, *, pi: Json | None = None, **host: Any) -> None:
        """``host.json``. Unless a test says otherwise Pi waits longer than the usual 2 s for an answer, which a busy
        machine's pause may take."""
        settings = {"disabled": self._disabled, "pi": {"answerSeconds": 20, **(pi or {})}, **host}
        (self.host / "config" / "host.json").write_text(json.dumps(settings))

    @property
    def environment(self) -> dict[str, str]:
        """What Pi, and through it the Python side, is started with."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PI_", "CONTEXTHOST_"))}
        return {
            **kept,
            "PI_CODING_AGENT_DIR": str(self.agent),
            "PI_OFFLINE": "1",
            "NODE_COMPILE_CACHE": str(pi_home() / "compiled"),  # a fifth of a start goes into compiling Pi
            "CONTEXTHOST_HOME": str(self.host),
            "PYTHONPATH": str(self.packages),
        }

    def plugin(self, source: str, name: str = "probe") -> None:
        """Installs a plugin: a module with this source, known by its entry point."""
        module = f"contexthost_{name}"
        info = self.packages / f"{module}-1.0.dist-info"
        info.mkdir(exist_ok=True)
        _write(self.packages / f"{module}.py", textwrap.dedent(source))
        _write(info / "METADATA", f"Metadata-Version: 2.1\nName: contexthost-{name}\nVersion: 1.0\n")
        _write(info / "entry_points.txt", f"[contexthost]\n{name} = {module}\n")

    def probe(self, **control: Any) -> None:
        """Installs the plugin of `support.probe`, or tells it anew how to behave."""
        self.plugin(Path(__file__).with_name("probe.py").read_text())
        self.probe_data.mkdir(parents=True, exist_ok=True)
        _write(self.probe_data / "control.json", json.dumps(control))

    @property
    def probe_data(self) -> Path:
        """The data directory of that plugin."""
        return self.host / "data" / "plugins" / "probe"

    def seen(self, hook: str | None = None) -> list[Json]:
        """What that plugin saw: of one hook, or of all."""
        path = self.probe_data / "seen.jsonl"
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        found = [json.loads(line) for line in lines if line.endswith("\n")]  # the last may still be being written
        return [one for one in found if hook is None or one["hook"] == hook]

    def holding(self, secret: str) -> list[str]:
        """The files of all these directories that hold a secret: sessions, logs, settings, what Pi wrote to stderr."""
        files = [path for path in self.root.rglob("*") if path.is_file()]
        assert self.host / "state" / "pi-bridge.log" in files
        return [str(path) for path in files if secret.encode() in path.read_bytes()]

    def contexthost(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs the command line."""
        command = [sys.executable, "-m", "contexthost", *arguments]
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=check, timeout=TIMEOUT
        )

    def install(self) -> Path:
        """The extension, installed. What `contexthost pi install` made of the same plugins and settings it would make
        again, and Pi takes a second to compile it: in a new home that is a link to where it has been compiled."""
        path = self.agent / "extensions" / "contexthost.ts"
        given = [*self.packages.rglob("*"), *(self.host / "config").rglob("*")]
        files = [file for file in sorted(given) if file.is_file() and file.suffix != ".pyc"]
        key = tuple((str(file.relative_to(self.root)), file.read_bytes()) for file in files)
        if key in _extensions and not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.symlink_to(_shared(_extensions[key]))
        else:
            if path.is_symlink():
                path.unlink()  # other homes have the same file
            _extensions[key] = self.install_anew().read_bytes()
        return path

    def install_anew(self) -> Path:
        """``contexthost pi install``; the extension."""
        self.contexthost("pi", "install")
        return self.agent / "extensions" / "contexthost.ts"

    def command(self, mode: str, *arguments: str) -> list[str]:
        """Pi's command line."""
        cli = pi_home() / "node_modules/@earendil-works/pi-coding-agent/dist/cli.js"
        provider, model = self._model
        options = ["--mode", mode, "--provider", provider, "--model", model, "--session-dir", str(self.sessions)]
        return [str(node()), str(cli), *options, *arguments]

    def run(self, mode: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Pi in print (``text``) or JSON mode, to its end."""
        return subprocess.run(
            self.command(mode, *arguments),
            cwd=self.project,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )

    def rpc(self, *arguments: str) -> LivePi:
        """Pi in RPC mode; a context manager."""
        return LivePi(self, arguments)


class LivePi:
    """One running Pi in RPC mode: commands go in, events come out and are kept in `events`."""

    def __init__(self, home: PiHome, arguments: Sequence[str] = ()) -> None:
        self.home = home
        self.events: list[Json] = []
        self._answers: dict[str, Json] = {}
        self._seen = 0
        self._last_id = 0
        self._news: queue.Queue[None] = queue.Queue()
        with (home.root / "pi-stderr.txt").open("ab") as errors:
            self.process = subprocess.Popen(
                home.command("rpc", *arguments),
                cwd=home.project,
                env=home.environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                process_group=0,
            )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> LivePi:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends Pi as a client does: by closing its input."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail("Pi did not end within 20 s")
        finally:
            self._reader.join(5)
            assert self.process.stdout is not None
            self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # Pi was killed while it wrote this
            event = json.loads(line)
            if event.get("type") == "response" and "id" in event:
                self._answers[event["id"]] = event
            else:
                self.events.append(event)
            self._news.put(None)
        self._news.put(None)

    # Commands ------------------------------------------------------------------------------------------------------

    def send(self, command: str, **fields: Any) -> str:
        """Sends a command; its id."""
        self._last_id += 1
        number = f"c{self._last_id}"
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"id": number, "type": command, **fields}).encode() + b"\n")
        self.process.stdin.flush()
        return number

    def ask(self, command: str, **fields: Any) -> Json:
        """Sends a command and waits for its answer."""
        number = self.send(command, **fields)
        self.until(lambda: number in self._answers, f"the answer to {command}")
        return self._answers[number]

    def answered(self, number: str) -> Json | None:
        """The answer to a command that was sent, if it is there."""
        return self._answers.get(number)

    def prompt(self, text: str, **fields: Any) -> None:
        """Sends a prompt and waits until Pi has settled."""
        mark = self.mark()
        answer = self.ask("prompt", message=text, **fields)
        assert answer["success"], answer
        self.event("agent_settled", after=mark)

    def slash(self, text: str) -> str:
        """Runs a slash command; what it told."""
        mark = self.mark()
        answer = self.ask("prompt", message=text)
        assert answer["success"], answer
        return "\n".join(self.notes(after=mark))

    # What happened -------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        """A place in `events` to look from."""
        return len(self.events)

    def until(self, condition: Callable[[], bool], what: str, seconds: float = TIMEOUT) -> None:
        """Waits for something."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                kinds = [event.get("method") or event.get("type") for event in self.events[-30:]]
                stderr = (self.home.root / "pi-stderr.txt").read_text(errors="replace")[-1000:]
                told = f"errors {self.errors()}; notes {self.notes()}; {stderr}"
                pytest.fail(f"{what}: not within {seconds:g} s; last events {kinds}; {told}")
            if self.process.poll() is not None:
                self._reader.join(5)  # what Pi said last may not have been read yet
                if condition():
                    return
                pytest.fail(f"Pi ended before {what}: {(self.home.root / 'pi-stderr.txt').read_text()[-2000:]}")
            with contextlib.suppress(queue.Empty):
                self._news.get(timeout=0.05)

    def event(self, kind: str, *, after: int = 0, **fields: Any) -> Json:
        """The first event of a type (and with these fields) from a mark on."""

        def find() -> Json | None:
            for event in self.events[after:]:
                if event.get("type") == kind and all(event.get(key) == value for key, value in fields.items()):
                    return event
            return None

        self.until(lambda: find() is not None, f"event {kind}")
        found = find()
        assert found is not None
        return found

    def notes(self, *, after: int = 0) -> list[str]:
        """What was notified."""
        return [str(event.get("message")) for event in self.events[after:] if event.get("method") == "notify"]

    def note(self, part: str, *, after: int = 0) -> str:
        """Waits for a notification with this in it."""
        self.until(lambda: any(part in note for note in self.notes(after=after)), f"a note with {part!r}")
        return next(note for note in self.notes(after=after) if part in note)

    def errors(self) -> list[Json]:
        """What extensions were blamed for."""
        return [event for event in self.events if event.get("type") == "extension_error"]

    # The session ---------------------------------------------------------------------------------------------------

    @property
    def file(self) -> Path:
        """The session file that Pi writes now."""
        return Path(self.ask("get_state")["data"]["sessionFile"])

    def entries(self) -> list[Json]:
        """The entries of the session file, without the header."""
        return read_entries(self.file)

    def python_side(self) -> int | None:
        """The process id of the Python side; None when there is none."""
        return next(iter(python_sides(self.process.pid)), None)


HELPER = """
export default function (pi: any) {
  pi.registerCommand("go", { handler: async (id: string, ctx: any) => { await ctx.navigateTree(id.trim()); } });
  pi.registerCommand("again", { handler: async (_: string, ctx: any) => { await ctx.reload(); } });
  pi.registerCommand("leaf", { handler: async (_: string, ctx: any) => {
    ctx.ui.notify(`leaf: ${ctx.sessionManager.getEntries().length} ${ctx.sessionManager.getLeafId()}`);
  } });
}
"""


def helper(home: PiHome) -> list[str]:
    """An extension of the tests' own, for what RPC has no command for."""
    path = home.root / "helper.ts"
    path.write_text(HELPER)
    return ["-e", str(path)]


def check_mirror(pi: LivePi, window: int = 128_000) -> None:
    """Pi and Python (with the probe in it) have the same number of entries and the same leaf."""
    entries, leaf = pi.slash("/leaf").removeprefix("leaf: ").split()
    seen, wanted = pi.slash("/probe entries"), f"probe: {entries} entries, leaf {leaf}, {window}"
    assert seen == wanted, (seen, wanted)


def read_entries(path: Path) -> list[Json]:
    """The entries of a session file, without the header. What has no end yet is still being written."""
    _, *lines = path.read_bytes().split(b"\n")[:-1]
    return [json.loads(line) for line in lines if line]


def custom(entries: Sequence[Json], kind: str) -> list[Any]:
    """The data of the custom entries of a type."""
    return [entry.get("data") for entry in entries if entry["type"] == "custom" and entry["customType"] == kind]


def python_sides(pi: int) -> list[int]:
    """The Python sides that a Pi has started, by their command line."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True).stdout
    rows = [line.split(None, 2) for line in table.splitlines()]
    return [int(pid) for pid, parent, args in rows if int(parent) == pi and "contexthost pi serve" in args]


def is_alive(pid: int) -> bool:
    """Whether a process is there and is not a zombie."""
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def wait_gone(pid: int, seconds: float = 15.0) -> None:
    """Waits for a process to end; fails, and ends it, when it does not."""
    _wait_gone(lambda: is_alive(pid), lambda: os.kill(pid, signal.SIGKILL), f"process {pid} was left behind", seconds)


def wait_group_gone(group: int, seconds: float = 15.0) -> None:
    """Waits for the end of all processes of a group; fails, and ends them, when they do not end."""
    left = f"processes of the group {group} were left behind"
    _wait_gone(lambda: _group_is_there(group), lambda: os.killpg(group, signal.SIGKILL), left, seconds)


def _wait_gone(there: Callable[[], bool], kill: Callable[[], None], left: str, seconds: float) -> None:
    end = time.monotonic() + seconds
    while there():
        if time.monotonic() > end:
            kill()
            pytest.fail(left)
        time.sleep(0.05)


def change_extension(home: PiHome, old: str, new: str) -> None:
    """Changes the installed extension."""
    path = home.agent / "extensions" / "contexthost.ts"
    text = path.read_text()
    assert old in text
    path.unlink()  # other homes have the same file
    path.write_text(text.replace(old, new))


def at_start(home: PiHome, code: str) -> None:
    """What every Python that is started from now on does before anything else."""
    (home.packages / "sitecustomize.py").write_text(f"import os, time\n{code}\n")


def _group_is_there(group: int) -> bool:
    table = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in table.splitlines()]
    return any(int(row[0]) == group and not row[1].startswith("Z") for row in rows)


def kill_python(pi: LivePi) -> int:
    """Kills the Python side, and waits until its Pi knows (a process that its parent has not asked for stays in the
    table); its process id."""
    python = pi.python_side()
    assert python is not None
    os.kill(python, signal.SIGKILL)
    pi.until(lambda: not _is_listed(python), "the end of the Python side")
    pi.ask("get_state")  # by now Pi has told its user of it, too
    return python


def _is_listed(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def offered(request: Received) -> list[str]:
    """The names of the tools that a request offers."""
    return [tool["function"]["name"] for tool in request.body.get("tools", ())]


def texts(request: Received, role: str) -> list[str]:
    """The texts of one role in a request body."""
    found = []
    for message in request.body["messages"]:
        if message["role"] == role:
            content = message["content"]
            parts = [content] if isinstance(content, str) else [part.get("text", "") for part in content or ()]
            found.append("".join(parts))
    return found


@contextlib.contextmanager
def live_home(root: Path, script: Any = (), **options: Any) -> Iterator[PiHome]:
    """A home with a model server of its own."""
    with ModelServer(script) as server:
        yield PiHome(root, server, **options)
