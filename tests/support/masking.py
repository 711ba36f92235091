"""Contexts for the masking tests: small sessions in memory, counted so that every figure can be worked out by hand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Coroutine
from typing import Any, cast

from contexthost.compaction import CompactionSettings
from contexthost.context import Context, NotifyLevel
from contexthost.errors import Unsupported
from contexthost.projection import ProjectionAuthority
from contexthost.session import Entry, Session
from contexthost_masking.settings import MaskSettings
from support.builder import SessionBuilder, tool_call, usage_of

WINDOW = 100_000


class Characters:
    """A counter for which every character is one token."""

    def count(self, text: str) -> int:
        return len(text)


def project(build: SessionBuilder, *, window: int = WINDOW) -> ProjectionAuthority:
    """The projection of what was built, in memory, one token a character."""
    entries = [json.loads(line) for line in build.bytes().splitlines()[1:]]
    return ProjectionAuthority(Session.in_memory(entries=entries), counter=Characters(), window=window)


def masks(**changes: Any) -> MaskSettings:
    """Settings that mask every result of 200 tokens or more outside the last turn, from 1,000 tokens of usage on."""
    always: dict[str, Any] = {
        "triggerTokens": 1_000,
        "triggerRatio": 1.0,
        "targetTokens": 0,
        "targetRatio": 1.0,
        "minClearTokens": 0,
        "keepRecentTurns": 1,
        "minEntryTokens": 200,
    }
    return MaskSettings(**{**always, **changes})


def turn(build: SessionBuilder, content: Any = "x" * 1_000, *, tool: str = "bash", **extra: Any) -> str:
    """One turn with one call; the id of its result. The call's argument is ``c`` and a number: ``c1``, ``c2``, …"""
    number = sum(b'"toolResult"' in line for line in build.lines) + 1
    arguments = extra.pop("arguments", {"command": f"c{number}"})
    build.assistant(calls=[tool_call(f"call-{number}", tool, arguments)])
    return build.tool_result(f"call-{number}", content, tool=tool, **extra)


def answer(build: SessionBuilder, usage: int = 5_000) -> str:
    """The last turn: an answer of four tokens, after which the provider says that so many tokens are in use."""
    return build.assistant("done", usage=usage_of(usage))


class Surroundings:
    """What the plugin asks of its context, as far as these tests need it: the ``ctx`` of one session.

    ``compact`` is noted in ``asked`` and ends as ``ending`` says: an exception, or None for a compaction. ``statuses``
    are the texts of the status line.
    """

    def __init__(
        self,
        authority: ProjectionAuthority,
        *,
        idle: bool = True,
        ending: Exception | None = None,
        reserve: int = 16_384,
    ) -> None:
        self.authority = authority
        self.idle = idle
        self.ending = ending
        self.asked: list[dict[str, Any]] = []
        self.statuses: list[str | None] = []
        self.model = None
        self.compaction_settings = CompactionSettings(reserve_tokens=reserve)
        self.ui = self
        self._work: list[Coroutine[Any, Any, None]] = []

    @property
    def ctx(self) -> Context:
        return cast(Context, self)

    @property
    def snapshot(self) -> Any:
        return self.authority.snapshot()

    def supports(self, name: str) -> bool:
        return True

    def is_idle(self) -> bool:
        return self.idle

    def set_status(self, text: str | None) -> None:
        self.statuses.append(text)

    def notify(self, message: str, level: NotifyLevel = "info") -> None:
        raise AssertionError(message)

    def compact(self, **options: Any) -> Awaitable[Entry]:
        if options.get("only_if_idle") and not self.idle:
            raise Unsupported("not idle")
        self.asked.append(options)
        return self._end()

    async def _end(self) -> Entry:
        if self.ending is not None:
            raise self.ending
        leaf = self.authority.session.leaf
        assert leaf is not None
        return leaf

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        self._work.append(work)

    async def rest(self) -> None:
        """Does what was spawned."""
        while self._work:
            await asyncio.wait_for(self._work.pop(0), 10)
