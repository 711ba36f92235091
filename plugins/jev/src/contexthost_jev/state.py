"""The state that Jev sees: the history without tool output, shrunk in stages until it fits its budget."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any, Final

from contexthost.text import one_line, shorten
from contexthost_jev.batch import ENVELOPE_TOKENS
from contexthost_jev.collect import ToolCall, ToolCalls
from contexthost_jev.estimate import estimate_tenths, to_json, tokens_of_tenths
from contexthost_jev.messages import JevMessage, ToolUse
from contexthost_jev.options import JevOptions
from contexthost_jev.questions import CONTEXT

__all__ = ["FittedState", "Stage", "StateDoesNotFit", "abridge", "default_goal", "fit_state", "state_budget"]

INPUT_LIMITS: Final = (1000, 200, 60)
"""Characters of an input's JSON, stage after stage."""
HEAD_CHARS: Final = 400
TAIL_CHARS: Final = 150
GOAL_PROMPTS: Final = 3
GOAL_CHARS: Final = 500
_LINE_CHARS: Final = 60  # of the argument in a one-line call


class Stage(StrEnum):
    """How far the state had to be shrunk, in this order."""

    FULL = "full"
    INPUTS_1000 = "inputs-1000"
    INPUTS_200 = "inputs-200"
    INPUTS_60 = "inputs-60"
    TEXTS_ABRIDGED = "texts-abridged"
    TEXTS_COLLAPSED = "texts-collapsed"
    CALLS_AS_LINES = "calls-as-lines"
    MESSAGES_OMITTED = "messages-omitted"
    RUNS_FOLDED = "runs-folded"


@dataclass(frozen=True, slots=True)
class FittedState:
    """A state within its budget: plain JSON, its estimated tokens, the stage that was reached."""

    state: dict[str, Any]
    tokens: int
    stage: Stage


class StateDoesNotFit(Exception):
    """Also the last stage leaves more ``tokens`` than the ``budget``."""

    def __init__(self, tokens: int, budget: int) -> None:
        super().__init__(f"the shortest state takes {tokens:,} tokens, {budget:,} are allowed")
        self.tokens = tokens
        self.budget = budget


def state_budget(options: JevOptions, largest_pair: int) -> int:
    """Tokens that the state may take: so few that the largest pair of questions still fits into a request with it."""
    return min(options.max_state_tokens, options.max_request_tokens - largest_pair - ENVELOPE_TOKENS)


def default_goal(messages: Iterable[JevMessage]) -> str:
    """The last three prompts, oldest first, 500 characters each."""
    prompts = [message.text[:GOAL_CHARS] for message in messages if message.is_prompt]
    return "\n\n".join(prompts[-GOAL_PROMPTS:])


def fit_state(messages: Sequence[JevMessage], calls: ToolCalls, options: JevOptions, budget: int) -> FittedState:
    """The state of a history within ``budget`` estimated tokens.

    Each stage goes message by message, oldest first, and ends as soon as the state fits; the first message and the
    newest ``preserve_recent_messages`` come last in the stages that shorten inputs and texts, and are left alone by
    those after them. Raises StateDoesNotFit.
    """
    goal = options.goal if options.goal is not None else default_goal(messages)
    frame = {"context": CONTEXT, "goal": goal, "history": []}
    state = _Shrinking(_items(messages, calls, options), estimate_tenths(to_json(frame)), budget)
    stage = state.shrink()
    if stage is None:
        raise StateDoesNotFit(state.tokens, budget)
    history = [item.render() for item in state.items if not item.gone]
    return FittedState({**frame, "history": history}, state.tokens, stage)


def abridge(text: str) -> str:
    """The first 400 and the last 150 characters with a note of what is left out, where that is shorter."""
    note = f"\n[… {len(text) - HEAD_CHARS - TAIL_CHARS:,} characters left out …]\n"
    if len(text) <= HEAD_CHARS + len(note) + TAIL_CHARS:
        return text
    return text[:HEAD_CHARS] + note + text[-TAIL_CHARS:]


class _Call:
    """A paired call as the state shows it."""

    def __init__(self, call: ToolCall) -> None:
        self._call = call
        self._input = _Input(call.use)
        self._as_line = False

    def cut(self, limit: int) -> bool:
        return self._input.cut(limit)

    def to_line(self) -> None:
        self._as_line = True

    def render(self) -> Any:
        result = self._call.result
        status = "error" if result.is_error else "ok"
        size = len(result.text)
        if self._as_line:
            return " ".join(filter(None, (self._call.id, self._input.line(), "→", status, f"{size}ch")))
        note = f"{status}, cut to {size} chars earlier" if result.truncated else f"{status}, {size} chars (omitted)"
        return {"id": self._call.id, **self._input.render(), "result": note}


class _Input:
    """A use's tool and input, whole or cut."""

    def __init__(self, use: ToolUse) -> None:
        self._use = use
        self._json = use.input_json
        self._shown: Any = use.input
        try:
            json.dumps(use.input, allow_nan=False)
        except (ValueError, RecursionError):
            self._shown = self._json  # JavaScript's reading of it; as a text, so that the state is plain JSON

    def cut(self, limit: int) -> bool:
        """Cut the input's JSON to ``limit`` characters; whether that changed anything."""
        if len(self._json) <= limit:
            return False
        self._shown = self._json[:limit] + "…"
        return True

    def render(self) -> dict[str, Any]:
        return {"tool": self._use.tool, "input": self._shown}

    def line(self) -> str:
        tool = shorten(one_line(self._use.tool), _LINE_CHARS)
        if isinstance(self._use.input, dict):
            for key, value in self._use.input.items():
                if isinstance(value, str | int | float):
                    text = value if isinstance(value, str) else to_json(value)
                    return f"{tool} {shorten(one_line(f'{key}={text[:200]}'), _LINE_CHARS)}"
        return tool


