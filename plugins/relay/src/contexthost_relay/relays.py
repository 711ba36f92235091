"""The relays of one live session: one at a time, by hand or by themselves, each told, logged, and cleaned up after."""

from __future__ import annotations

import logging
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from contexthost.context import Context, Timer
from contexthost.errors import CompactionCancelled, ContexthostError, NothingToCompact
from contexthost.events import (
    Cancel,
    CompactionResult,
    Hold,
    InputEvent,
    SessionBeforeCompactEvent,
    SessionCompactEvent,
    SessionCompactFailedEvent,
)
from contexthost.inbox import HELD_TYPE
from contexthost.session import Entry
from contexthost_relay import triggers
from contexthost_relay.files import append_log, remove_note, write_note_file
from contexthost_relay.material import is_relay
from contexthost_relay.relay import MARKER, is_addressed, make_relay
from contexthost_relay.settings import PACKAGE, RelaySettings

__all__ = ["RESEND_TYPE", "Relays", "Trigger", "thousands"]

RESEND_TYPE = "context-relay:resend"
"""The custom entry that stands just before a message that was held: ``{trigger, items: [{sha256, images}]}``."""

Trigger: TypeAlias = Literal["manual", "input", "expiry"]

_LABELS: dict[Trigger, str] = {
    "manual": "relay",
    "input": "auto relay (new message)",
    "expiry": "auto relay (cache expiry)",
}

_log = logging.getLogger(__name__)


