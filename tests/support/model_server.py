"""A model provider on loopback: a real HTTP server that streams Chat Completions and Responses as scripted.

Tests drive our own clients and the real Pi against it. Every request is recorded; what is wrong with its body, by the
rules of `provider_rules`, is in `Received.problems`. An `Answer` may also go wrong in the ways in which providers do.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final

from support.provider_rules import request_problems

Json = dict[str, Any]
CHAT: Final = "openai-completions"
RESPONSES: Final = "openai-responses"
_PATHS: Final = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/backend-api/codex/responses": RESPONSES,
}
WAIT_SECONDS = 30.0  # for a test that holds an answer back; a hanging test must end


@dataclass(frozen=True)
class Call:
    """A tool call; `arguments` as a text is sent as it is."""

    name: str
    arguments: Json | str = field(default_factory=dict)
    id: str = "call_1"

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One answer. Usage is (input tokens, of these cached, output tokens, of these thinking)."""

    text: str = ""
    thinking: str = ""
    calls: Sequence[Call] = ()
    usage: tuple[int, int, int, int] | None = (100, 20, 10, 3)
    finish: str = "stop"  # or "length"; calls finish as calls do
    pieces: int = 3  # of the text, of the thinking and of each call's arguments
    # What goes wrong:
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str | None = None  # sent instead of a stream, as it is
    events: Sequence[Json | str] | None = None  # sent instead of the answer's own; texts are sent as data as they are
    line_end: str = "\n"
    write_bytes: int = 0  # bytes in each write; 0 sends each event whole
    close_after: int | None = None  # events, then the connection breaks off
    hold_after: int | None = None  # events, then wait for `ModelServer.release`
    delay_seconds: float = 0.0  # before the headers


@dataclass(frozen=True)
class Received:
    """One request: the protocol, the headers (names in lower case), the decoded body, what is wrong with it."""

    api: str
    headers: Mapping[str, str]
    body: Json
    problems: Sequence[str]
    port: int = 0  # the client's: the same for requests over the same connection
    path: str = ""


def say(text: str, **more: Any) -> Answer:
    return Answer(text=text, **more)


def call(name: str, arguments: Json | str, call_id: str = "call_1", **more: Any) -> Answer:
    return Answer(calls=(Call(name, arguments, call_id),), **more)


def refuse(status: int, message: str = "no", *, headers: Mapping[str, str] | None = None, **error: Any) -> Answer:
    """A refusal with an error object as OpenAI sends it."""
    body = json.dumps({"error": {"message": message, "type": "test_error", **error}})
    return Answer(status=status, headers={"content-type": "application/json", **(headers or {})}, body=body)


Script = Iterable[Answer] | Callable[[Received], Answer]


