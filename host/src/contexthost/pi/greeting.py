"""Starting the Python side as the extension does, to see whether it answers, and what it has to say."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from contexthost.pi.protocol import Message, decode_message
from contexthost.session.entries import MalformedLine

__all__ = ["Greeting", "greet"]

_SECONDS: Final = 20.0
_END_SECONDS: Final = 2.0
_MOST_LINES: Final = 1000
"""Lines that may come before the answer: an edited extension may start anything, also what never ends."""
_MOST_BYTES: Final = 1 << 22
"""Bytes of one line."""
_MOST_TOLD: Final = 20
"""What is told is for a person to read."""
_TAIL: Final = 4000
"""Bytes of standard error that are kept; the reason is in the last line."""
_ID: Final = 1


@dataclass(frozen=True, slots=True)
class Greeting:
    """What came of it.

    ``answer`` is the one to ``initialize``, or ``problem`` says why there is none. ``told`` is what the user would be
    told in Pi: which plugins have failed, what is wrong in the settings.
    """

    answer: Mapping[str, Any] | None
    problem: str | None
    told: tuple[str, ...] = ()


async def greet(command: Sequence[str], protocol: int) -> Greeting:
    """Starts a command, greets what it starts as an extension of this protocol would, and ends it again."""
    if not command:
        return _failed("the extension names no command")
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_environment(),
            limit=_MOST_BYTES,
        )
    except (OSError, ValueError) as error:  # ValueError: there is a null character in it
        why = error.strerror if isinstance(error, OSError) else None
        return _failed(f"{command[0]} cannot be started: {why or error}")
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    told: list[str] = []
    errors = bytearray()
    answer: Message | None = None
    problem: str | None = None
    ending = False
    # All along: who cannot get rid of what it prints never comes to an answer.
    reading = asyncio.create_task(_keep_tail(process.stderr, errors))
    try:
        async with asyncio.timeout(_SECONDS):
            answer = await _ask(process, protocol, told)
            process.stdin.close()
            await _keep_tail(process.stdout, bytearray())  # it ends by itself, once it has said what it has to say
            if answer is None:
                await reading  # its last words
            ending = True
    except TimeoutError:
        problem = f"no answer within {_SECONDS:g} s"
    except (OSError, ValueError) as error:  # ValueError: a line without an end, or too many
        problem = str(error)
    finally:
        reading.cancel()
        if not ending and process.returncode is None:
            process.kill()
        # Not killed while it ends: `kill` may find that end first, and asyncio then complains that it did not.
        await _let_go(process)
    if answer is None:
        last = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["no answer"]
        return _failed(problem or last[0], told)
    if answer.error is not None:
        return _failed(answer.error[1], told)
    if not isinstance(answer.result, dict):
        return _failed("no answer", told)
    warnings = answer.result.get("warnings")
    told += [text for text in warnings if isinstance(text, str)] if isinstance(warnings, list) else []
    return Greeting(answer.result, None, tuple(told[:_MOST_TOLD]))


def _failed(problem: str, told: Sequence[str] = ()) -> Greeting:
    return Greeting(None, problem, tuple(told[:_MOST_TOLD]))


async def _ask(process: asyncio.subprocess.Process, protocol: int, told: list[str]) -> Message | None:
    """The answer to ``initialize``, None when the process closes its output before; what it tells goes to ``told``.

    A plugin that fails while it is loaded is told of before the answer.
    """
    assert process.stdin is not None
    assert process.stdout is not None
    greeting = {"jsonrpc": "2.0", "id": _ID, "method": "initialize", "params": {"event": {"protocol": protocol}}}
    process.stdin.write(json.dumps(greeting).encode() + b"\n")
    for _ in range(_MOST_LINES):
        line = await process.stdout.readline()
        if not line:
            return None
        with contextlib.suppress(MalformedLine):  # the extension ignores it, too
            message = decode_message(line)
            if message.method is None and message.id == _ID:
                return message
            if message.method == "ui/notify":
                told.append(str(message.event.get("message")))
    raise ValueError(f"no answer among the first {_MOST_LINES} lines")


async def _let_go(process: asyncio.subprocess.Process) -> None:
    """Waits for its end, but not for that of programs it has started, which may have its pipes: `Process.wait` does."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_END_SECONDS):
            while process.returncode is None:
                await asyncio.sleep(0.01)
    process._transport.close()  # type: ignore[attr-defined]  # else it is closed after its loop, with a traceback


async def _keep_tail(stream: asyncio.StreamReader, tail: bytearray) -> None:
    while chunk := await stream.read(1 << 16):
        tail += chunk
        del tail[:-_TAIL]


def _environment() -> dict[str, str]:
    """Ours as the extension passes it on: no other Python's home, and no empty or relative place to import from."""
    others = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
    places = [place for place in os.environ.get("PYTHONPATH", "").split(os.pathsep) if Path(place).is_absolute()]
    return {**others, "PYTHONPATH": os.pathsep.join(places)} if places else others
