"""The real Pi in RPC mode, run against a model server on loopback."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from support.pi import node, pi_home

Json = dict[str, Any]
EVENT_TIMEOUT = 60.0  # seconds; Pi's first event takes about 2, more on a busy machine


class PiRpc:
    """A running Pi: commands go in, events come out."""

    def __init__(self, process: subprocess.Popen[bytes], sessions: Path) -> None:
        self.sessions = sessions
        self.events: list[Json] = []
        self._process = process
        self._queue: queue.Queue[Json | None] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._queue.put(json.loads(line))
        self._queue.put(None)

    def send(self, command: str, **fields: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"type": command, **fields}).encode() + b"\n")
        self._process.stdin.flush()

    def wait_for(self, kind: str) -> Json:
        """The next event of that type; those before it are kept in `events`."""
        while True:
            try:
                event = self._queue.get(timeout=EVENT_TIMEOUT)
            except queue.Empty:
                pytest.fail(f"Pi sent no {kind} within {EVENT_TIMEOUT:g} s; it sent {self._kinds()}")
            if event is None:
                pytest.fail(f"Pi ended before {kind}; it sent {self._kinds()}")
            self.events.append(event)
            if event.get("type") == kind:
                return event

    def _kinds(self) -> list[str]:
        return [str(event.get("type")) for event in self.events]

    def prompt(self, text: str, **fields: Any) -> None:
        """Send a prompt and wait until Pi is idle again."""
        self.send("prompt", message=text, **fields)
        self.wait_for("agent_settled")

    def entries(self) -> list[Json]:
        """What is in the session file, header first."""
        (path,) = self.sessions.rglob("*.jsonl")
        return [json.loads(line) for line in path.read_bytes().split(b"\n") if line]

    def messages(self, role: str) -> list[Json]:
        """The stored messages of one role."""
        return [
            entry["message"]
            for entry in self.entries()
            if entry["type"] == "message" and entry["message"]["role"] == role
        ]


@contextmanager
def pi_rpc(
    scratch: Path, base_url: str, api: str, *, model: Mapping[str, Any] | None = None, settings: Json | None = None
) -> Iterator[PiRpc]:
    """Pi with one model, ``faux/faux-1``, behind `base_url`; `model` adds to what Pi is told of it."""
    agent, project, sessions = scratch / "agent", scratch / "project", scratch / "sessions"
    for directory in (agent, project, sessions):
        directory.mkdir()
    prices = {"input": 1, "output": 2, "cacheRead": 0.5, "cacheWrite": 0}
    entry = {"id": "faux-1", "contextWindow": 128000, "maxTokens": 1000, "cost": prices, **(model or {})}
    provider = {"baseUrl": base_url, "apiKey": "x", "api": api, "models": [entry]}
    (agent / "models.json").write_text(json.dumps({"providers": {"faux": provider}}))
    (agent / "settings.json").write_text(json.dumps(settings or {}))
    cli = pi_home() / "node_modules/@earendil-works/pi-coding-agent/dist/cli.js"
    command = [str(node()), str(cli), "--mode", "rpc", "--provider", "faux", "--model", "faux-1"]
    process = subprocess.Popen(
        [*command, "--session-dir", str(sessions)],
        cwd=project,
        env={**os.environ, "PI_CODING_AGENT_DIR": str(agent), "PI_OFFLINE": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    with process:
        rpc = PiRpc(process, sessions)
        try:
            yield rpc
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
            rpc.reader.join(20)  # it must have read all before the pipe is closed
