"""A look before use: what a compaction of a session would ask, and the most that it could save."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from contexthost.compaction import CompactionSettings, prepare_compaction
from contexthost.config import HostCompaction
from contexthost.projection import Snapshot, context_messages
from contexthost.tokens import TokenCounter
from contexthost_jev.adapter import camel, session_history
from contexthost_jev.collect import ToolCall
from contexthost_jev.core import DoesNotFit, NothingToPrune, Plan, plan
from contexthost_jev.decide import reduction_ratio
from contexthost_jev.errors import JevFailure
from contexthost_jev.messages import JevMessage, history_chars
from contexthost_jev.options import JevOptions

__all__ = ["AskedCall", "SessionPlan", "plan_session"]


@dataclass(frozen=True, slots=True)
class AskedCall:
    """A call that would be asked about; ``chars`` are those of its input and result."""

    id: str
    tool_call_id: str
    tool: str
    chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPlan:
    """What would be asked.

    ``requests`` holds the estimated tokens of each request. ``reclaimable_*`` is what would go if every call that is
    asked about were dropped; characters and tokens (by the host's counter) of inputs and results.
    """

    outcome: str
    detail: str = ""
    calls: int = 0
    asked: tuple[AskedCall, ...] = ()
    requests: tuple[int, ...] = ()
    state_tokens: int = 0
    stage: str | None = None
    first_kept_entry_id: str | None = None
    replaced_chars: int = 0
    replaced_tokens: int = 0
    reclaimable_chars: int = 0
    reclaimable_tokens: int = 0

    @property
    def best_reduction(self) -> float:
        """The largest reduction that is possible, 0 to 1."""
        return reduction_ratio(self.replaced_chars, self.replaced_chars - self.reclaimable_chars)

    def to_json(self) -> dict[str, Any]:
        """For ``--json``."""
        plain = asdict(self) | {"best_reduction": self.best_reduction}
        plain["asked"] = [{camel(key): value for key, value in asdict(call).items()} for call in self.asked]
        return {camel(key): value for key, value in plain.items()}


def plan_session(
    snapshot: Snapshot, compaction: HostCompaction, options: JevOptions, counter: TokenCounter
) -> SessionPlan:
    """Plan the compaction that would be made now; no request, no write.

    ``outcome`` is ``planned``, or why nothing would be asked: ``nothing-to-compact``, ``too-short``,
    ``nothing-to-score``, ``does-not-fit``, ``malformed-history``.
    """
    settings = CompactionSettings(
        reserve_tokens=compaction.reserveTokens, keep_recent_tokens=compaction.keepRecentTokens
    )
    preparation = prepare_compaction(snapshot, snapshot.branch, settings, context_messages=context_messages)
    if preparation is None:
        return SessionPlan(outcome="nothing-to-compact", detail="there is nothing to compact yet")
    history = session_history(preparation, snapshot)
    try:
        planned = plan(history.messages, history.options(options))
    except JevFailure as failure:
        return SessionPlan(outcome=failure.kind, detail=str(failure))
    match planned:
        case NothingToPrune(reason="too-short"):
            return SessionPlan(outcome="too-short", detail="the history is too short")
        case NothingToPrune():
            return SessionPlan(outcome="nothing-to-score", detail="no tool call is left that could go")
        case DoesNotFit(tokens=tokens, budget=budget):
            detail = f"the history needs {tokens:,} tokens of the {budget:,} that Jev may get"
            return SessionPlan(outcome="does-not-fit", detail=detail)
        case Plan():
            pass
    asked = planned.candidates
    return SessionPlan(
        outcome="planned",
        calls=len(planned.calls.calls),
        asked=tuple(AskedCall(call.id, call.use.id, call.use.tool, sum(map(len, _texts(call)))) for call in asked),
        requests=tuple(batch.tokens for batch in planned.batches),
        state_tokens=planned.fitted.tokens,
        stage=str(planned.fitted.stage),
        first_kept_entry_id=preparation.first_kept_entry_id,
        replaced_chars=history_chars(history.replaced),
        replaced_tokens=sum(counter.count(text) for text in _all_texts(history.replaced)),
        reclaimable_chars=sum(len(text) for call in asked for text in _texts(call)),
        reclaimable_tokens=sum(counter.count(text) for call in asked for text in _texts(call)),
    )


def _texts(call: ToolCall) -> tuple[str, str]:
    return call.use.input_json, call.result.text


def _all_texts(messages: Iterable[JevMessage]) -> Iterable[str]:
    for message in messages:
        yield message.text
        yield from (use.input_json for use in message.tool_uses)
        yield from (result.text for result in message.tool_results)