class _Item:
    """One entry of ``history``."""

    def __init__(
        self, place: int | str, role: str, text: str, calls: list[_Call], pending: list[_Input], *, recent: bool
    ) -> None:
        self.place = place
        self.role = role
        self.text = text
        self.calls = calls
        self.pending = pending
        self.recent = recent
        self.foldable = False  # once its text was collapsed: then the text may go altogether
        self.gone = False
        self.tenths = 0
        self.measure()

    def measure(self) -> None:
        self.tenths = estimate_tenths(to_json(self.render()))

    def render(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"i": self.place, "role": self.role}
        if self.text:
            entry["text"] = self.text
        if self.calls:
            entry["tool_calls"] = [call.render() for call in self.calls]
        if self.pending:
            entry["pending_calls"] = [use.render() for use in self.pending]
        return entry

    # The steps; each says whether it changed anything.

    def cut_inputs(self, limit: int) -> bool:
        parts: tuple[_Call | _Input, ...] = (*self.calls, *self.pending)
        changed = [part.cut(limit) for part in parts]  # all of them, not up to the first that changes
        return any(changed)

    def abridge(self) -> bool:
        before, self.text = self.text, abridge(self.text)
        return self.text is not before

    def collapse(self) -> bool:
        self.foldable = True
        note = f"[{len(self.text)} characters]"
        if len(note) >= len(self.text):
            return False  # a text as short as its note stays until its message is folded or left out
        self.text = note
        return True

    def to_lines(self) -> bool:
        for call in self.calls:
            call.to_line()
        return bool(self.calls)


def _items(messages: Sequence[JevMessage], calls: ToolCalls, options: JevOptions) -> list[_Item]:
    """The entries of the untouched state; a message that only holds results is told by its calls."""
    by_message: dict[int, list[_Call]] = {}
    for call in calls.calls:
        by_message.setdefault(call.use_index, []).append(_Call(call))
    items = []
    for index, message in enumerate(messages):
        made, pending = by_message.get(index, []), [_Input(use) for use in calls.pending.get(index, ())]
        if message.text or made or pending:
            recent = options.is_recent(index, len(messages))
            items.append(_Item(index, message.role, message.text, made, pending, recent=recent))
    return items


class _Shrinking:
    """The entries, their cost in all, and the stages."""

    def __init__(self, items: list[_Item], frame_tenths: int, budget: int) -> None:
        self.items = items
        self._frame = frame_tenths
        self._budget = budget
        self._sum = sum(item.tenths for item in items)
        self._count = len(items)

    @property
    def tokens(self) -> int:
        commas = 9 * max(self._count - 1, 0)
        return tokens_of_tenths(self._frame + self._sum + commas)

    @property
    def _fits(self) -> bool:
        return self.tokens <= self._budget

    def shrink(self) -> Stage | None:
        """Go through the stages until the state fits; None when it never does."""
        if self._fits:
            return Stage.FULL
        for stage, steps in self._stages():
            for _ in steps:
                if self._fits:
                    return stage
        return None

    def _stages(self) -> Iterator[tuple[Stage, Iterator[None]]]:
        recent_last = sorted(self.items, key=lambda item: item.recent)
        old = [item for item in self.items if not item.recent]
        for stage, limit in zip((Stage.INPUTS_1000, Stage.INPUTS_200, Stage.INPUTS_60), INPUT_LIMITS, strict=True):
            yield stage, self._each(recent_last, partial(_Item.cut_inputs, limit=limit))
        yield Stage.TEXTS_ABRIDGED, self._each(recent_last, _Item.abridge)
        yield Stage.TEXTS_COLLAPSED, self._each(old, _Item.collapse)
        yield Stage.CALLS_AS_LINES, self._each(old, _Item.to_lines)
        yield Stage.MESSAGES_OMITTED, self._omit()
        yield Stage.RUNS_FOLDED, self._fold()

    def _each(self, items: Sequence[_Item], step: Callable[[_Item], bool]) -> Iterator[None]:
        for item in items:
            if step(item):
                self._sum -= item.tenths
                item.measure()
                self._sum += item.tenths
                yield

    def _omit(self) -> Iterator[None]:
        """Leave out old messages without calls."""
        for item in self.items:
            if not (item.recent or item.calls or item.pending):
                item.gone = True
                self._sum -= item.tenths
                self._count -= 1
                yield

    def _fold(self) -> Iterator[None]:
        """Make one entry of each run of old messages with calls; what is left of their texts goes."""
        self.items = [item for item in self.items if not item.gone]
        start = 0
        while start < len(self.items):
            end = start
            while end < len(self.items) and self.items[end].foldable:
                end += 1
            if end - start > 1:
                run = self.items[start:end]
                calls = [call for item in run for call in item.calls]
                pending = [use for item in run for use in item.pending]
                folded = _Item(f"{run[0].place}-{run[-1].place}", "assistant", "", calls, pending, recent=False)
                self._sum += folded.tenths - sum(item.tenths for item in run)
                self._count -= end - start - 1
                self.items[start:end] = [folded]
                yield
            start += 1
