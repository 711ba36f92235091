"""What the hook does: find the key, compact, and say in one sentence what came of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from contexthost.config import Loaded
from contexthost.context import Context, NotifyLevel
from contexthost.errors import SettingsError
from contexthost.events import CompactionReason, CompactionResult, SessionBeforeCompactEvent
from contexthost_jev.adapter import Compacted, Declined, DeclinedKind, compact_session
from contexthost_jev.errors import JevAborted, JevFailure
from contexthost_jev.keys import KEY_HELP, Key, find_key
from contexthost_jev.settings import JevSettings, options_of

__all__ = ["Attempt", "aborted", "attempt", "told"]

Outcome = DeclinedKind | Literal["compacted", "aborted"]

_WORDS: Final[dict[str, str]] = {
    "no-key": "no key",
    "configuration": "cannot be used as it is set up",
    "network": "network failure",
    "authentication": "the key was refused",
    "refused": "the request was refused",
    "busy": "the service is busy",
    "malformed-answer": "malformed answer",
    "malformed-history": "calls and results of this session do not pair up",
    "does-not-fit": "the history does not fit",
    "not-worth-it": "not worth it",
    "nothing-to-score": "nothing to score",
    "too-short": "too short",
}
# Nothing went wrong in these: there was little to do.
_CALM: Final = frozenset({"not-worth-it", "nothing-to-score", "too-short"})


@dataclass(frozen=True, slots=True)
class Attempt:
    """One compaction that Jev was asked for: what set it off, what came of it, and that in a sentence."""

    reason: CompactionReason
    outcome: Outcome
    what: str
    result: CompactionResult | None = None

    @property
    def text(self) -> str:
        """What the user is told where nothing else says whose compaction it was."""
        return f"jev, {self.reason} compaction: {self.what}"

    @property
    def level(self) -> NotifyLevel:
        """How loudly to tell it."""
        return "info" if self.outcome in ("compacted", "aborted", *_CALM) else "warning"


async def attempt(event: SessionBeforeCompactEvent, ctx: Context, loaded: Loaded[JevSettings]) -> Attempt:
    """Let Jev make the compaction; every failure is an Attempt without a result."""
    try:
        outcome = await _compact(event, ctx, loaded.values)
    except JevAborted:
        return aborted(event.reason)
    if isinstance(outcome, Compacted):
        return Attempt(event.reason, "compacted", told(outcome), outcome.result)
    ending = "Nothing was compacted." if event.addressed_to is not None else "The built-in summary is made instead."
    words = _WORDS[outcome.kind]
    return Attempt(event.reason, outcome.kind, f"{words}: {outcome.detail}. {ending}")


def aborted(reason: CompactionReason) -> Attempt:
    """One that was aborted."""
    return Attempt(reason, "aborted", "aborted.")


def told(done: Compacted) -> str:
    """A success in one sentence."""
    requests = "1 request" if done.requests == 1 else f"{done.requests} requests"
    return (
        f"{done.kept} calls kept, {done.truncated} truncated, {done.dropped} dropped; "
        f"about {done.reduction:.0%} less, in {done.milliseconds / 1000:.1f} s ({requests})."
    )


async def _compact(event: SessionBeforeCompactEvent, ctx: Context, settings: JevSettings) -> Compacted | Declined:
    try:
        key = await find_key(ctx.credentials)
    except SettingsError as error:
        return Declined("no-key", str(error))
    except JevFailure as failure:
        return Declined(failure.kind, str(failure))
    if key is None:
        return Declined("no-key", f"{KEY_HELP}; /jev-setup guides you")
    return await _ask(key, event, ctx, settings)


async def _ask(key: Key, event: SessionBeforeCompactEvent, ctx: Context, settings: JevSettings) -> Compacted | Declined:
    from contexthost_jev.client import JevClient  # httpx is slow to import: only once there is something to ask

    try:
        client = JevClient(key, model=settings.model, base_url=settings.baseUrl)
    except JevFailure as failure:
        return Declined(failure.kind, str(failure))
    async with client:
        return await compact_session(
            event.preparation,
            ctx.snapshot,
            client,
            options_of(settings),
            signal=event.signal,
            custom_instructions=event.custom_instructions,
        )
