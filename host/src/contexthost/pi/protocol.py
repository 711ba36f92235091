"""JSON-RPC 2.0 over two pipes: one message a line, split on LF bytes; requests, notifications and answers both ways.

What comes is read on the event loop, because handing it over from another thread costs more than most messages take.
A Pi that does not read for a while does not stop the loop: a thread writes what finds no room. Another thread waits for
the end of Pi, which is noticed in any case, also while a plugin blocks the loop.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import select
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from contexthost.errors import ContexthostError
from contexthost.session.entries import MalformedLine, decode_json, encode_json

__all__ = ["PROTOCOL_VERSION", "LineReader", "Message", "Peer", "RemoteError", "Sync", "decode_message"]

PROTOCOL_VERSION: Final = 1
"""Grows with every change that an extension or a Python side of the version before would misunderstand."""

INVALID: Final = -32602
METHOD_NOT_FOUND: Final = -32601
INTERNAL: Final = -32603
CANCELLED: Final = -32800
"""The other side has withdrawn the request (the code that language servers use)."""
VERSION_MISMATCH: Final = -32001
UNSUPPORTED: Final = -32002
NOTHING_TO_COMPACT: Final = -32003
FAILED: Final = -32004

_CHUNK: Final = 1 << 20

_UNREAD_SECONDS: Final = 0.2
"""How often the thread that waits for the end looks, while there is something to read and it cannot wait for the end
alone."""

_log = logging.getLogger(__name__)


class RemoteError(ContexthostError):
    """The other side answered a request with an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


class Sync(msgspec.Struct, frozen=True, rename={"start": "from"}):
    """What happened to the session since the last message: entries in Pi's order, and where the branch ends.

    ``start`` is the number of entries sent before these; ``entries`` are whole lines of the session file.
    """

    start: int
    leaf: str | None = None
    entries: list[msgspec.Raw] = []


class _Params(msgspec.Struct):
    sync: Sync | None = None
    state: dict[str, Any] | None = None
    event: dict[str, Any] = {}


class _Error(msgspec.Struct):
    code: int = INTERNAL
    message: str = ""