class Relays:
    """Starts relays in one session, answers the host's questions about them, and keeps their traces in order.

    1. At most one relay goes on; while one does, none is started.
    2. A message that is held is released whatever becomes of its relay, and only in its own session.
    3. A relay that does not come about leaves no note.
    """

    def __init__(self, ctx: Context, settings: RelaySettings) -> None:
        self._ctx = ctx
        self.settings = settings
        self.trigger: Trigger | None = None  # of the relay that goes on and was started here
        self._note: Path | None = None  # written for a compaction whose outcome is not known yet
        self._held_since: int | None = None  # entries of the session when a message was held
        self._timer: Timer | None = None
        self._cold_at = 0.0  # by the clock that nobody sets, when the timer was set last
        self._label: Trigger = "manual"  # of the relay that goes on, or of the last: its outcome may be told late
        self._logged = False  # that relay's outcome
        self._ended = False

    @property
    def active(self) -> bool:
        """Whether the plugin does anything here: enabled, and a session that a person works in and that goes on."""
        return self._concerned and not self._ended

    @property
    def on_file(self) -> bool:
        """Whether this is a session file that somebody has chosen, rather than a session that goes on."""
        return not self._ctx.supports("compact")

    @property
    def _concerned(self) -> bool:
        return self.settings.enabled and triggers.is_main(self._ctx.session.name, self._ctx.mode)

    # By hand ---------------------------------------------------------------------------------------------------------

    async def by_hand(self) -> str | None:
        """``/relay``. What went wrong is told as an error."""
        if self.trigger is not None or not self._ctx.is_idle():
            self._ctx.ui.notify("context-relay: something is going on; /relay works when the session is idle", "error")
            return None
        await self._run("manual")
        return None

    # By itself -------------------------------------------------------------------------------------------------------

    def on_input(self, event: InputEvent) -> Hold | None:
        """Trigger A: holds a message when the context is large, relays, and has it sent."""
        auto = self.settings.auto
        ctx = self._ctx
        if not (self.active and auto.onInput and self.trigger is None and triggers.waits_for_relay(event)):
            return None
        if not (ctx.is_idle() and ctx.supports("compact") and ctx.supports("release_held")):
            return None
        if not triggers.wants_relay(ctx.snapshot, auto.inputMinTokens, auto):
            return None
        self.cancel_timer()
        self.trigger = "input"  # before anything else can happen: a second input must not start a second relay
        self._held_since = len(ctx.session.entries)
        ctx.spawn(self._run_and_release())
        return Hold()

    async def _run_and_release(self) -> None:
        try:
            await self._run("input")
        finally:
            self._release()

    def _release(self) -> None:
        since, self._held_since = self._held_since, None
        if since is None or self._ended:
            return
        with suppress(ContexthostError):  # without the record the message must go out all the same
            self._ctx.append_entry(RESEND_TYPE, {"trigger": "input", "items": held_items(self._ctx, since)})
        self._ctx.release_held()

    def on_settled(self) -> None:
        """Trigger B: sets the timer for the time shortly before the prompt cache expires."""
        self.cancel_timer()
        if not (self.active and self.settings.auto.beforeExpiry and self._ctx.supports("compact")):
            return
        deadline = triggers.cache_deadline(self._ctx.snapshot, self._ctx.model)
        if deadline is None or deadline.lifetime <= triggers.MARGIN_SECONDS:
            return
        now = time.time()
        left = deadline.at - triggers.MARGIN_SECONDS - now
        if left >= 0 and deadline.is_warm(now):
            self._cold_at = time.monotonic() + deadline.at - now
            self._timer = self._ctx.call_later(left, self._before_expiry)

    def _before_expiry(self) -> None:
        self._timer = None
        if not self.active or self.trigger is not None:
            return
        ctx, auto = self._ctx, self.settings.auto
        deadline = triggers.cache_deadline(ctx.snapshot, ctx.model)
        now = time.time()
        if deadline is None or now >= deadline.at:  # the machine slept, or another model was chosen: nothing to save
            return
        if now < deadline.at - triggers.MARGIN_SECONDS - 1:  # the cache was kept warm meanwhile
            self.on_settled()
            return
        if time.monotonic() >= self._cold_at:  # the clock was set back while we waited
            return
        if not ctx.is_idle() or ctx.has_pending_messages():
            return
        if triggers.wants_relay(ctx.snapshot, auto.expiryMinTokens, auto):
            self.trigger = "expiry"
            ctx.spawn(self._run("expiry"))

    def cancel_timer(self) -> None:
        """Takes the timer of trigger B away."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The run ---------------------------------------------------------------------------------------------------------

    async def _run(self, trigger: Trigger) -> None:
        """One relay from asking for it to its outcome; tells what became of it, raises nothing but cancellations."""
        ctx = self._ctx
        self.trigger = self._label = trigger
        self._logged = False
        try:
            entry = await ctx.compact(only_if_idle=True, to=PACKAGE, custom_instructions=MARKER)
        except ContexthostError as error:
            self._failed(trigger, error)
        else:
            self._log(ok=True, entry=entry)
            before, after = entry.data.get("tokensBefore"), ctx.snapshot.tokens
            ctx.ui.notify(f"context-relay: {_LABELS[trigger]} {thousands(before)} → ~{thousands(after)} tokens")
        finally:
            self.trigger = None

    def _failed(self, trigger: Trigger, error: ContexthostError) -> None:
        self._log(ok=False, error=str(error))
        if self._ended:
            return
        if isinstance(error, CompactionCancelled):
            text = "the relay was cancelled"
        elif isinstance(error, NothingToCompact):
            text = f"nothing to relay: {error}"
        else:
            text = f"the relay failed: {error}"
        if trigger == "input":
            text += "; your message is sent all the same"
        self._ctx.ui.notify(f"context-relay: {text}", "warning" if isinstance(error, CompactionCancelled) else "error")

    # The compaction --------------------------------------------------------------------------------------------------

    async def before_compact(self, event: SessionBeforeCompactEvent) -> CompactionResult | Cancel | None:
        """Answers a compaction that is meant for this plugin, and no other; on a file, too: whoever asks is there."""
        mode = "tui" if self.on_file else self._ctx.mode
        main = self.settings.enabled and triggers.is_main(self._ctx.session.name, mode)
        if self._ended or not main or event.draft is not None:
            return None
        if not is_addressed(event.addressed_to, event.custom_instructions, PACKAGE):
            return None
        if self.trigger is None:  # somebody else asked for it
            self._label, self._logged = "manual", False
        try:
            relay = await make_relay(self._ctx, event.preparation, self.settings)
            if event.signal.aborted:
                return Cancel()
            self._note = relay.path  # first: whatever happens from here on, what is written is found again
            write_note_file(relay.path, relay.note)
        except BaseException as error:
            self._drop_note()
            if event.addressed_to is None and isinstance(error, Exception):
                _log.exception("a relay failed")
                return Cancel(f"the relay failed: {error}")  # not addressed: others would be asked
            raise
        return relay.result

    def on_compacted(self, event: SessionCompactEvent) -> None:
        """Any compaction was appended: a relay is logged, a note that is not its own is removed."""
        if not self._concerned and self._note is None:
            return
        entry = event.compaction_entry
        self.cancel_timer()
        if not is_relay(entry) or str(self._note) != entry.data["details"].get("notePath"):
            self._drop_note()
        self._note = None
        if is_relay(entry):
            self._log(ok=True, entry=entry)

    def on_failed(self, event: SessionCompactFailedEvent) -> None:
        """A compaction came to nothing: so does its note."""
        if not self._concerned and self._note is None:
            return
        was_ours = self._note is not None or event.plugin == PACKAGE or self.trigger is not None
        self._drop_note()
        if was_ours:
            self._log(ok=False, error=event.error_message or "cancelled")

    def _drop_note(self) -> None:
        note, self._note = self._note, None
        if note is not None:
            remove_note(note)

    def _log(self, *, ok: bool, entry: Entry | None = None, error: str | None = None) -> None:
        """One line a relay; the outcome is told from two sides, in any order, and the first counts."""
        if self._logged:
            return
        self._logged = True
        log_relay(self._ctx, self._label, ok=ok, entry=entry, error=error)

    # The end ---------------------------------------------------------------------------------------------------------

    def on_shutdown(self) -> None:
        """The session ends: nothing is started or sent any more. The driver gives what was held back to the editor,
        or keeps it for the next start; that, and how many images there were, is told."""
        self._ended = True
        self.cancel_timer()
        self._drop_note()
        since, self._held_since = self._held_since, None
        if since is None:
            return
        images = sum(item["images"] for item in held_items(self._ctx, since))
        text = "the session ended before the held message was sent; it was given back and not sent anywhere"
        if images:
            text += f". It has {images} image{'s' if images > 1 else ''}: attach again what has not come back with it"
        self._ctx.ui.notify(f"context-relay: {text}", "warning")


def held_items(ctx: Context, since: int) -> list[dict[str, Any]]:
    """What was held since the session had so many entries: the SHA-256 of each text, and its number of images."""
    found = []
    for entry in ctx.session.entries[since:]:
        data = entry.data.get("data") if entry.type == "custom" and entry.data.get("customType") == HELD_TYPE else None
        if isinstance(data, dict) and isinstance(data.get("sha256"), str):
            images = data.get("images")  # themselves, or their number: Pi's extension keeps only that
            count = len(images) if isinstance(images, list) else images if isinstance(images, int) else 0
            found.append({"sha256": data["sha256"], "images": count})
    return found


def log_relay(
    ctx: Context, trigger: Trigger, *, ok: bool, entry: Entry | None = None, error: str | None = None
) -> None:
    """Appends a relay's line to the log; a log that cannot be written is no reason for anything to fail."""
    data = entry.data if entry is not None else {}
    record: dict[str, Any] = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "sessionId": ctx.session.id,
        "trigger": trigger,
        "tokensBefore": data.get("tokensBefore", ctx.usage.tokens if not ok else None),
        "noteChars": len(data.get("summary") or ""),
        "keptFrom": data.get("firstKeptEntryId"),
        "ok": ok,
    }
    if error is not None:
        record["error"] = error
    try:
        append_log(ctx.data_dir, record)
    except OSError as problem:
        _log.warning("the relay could not be logged: %s", problem)


def thousands(tokens: Any) -> str:
    """Tokens for people: ``152k``, ``9k``, ``850``."""
    if not isinstance(tokens, (int, float)):
        return "?"
    return f"{round(tokens / 1000)}k" if tokens >= 1000 else str(int(tokens))