class ModelServer:
    """Serves the answers in order, or what a function makes of each request. A context manager.

    `reached` is set when an answer is held back; `release()` lets it go on. A request beyond the script gets status
    400 and is in `surplus`.
    """

    def __init__(self, script: Script = ()) -> None:
        self._make = script if callable(script) else None
        self._left = [] if callable(script) else list(script)
        self.requests: list[Received] = []
        self.surplus: list[Received] = []
        self.reached = threading.Event()
        self._released = False
        self._held: list[threading.Event] = []
        self._lock = threading.Lock()
        server = self

        class Handler(_Handler):
            owner = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def script(self, *answers: Answer) -> None:
        """More answers, after those that are left."""
        with self._lock:
            self._left += answers

    def release(self) -> None:
        """Lets what is held back go on, and all that comes."""
        self._let_go(released=True)

    def rearm(self) -> None:
        """Lets later answers be held back again."""
        with self._lock:
            self.reached.clear()
            self._released = False

    def release_once(self) -> None:
        """Lets what is held back go on; what comes is held back, and `reached` tells of it."""
        self._let_go(released=False)

    def _let_go(self, *, released: bool) -> None:
        with self._lock:  # before any of them goes on: the next one may be there at once
            self._released = released
            if not released:
                self.reached.clear()
            held, self._held = self._held, []
        for one in held:
            one.set()

    @property
    def problems(self) -> list[str]:
        """What was wrong with the requests so far."""
        return [f"request {number}: {text}" for number, one in enumerate(self.requests, 1) for text in one.problems]

    def __enter__(self) -> ModelServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def take(self, received: Received) -> Answer:
        """The answer to a request, which is recorded."""
        with self._lock:
            self.requests.append(received)
            if self._make is not None:
                return self._make(received)
            if self._left:
                return self._left.pop(0)
            self.surplus.append(received)
        return refuse(400, "the script of the test server has run out")

    @property
    def serial(self) -> str:
        """What makes the ids of an answer its own: nothing for the first."""
        return "" if len(self.requests) == 1 else f"{len(self.requests)}_"

    def hold(self) -> None:
        mine = threading.Event()
        with self._lock:
            self.reached.set()
            if self._released:
                return
            self._held.append(mine)
        mine.wait(WAIT_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    """Speaks HTTP/1.1 with chunks, so that a stream which breaks off can be told from one that ends."""

    protocol_version = "HTTP/1.1"
    owner: ModelServer

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("content-length", 0)))
        api = _PATHS.get(self.path)
        if api is None:
            self.send_error(404)
            return
        body = json.loads(raw)
        headers = {name.lower(): value for name, value in self.headers.items()}
        problems = request_problems(body, api)
        answer = self.owner.take(Received(api, headers, body, problems, self.client_address[1], self.path))
        try:
            self._send(answer, api, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # the client has gone: an abort

    def _send(self, answer: Answer, api: str, body: Json) -> None:
        time.sleep(answer.delay_seconds)
        self.send_response(answer.status)
        headers = {"content-type": "text/event-stream", **answer.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        if answer.body is not None:
            data = answer.body.encode()
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            return
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        for number, event in enumerate(stream(answer, api, body, self.owner.serial)):
            if number == answer.hold_after:
                self.owner.hold()
            if number == answer.close_after:
                self.close_connection = True
                return
            size = answer.write_bytes or len(event)
            for start in range(0, len(event), size):
                piece = event[start : start + size]
                self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read the requests, not a log."""


# The streams -------------------------------------------------------------------------------------------------------


def stream(answer: Answer, api: str, body: Json, serial: str = "") -> list[bytes]:
    """The events of an answer, as bytes."""
    events: Sequence[Json | str]
    if answer.events is not None:
        events = answer.events
    elif api == CHAT:
        events = [*chat_events(answer, str(body.get("model"))), "[DONE]"]
    else:
        events = responses_events(answer, serial)
    return [_encode(event, answer.line_end, named=api == RESPONSES) for event in events]


def _encode(event: Json | str, line_end: str, *, named: bool) -> bytes:
    data = event if isinstance(event, str) else json.dumps(event, ensure_ascii=False)
    name = f"event: {event['type']}{line_end}" if named and isinstance(event, dict) and "type" in event else ""
    return f"{name}data: {data}{line_end}{line_end}".encode("utf-8", "surrogatepass")


def _pieces(text: str, count: int) -> list[str]:
    size = max(1, -(-len(text) // count))
    return [text[start : start + size] for start in range(0, len(text), size)]


def chat_events(answer: Answer, model: str) -> list[Json]:
    def chunk(delta: Json, finish: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": model, "choices": [choice]}

    events = [chunk({"role": "assistant", "content": ""})]
    events += [chunk({"reasoning_content": piece}) for piece in _pieces(answer.thinking, answer.pieces)]
    events += [chunk({"content": piece}) for piece in _pieces(answer.text, answer.pieces)]
    for index, one in enumerate(answer.calls):
        head = {"index": index, "id": one.id, "type": "function", "function": {"name": one.name, "arguments": ""}}
        events.append(chunk({"tool_calls": [head]}))
        for piece in _pieces(one.text, answer.pieces):
            events.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}))
    finish = "tool_calls" if answer.calls and answer.finish == "stop" else answer.finish
    events.append(chunk({}, finish))
    if answer.usage is not None:
        sent, cached, output, thought = answer.usage
        events.append(
            {
                "id": "chatcmpl-1",
                "model": model,
                "choices": [],
                "usage": {
                    "prompt_tokens": sent,
                    "completion_tokens": output,
                    "total_tokens": sent + output,
                    "prompt_tokens_details": {"cached_tokens": cached},
                    "completion_tokens_details": {"reasoning_tokens": thought},
                },
            }
        )
    return events


def responses_events(answer: Answer, serial: str = "") -> list[Json]:
    events: list[Json] = [{"type": "response.created", "response": {"id": f"resp_{serial}1", "status": "in_progress"}}]
    output: list[Json] = []

    def item(begun: Json, deltas: list[Json], done: Json) -> None:
        index = len(output)
        events.append({"type": "response.output_item.added", "output_index": index, "item": begun})
        events.extend({"output_index": index, "item_id": begun["id"], **delta} for delta in deltas)
        events.append({"type": "response.output_item.done", "output_index": index, "item": done})
        output.append(done)

    if answer.thinking:
        base: Json = {"type": "reasoning", "id": f"rs_{serial}1"}
        deltas: list[Json] = [
            {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": piece}
            for piece in _pieces(answer.thinking, answer.pieces)
        ]
        deltas.append({"type": "response.reasoning_summary_part.done", "summary_index": 0})
        summary = [{"type": "summary_text", "text": answer.thinking}]
        item({**base, "summary": []}, deltas, {**base, "summary": summary, "encrypted_content": "sealed"})
    if answer.text:
        base = {"type": "message", "id": f"msg_{serial}1", "role": "assistant"}
        parts = [{"type": "output_text", "text": answer.text, "annotations": []}]
        deltas = [
            {"type": "response.output_text.delta", "content_index": 0, "delta": piece}
            for piece in _pieces(answer.text, answer.pieces)
        ]
        begun = {**base, "status": "in_progress", "content": []}
        item(begun, deltas, {**base, "status": "completed", "content": parts})
    for number, one in enumerate(answer.calls, 1):
        base = {"type": "function_call", "id": f"fc_{serial}{number}", "call_id": one.id, "name": one.name}
        deltas = [
            {"type": "response.function_call_arguments.delta", "delta": piece}
            for piece in _pieces(one.text, answer.pieces)
        ]
        deltas.append({"type": "response.function_call_arguments.done", "arguments": one.text})
        item({**base, "arguments": ""}, deltas, {**base, "arguments": one.text, "status": "completed"})
    response: Json = {"id": f"resp_{serial}1", "status": "completed", "output": output}
    if answer.finish == "length":
        response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    if answer.usage is not None:
        sent, cached, made, thought = answer.usage
        response["usage"] = {
            "input_tokens": sent,
            "input_tokens_details": {"cached_tokens": cached},
            "output_tokens": made,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": sent + made,
        }
    events.append({"type": f"response.{response['status']}", "response": response})
    return events