class _Envelope(msgspec.Struct):
    method: str | None = None
    id: int | str | None = None
    params: _Params | None = None
    result: Any = None
    error: _Error | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One decoded message: a request (method and id), a notification (method), or an answer (id alone)."""

    method: str | None = None
    id: int | str | None = None
    sync: Sync | None = None
    state: Mapping[str, Any] | None = None
    event: Mapping[str, Any] = field(default_factory=dict)
    result: Any = None
    error: tuple[int, str] | None = None


_decode = msgspec.json.Decoder(_Envelope).decode


def decode_message(line: bytes) -> Message:
    """The message on one line.

    Raises:
        MalformedLine: not JSON, or not a message.
    """
    try:
        envelope = _decode(line)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        # Lone surrogates are escapes that the fast decoder refuses; Pi's messages may hold them.
        envelope = _decode_slowly(line)
    params = envelope.params or _Params()
    error = (envelope.error.code, envelope.error.message) if envelope.error is not None else None
    return Message(envelope.method, envelope.id, params.sync, params.state, params.event, envelope.result, error)


def _decode_slowly(line: bytes) -> _Envelope:
    value = decode_json(line)
    if not isinstance(value, dict):
        raise MalformedLine("not an object")
    params = value.get("params")
    sync = params.get("sync") if isinstance(params, dict) else None
    if isinstance(sync, dict) and isinstance(sync.get("entries"), list):
        sync["entries"] = [msgspec.Raw(encode_json(entry)) for entry in sync["entries"]]
    try:
        return msgspec.convert(value, _Envelope)
    except msgspec.ValidationError as error:
        raise MalformedLine(str(error)) from None


class LineReader:
    """Cuts a stream of bytes into lines at LF, however it arrives; a line of any length costs each byte once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk completes, without their LF; empty lines are left out."""
        *ended, rest = chunk.split(b"\n")
        if ended:
            ended[0] = b"".join([*self._parts, ended[0]])
            self._parts = []
        if rest:
            self._parts.append(rest)
        return [line for line in ended if line.strip()]


class Peer:
    """One end of the connection.

    ``receive`` is called on the event loop's thread for every request and notification, in order of arrival; it must
    neither block nor raise. ``closed`` is called once, there too, when the other side has gone and all that it sent has
    been taken; ``ended`` once, at the same moment or before, as a rule on a thread that a blocked loop cannot hold up.

    The loop must be able to watch ``read_fd``: with a `selectors.PollSelector` any file will do.
    """

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        receive: Callable[[Message], None],
        closed: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self._read_fd = read_fd
        self._write_fd = write_fd
        self._receive = receive
        self._closed = closed
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._gone = False
        self._lines = LineReader()
        self._telling_end = threading.Lock()  # is never released: whoever gets it tells of the end
        self._writer = threading.Thread(target=self._write_all, name="bridge-write", daemon=True)
        self._writing = threading.Lock()
        self._backlog = 0  # lines that the writing thread has not written yet
        self._room = select.poll()
        self._room.register(write_fd, select.POLLOUT)

    def start(self) -> None:
        """Begins to read, and starts both threads."""
        self._loop.add_reader(self._read_fd, self._read)
        threading.Thread(target=self._wait_for_end, name="bridge-hang-up", daemon=True).start()
        self._writer.start()

    def notify(self, method: str, event: Mapping[str, Any]) -> None:
        """Sends a notification."""
        self._send({"jsonrpc": "2.0", "method": method, "params": {"event": event}})

    def request(self, method: str, event: Mapping[str, Any]) -> Coroutine[Any, Any, Any]:
        """Sends a request, now, and gives what waits for the answer; a cancelled wait is told to the other side.

        Waiting raises RemoteError when the answer is an error or the other side has gone.
        """
        self._last_id += 1
        number = self._last_id
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._gone:
            future.set_exception(RemoteError(FAILED, "Pi has gone"))
        self._waiting[number] = future
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": {"event": event}})
        return self._wait(number, future)

    async def _wait(self, number: int, future: asyncio.Future[Any]) -> Any:
        try:
            return await future
        except asyncio.CancelledError:
            self.notify("cancel", {"id": number})
            raise
        finally:
            self._waiting.pop(number, None)

    def answer(self, number: int | str, result: Any) -> None:
        """Answers a request."""
        self._send({"jsonrpc": "2.0", "id": number, "result": result})

    def refuse(self, number: int | str, code: int, message: str) -> None:
        """Answers a request with an error."""
        self._send({"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}})

    def finish(self, seconds: float) -> None:
        """Waits until everything sent so far is written, but not longer than so many seconds."""
        self._outgoing.put(None)
        self._writer.join(seconds)

    def _send(self, message: Mapping[str, Any]) -> None:
        if self._gone:
            return
        line = _encode(message) + b"\n"
        with self._writing:
            # Handing a line to the thread costs a change of threads, which is more than the rest of most answers; so
            # what fits into the pipe is written here.
            if self._backlog == 0 and len(line) <= select.PIPE_BUF and self._room.poll(0):
                self._write(line)
            else:
                self._backlog += 1
                self._outgoing.put(line)

    def _write_all(self) -> None:
        while (line := self._outgoing.get()) is not None:
            if not self._write(line):
                return
            with self._writing:
                self._backlog -= 1

    def _write(self, line: bytes) -> bool:
        """Whether it could be written: Pi may have gone, and the reading side says so."""
        view = memoryview(line)
        try:
            while view:
                view = view[os.write(self._write_fd, view) :]
        except OSError:
            return False
        return True

    def _read(self) -> None:
        try:
            chunk = os.read(self._read_fd, _CHUNK)
        except OSError:
            chunk = b""
        if not chunk:
            self._loop.remove_reader(self._read_fd)
            self._tell_end()
            self._end()
            return
        for line in self._lines.feed(chunk):
            try:
                message = decode_message(line)
            except MalformedLine as error:
                _log.error("a message of %d bytes from Pi cannot be read: %s", len(line), error)
                continue
            self._take(message)

    def _wait_for_end(self) -> None:
        """Returns when nobody can write any more. What was written before may still have to be read."""
        hang_up = select.poll()
        # Linux tells of half-closed sockets by POLLRDHUP. Where there is none, who does not wait for data may not be
        # told of the end either: then this thread wakes up for data, too, and lets the loop have it.
        hang_up.register(self._read_fd, getattr(select, "POLLRDHUP", select.POLLIN))
        while not any(seen & ~select.POLLIN for _, seen in hang_up.poll()):
            time.sleep(_UNREAD_SECONDS)
        self._tell_end()

    def _tell_end(self) -> None:
        if self._telling_end.acquire(blocking=False):
            self._ended()

    def _take(self, message: Message) -> None:
        if message.method is not None:
            self._receive(message)
            return
        future = self._waiting.get(message.id) if isinstance(message.id, int) else None
        if future is None or future.done():
            return
        if message.error is not None:
            future.set_exception(RemoteError(*message.error))
        else:
            future.set_result(message.result)

    def _end(self) -> None:
        self._gone = True
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(RemoteError(FAILED, "Pi has gone"))
        self._closed()


def _encode(message: Mapping[str, Any]) -> bytes:
    try:
        return encode_json(message)
    except ContexthostError:
        # A plugin's value that is not JSON must not cost the message: what it is stands in its place. NaN, which this
        # writes and is no JSON either, becomes null.
        return encode_json(json.loads(json.dumps(message, default=repr)))
