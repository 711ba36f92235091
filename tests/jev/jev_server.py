"""A server on this machine that speaks Jev's protocol, and can do everything to a client that servers do."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

SECRET = "sk-test-0123456789-SECRET"  # what no output may hold

Probability = Callable[[str], Any]
"""Question name → what the server answers."""


def by_number(call: Callable[[int], float], result: Callable[[int], float]) -> Probability:
    """Answers by the call's number: `by_number(lambda n: …, lambda n: …)`."""

    def probability(name: str) -> float:
        kind, number = re.fullmatch(r"(call|result)_t(\d+)", name).groups()  # type: ignore[union-attr]  # else: fail
        return (call if kind == "call" else result)(int(number))

    return probability


@dataclass(frozen=True)
class Reply:
    """How one request is answered; without `body` with the answers, as the protocol has it."""

    status: int = 200
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0  # seconds before the first byte
    drip: float = 0.0  # seconds between the two halves of the body
    half: bool = False  # close in the middle of the body
    hang_up: bool = False  # close without any answer


@dataclass(frozen=True)
class Seen:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    raw: bytes


class JevServer:
    """Answers with `probability`; the first requests with `script`, one reply each."""

    def __init__(self) -> None:
        self.probability: Probability = lambda name: 1.0
        self.script: list[Reply] = []
        self.default = Reply()
        self.seen: list[Seen] = []
        self.at_once = 0
        self.most_at_once = 0
        self.model = "jev-1.13.0"
        self._lock = threading.Lock()
        self._http = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1/systemone"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def take(self, seen: Seen) -> Reply:
        with self._lock:
            self.seen.append(seen)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            return self.script.pop(0) if self.script else self.default

    def done(self) -> None:
        with self._lock:
            self.at_once -= 1

    def answer(self, request: dict[str, Any]) -> bytes:
        answers = {name: {"type": "noul", "noul": self.probability(name)} for name in request["questions"]}
        usage = {"input_tokens": 100, "output_tokens": 2 * len(answers)}
        return json.dumps({"model": self.model, "answers": answers, "usage": usage}).encode()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is part of the tests."""


def _handler(server: JevServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.path, headers, json.loads(raw), raw)
            reply = server.take(seen)
            try:
                self._send(reply, seen)
            finally:
                server.done()

        def _send(self, reply: Reply, seen: Seen) -> None:
            time.sleep(reply.delay)
            self.close_connection = True
            if reply.hang_up:
                return
            body = server.answer(seen.body) if reply.body is None else reply.body
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            middle = len(body) // 2
            self.wfile.write(body[:middle])
            self.wfile.flush()
            if reply.half:
                return
            time.sleep(reply.drip)
            self.wfile.write(body[middle:])

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    return Handler
