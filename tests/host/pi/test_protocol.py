"""The framing of the bridge: messages survive any cut, any text and any length, in both directions."""

from __future__ import annotations

import asyncio
import json
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from contexthost.pi.protocol import LineReader, Message, Peer, RemoteError, decode_message
from contexthost.session.entries import MalformedLine


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda line: b"\n" not in line and line.strip())), st.data())
def test_lines_come_out_whole_however_they_are_cut(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    reader = LineReader()
    found: list[bytes] = []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:size])
        stream = stream[size:]
    assert found == lines


def test_entries_stay_bytes_as_they_came() -> None:
    entry = b'{"type": "message", "id":"a",  "text":"\xe2\x80\xa8"}'
    line = b'{"jsonrpc":"2.0","method":"sync","params":{"sync":{"from":3,"leaf":"a","entries":[' + entry + b"]}}}"
    message = decode_message(line)
    assert message.sync is not None
    assert (message.sync.start, message.sync.leaf) == (3, "a")
    assert [bytes(raw) for raw in message.sync.entries] == [entry]


def test_lone_surrogates_cross_it() -> None:
    line = (
        b'{"method":"sync","params":{"sync":{"from":0,"entries":[{"id":"a","t":"\\ud800"}]},"event":{"x":"\\udfff"}}}'
    )
    message = decode_message(line)
    assert message.event == {"x": "\udfff"}
    assert message.sync is not None
    assert [bytes(raw) for raw in message.sync.entries] == [b'{"id":"a","t":"\\ud800"}']


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"1", b'{"method": 5}', b'{"params": {"sync": {"entries": 3}}}', b"\xff"]
)
def test_what_is_no_message_is_named(line: bytes) -> None:
    with pytest.raises(MalformedLine):
        decode_message(line)


class Ends:
    """A peer on one end of two pipes, and the bare pipes on the other."""

    def __init__(
        self,
        receive: Callable[[Message], None] = lambda message: None,
        *,
        ended: Callable[[], None] = lambda: None,
        sockets: bool = False,
    ) -> None:
        self.theirs, ours = os.pipe()
        if sockets:  # what Node gives its children
            read, self.send_fd = (end.detach() for end in socket.socketpair())
        else:
            read, self.send_fd = os.pipe()
        self._lines, self._unread = LineReader(), list[bytes]()
        self.over = asyncio.Event()
        self.peer = Peer(read, ours, receive=receive, closed=self.over.set, ended=ended)
        self.peer.start()

    def send(self, message: Any) -> None:
        data = message if isinstance(message, bytes) else json.dumps(message).encode()
        os.write(self.send_fd, data + b"\n")

    async def read(self) -> Any:
        while not self._unread:
            self._unread = self._lines.feed(await asyncio.to_thread(os.read, self.theirs, 65536))
        return json.loads(self._unread.pop(0))


def run(work: Callable[[], Any]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(20):
            await work()

    asyncio.run(limited())


def test_a_request_is_answered_and_an_error_raised() -> None:
    async def work() -> None:
        ends = Ends()
        first, second = ends.peer.request("a", {"n": 1}), ends.peer.request("b", {})
        assert await ends.read() == {"jsonrpc": "2.0", "id": 1, "method": "a", "params": {"event": {"n": 1}}}
        ends.send({"jsonrpc": "2.0", "id": 2, "error": {"code": -32002, "message": "no"}})
        ends.send(b"not JSON")  # reported, and harms nothing
        ends.send({"jsonrpc": "2.0", "id": 1, "result": "\U0001f600"})
        assert await first == "\U0001f600"
        with pytest.raises(RemoteError, match="no") as caught:
            await second
        assert caught.value.code == -32002

    run(work)


def test_requests_are_sent_in_the_order_in_which_they_are_made() -> None:
    async def work() -> None:
        ends = Ends()
        waiting = ends.peer.request("first", {})
        ends.peer.notify("second", {})
        assert (await ends.read())["method"] == "first"
        assert (await ends.read())["method"] == "second"
        ends.send({"id": 1, "result": None})
        await waiting

    run(work)


def test_a_wait_that_is_cancelled_is_told() -> None:
    async def work() -> None:
        ends = Ends()
        task = asyncio.create_task(ends.peer.request("a", {}))
        await ends.read()
        task.cancel()
        assert await ends.read() == {"jsonrpc": "2.0", "method": "cancel", "params": {"event": {"id": 1}}}

    run(work)


def test_the_end_of_the_other_side_ends_every_wait() -> None:
    async def work() -> None:
        ends = Ends()
        waiting = ends.peer.request("a", {})
        os.close(ends.send_fd)
        with pytest.raises(RemoteError, match="Pi has gone"):
            await waiting
        await ends.over.wait()
        with pytest.raises(RemoteError, match="Pi has gone"):
            await ends.peer.request("b", {})

    run(work)


@pytest.mark.parametrize(
    "way", ["pipe", "socket", "half of a socket", "pipe without POLLRDHUP", "socket without POLLRDHUP"]
)
def test_the_end_is_noticed_while_the_event_loop_is_blocked_and_what_came_before_is_still_taken(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "without" in way:  # as on macOS
        monkeypatch.delattr(select, "POLLRDHUP", raising=False)

    async def work() -> None:
        got: list[Message] = []
        noticed: list[bool] = []
        told = threading.Event()

        def ended() -> None:
            noticed.append(ends.over.is_set())
            told.set()

        ends = Ends(got.append, ended=ended, sockets="socket" in way)
        for number in range(3):
            ends.send({"method": f"hook/{number}", "id": number})
        assert not told.wait(0.3)  # what is unread is no end
        if way == "half of a socket":
            with socket.socket(fileno=os.dup(ends.send_fd)) as half:
                half.shutdown(socket.SHUT_WR)
        else:
            os.close(ends.send_fd)
        assert told.wait(10)  # nothing else runs in this loop meanwhile
        assert got == []
        await ends.over.wait()
        assert [message.id for message in got] == [0, 1, 2]
        assert noticed == [False]  # once, and not by the loop

    run(work)


def test_messages_longer_than_a_pipe_do_not_hold_up_the_event_loop() -> None:
    async def work() -> None:
        got: list[Message] = []
        ends = Ends(got.append)
        ends.peer.notify("long", {"text": "x" * 5_000_000})  # nobody reads it yet
        ends.send({"method": "hook/context", "id": 7, "params": {"state": {"idle": True}}})
        while not got:
            await asyncio.sleep(0.01)
        assert (got[0].method, got[0].id, got[0].state) == ("hook/context", 7, {"idle": True})
        assert len((await ends.read())["params"]["event"]["text"]) == 5_000_000

    run(work)


@given(st.lists(st.sampled_from([10, 1_000, 4_000, 5_000, 100_000]), min_size=1, max_size=60))
def test_messages_of_any_length_keep_their_order_while_nobody_reads(lengths: list[int]) -> None:
    async def work() -> None:
        ends = Ends()
        for number, length in enumerate(lengths):  # more than fits into the pipe; none of them may wait for a reader
            ends.peer.notify(str(number), {"text": "x" * length})
        for number, length in enumerate(lengths):
            message = await ends.read()
            assert (message["method"], len(message["params"]["event"]["text"])) == (str(number), length)

    run(work)
