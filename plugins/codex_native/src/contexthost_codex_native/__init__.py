"""Native compaction for Codex and SubAPI: the provider compacts, a readable summary stands beside its result.

This module is the plugin; everything heavy is imported when a hook first needs it.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from contexthost.hookspecs import hookimpl

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import click

    from contexthost.config import SettingsSpec
    from contexthost.context import Command, Context, ModelInfo
    from contexthost.events import (
        BeforeProviderHeadersEvent,
        BeforeProviderRequestEvent,
        Boundary,
        BoundaryThresholdEvent,
        CompactionResult,
        ModelSelectEvent,
        ProviderHeadersWantedEvent,
        SessionBeforeCompactEvent,
        SessionCompactEvent,
        SessionShutdownEvent,
        SessionStartEvent,
        TurnEndEvent,
    )
    from contexthost_codex_native.memory import Memory
    from contexthost_codex_native.settings import CodexNativeSettings

__all__ = [
    "before_provider_headers",
    "before_provider_request",
    "boundary_threshold",
    "model_select",
    "provider_headers_wanted",
    "register_cli",
    "register_commands",
    "register_settings",
    "session_before_compact",
    "session_compact",
    "session_shutdown",
    "session_start",
    "turn_end",
]

_log = logging.getLogger(__name__)
_settings: CodexNativeSettings | None = None  # per user, hence the same for every session of the process
_memories: dict[str, Memory] = {}  # by session id


# Registrations -----------------------------------------------------------------------------------------------------


@hookimpl
def register_settings() -> Sequence[SettingsSpec]:
    """``codex_native.json``."""
    from contexthost.config import SettingsSpec
    from contexthost_codex_native.settings import PACKAGE, CodexNativeSettings

    return [SettingsSpec(PACKAGE, CodexNativeSettings)]


@hookimpl
def register_commands() -> Sequence[Command]:
    """``/codex-status``."""
    from contexthost.context import Command

    async def status(arguments: str, ctx: Context) -> str:
        from contexthost_codex_native.status import report, text_of_report

        return text_of_report(await report(ctx, _current_settings(), _memory(ctx)))

    description = "Show whether this model can compact natively, and the checkpoint in force."
    return [Command(name="codex-status", description=description, handler=status)]


@hookimpl
def register_cli() -> Sequence[click.Command]:
    """``contexthost codex``."""
    from contexthost_codex_native.cli import codex

    return [codex]


# The session -------------------------------------------------------------------------------------------------------


@hookimpl
def session_start(event: SessionStartEvent, ctx: Context) -> None:
    """Reads the settings."""
    _read_settings()
    memory = _memory(ctx)
    memory.shapes.clear()
    memory.told.clear()
    memory.paused = False


@hookimpl
def session_shutdown(event: SessionShutdownEvent, ctx: Context) -> None:
    """Forgets the session; which gateways cannot compact it stays on disk."""
    _memories.pop(ctx.session.id, None)


@hookimpl
def model_select(event: ModelSelectEvent, ctx: Context) -> None:
    """Another model may be compacted within a run, whatever happened with the one before."""
    _memory(ctx).paused = False


@hookimpl
def session_compact(event: SessionCompactEvent, ctx: Context) -> None:
    """The context is small again, whoever made it so."""
    _memory(ctx).paused = False


# Compactions -------------------------------------------------------------------------------------------------------


@hookimpl
async def session_before_compact(event: SessionBeforeCompactEvent, ctx: Context) -> CompactionResult | None:
    """Has the provider compact, if the model is eligible. A failure leaves it to the next compactor, and is told."""
    if event.draft is not None:
        return None  # somebody has made this compaction already

    from contexthost.errors import CompactionFailed
    from contexthost.events import CompactionResult
    from contexthost_codex_native.eligibility import ineligible_because, kind_of

    model, settings = ctx.model, _current_settings()
    addressed = event.addressed_to is not None
    if model is None or kind_of(model) is None or not (settings.enabled or addressed):
        if addressed:
            raise CompactionFailed(ineligible_because(model))
        return None

    from contexthost_codex_native.compactor import compact_natively
    from contexthost_codex_native.errors import Aborted, NativeFailure

    memory = _memory(ctx)
    try:
        made = await compact_natively(
            ctx, model, ctx.snapshot, memory, settings, signal=event.signal, focus=event.custom_instructions
        )
    except Aborted:
        return None
    except NativeFailure as error:
        if addressed:
            raise CompactionFailed(_failure(model, error, "")) from None
        _tell_failure(ctx, memory, model, error, again=event.reason == "manual")
        return None
    return CompactionResult(
        summary=made.summary,
        first_kept_entry_id=event.preparation.first_kept_entry_id,
        tokens_before=event.preparation.tokens_before,
        details=made.details,
        usage=made.usage,
    )


@hookimpl
def boundary_threshold(event: BoundaryThresholdEvent, ctx: Context) -> int:
    """Below its limit a run is not compacted, and with some models and settings never."""
    model, settings, limits = ctx.model, _current_settings(), ctx.compaction_settings
    if not (settings.enabled and settings.autoCompact and limits.enabled) or model is None:
        return sys.maxsize

    from contexthost_codex_native.compactor import run_threshold
    from contexthost_codex_native.eligibility import kind_of

    threshold = run_threshold(ctx.snapshot.window, settings.thresholdRatio, limits.reserve_tokens)
    return sys.maxsize if threshold is None or kind_of(model) is None else threshold


@hookimpl
async def turn_end(event: TurnEndEvent, ctx: Context) -> Boundary | None:
    """Compacts within a run before the host would: the turn's results stay, and the run goes on."""
    model, settings = ctx.model, _current_settings()
    if event.outcome != "completed" or not (settings.enabled and settings.autoCompact) or model is None:
        return None

    from contexthost_codex_native.eligibility import kind_of

    memory, limits = _memory(ctx), ctx.compaction_settings
    if kind_of(model) is None or memory.paused or not limits.enabled:
        return None

    from contexthost.compaction import prepare_compaction
    from contexthost.events import Boundary
    from contexthost.projection import CompactionDraft, context_messages
    from contexthost_codex_native.compactor import compact_natively, grown_enough, run_threshold
    from contexthost_codex_native.errors import Aborted, NativeFailure

    snapshot = event.context
    threshold = run_threshold(snapshot.window, settings.thresholdRatio, limits.reserve_tokens)
    if threshold is None or snapshot.usage.tokens < threshold or not grown_enough(snapshot, model):
        return None
    if any(isinstance(draft, CompactionDraft) for draft in event.entries):
        return None  # another plugin compacts at this very boundary
    preparation = prepare_compaction(snapshot, snapshot.branch, limits, context_messages=context_messages)
    if preparation is None:
        return None
    ctx.compacting()  # a provider takes longer than a boundary may
    try:
        made = await compact_natively(ctx, model, snapshot, memory, settings, signal=ctx.signal)
    except Aborted:
        return None
    except NativeFailure as error:
        memory.paused = True
        _tell_failure(ctx, memory, model, error)
        return None
    draft = CompactionDraft(
        summary=made.summary,
        first_kept_entry_id=preparation.first_kept_entry_id,
        tokens_before=preparation.tokens_before,
        details=made.details,
        usage=made.usage,
    )
    return Boundary(drafts=(draft,))


# Ordinary requests -------------------------------------------------------------------------------------------------


@hookimpl
def provider_headers_wanted(event: ProviderHeadersWantedEvent, ctx: Context) -> bool:
    """With an eligible model always, not only while a checkpoint is in force: over WebSockets the headers are those of
    the connection, which may be older than the checkpoint."""
    from contexthost_codex_native.eligibility import kind_of

    return kind_of(ctx.model) is not None


@hookimpl
def before_provider_headers(event: BeforeProviderHeadersEvent, ctx: Context) -> Mapping[str, str] | None:
    """Says that the client understands native checkpoints, beside what is said there already."""
    from contexthost_codex_native.eligibility import kind_of

    if kind_of(ctx.model) is None:
        return None

    from contexthost_codex_native.transport import FEATURE_HEADER, with_feature

    present = [value for name, value in event.headers.items() if name.lower() == FEATURE_HEADER and value]
    return {FEATURE_HEADER: with_feature(",".join(present))}


@hookimpl
def before_provider_request(event: BeforeProviderRequestEvent, ctx: Context) -> Mapping[str, Any] | None:
    """Puts the native checkpoint of this very model in the place of what it stands for."""
    from contexthost_codex_native.eligibility import kind_of, model_key

    model, payload = ctx.model, event.payload
    if model is None:
        return None
    eligible = kind_of(model) is not None and payload.get("model") == model.id
    eligible = eligible and isinstance(payload.get("input"), list)
    snapshot = ctx.snapshot
    if snapshot.checkpoint is not None:
        _tell_checkpoint(ctx, snapshot.checkpoint.id, snapshot.checkpoint.data.get("details"), model)
    if not eligible:
        return None

    from contexthost_codex_native.body import shape_of
    from contexthost_codex_native.items import checkpoint_for, input_items, with_history

    _memory(ctx).shapes[model_key(model)] = shape_of(payload)
    checkpoint = checkpoint_for(snapshot, model)
    if checkpoint is None:
        return None
    replaced = {key: value for key, value in payload.items() if key != "previous_response_id"}
    replaced["input"] = with_history(payload["input"], input_items(snapshot, model, checkpoint))
    return replaced


# Helpers -----------------------------------------------------------------------------------------------------------


def _tell_checkpoint(ctx: Context, entry_id: str, details: object, model: ModelInfo) -> None:
    """Says once why a native checkpoint is not used."""
    from contexthost_codex_native.checkpoint import MalformedCheckpoint, claims_to_be_native, parse_checkpoint
    from contexthost_codex_native.eligibility import model_key

    if not claims_to_be_native(details):
        return
    key = f"{entry_id} {model_key(model)}"
    memory = _memory(ctx)
    if key in memory.told:
        return
    try:
        checkpoint = parse_checkpoint(details)
    except MalformedCheckpoint as error:
        text, level = f"the native checkpoint {entry_id} cannot be used: {error}", "warning"
    else:
        if checkpoint.model_key == model_key(model):
            return
        text, level = f"the native checkpoint {entry_id} is for {checkpoint.model_key} alone", "info"
    memory.told.add(key)
    ctx.ui.notify(f"{text}; its portable summary stands in", "warning" if level == "warning" else "info")


def _tell_failure(ctx: Context, memory: Memory, model: ModelInfo, error: Exception, *, again: bool = False) -> None:
    """One notification: each failure once, and again when the user asked for the compaction; what is known of a
    gateway is not told again."""
    from contexthost_codex_native.errors import UnsupportedGateway

    text = _failure(model, error, "; the conversation is summarised in the usual way instead")
    known = text in memory.told
    if known and (not again or isinstance(error, UnsupportedGateway)):
        _log.debug("%s", text)
        return
    memory.told.add(text)
    ctx.ui.notify(text, "warning")


def _failure(model: ModelInfo, error: Exception, consequence: str) -> str:
    return f"native compaction with {model.provider}/{model.id} failed: {error}{consequence}"


def _memory(ctx: Context) -> Memory:
    from contexthost_codex_native.memory import Memory

    memory = _memories.get(ctx.session.id)
    if memory is None:
        memory = _memories[ctx.session.id] = Memory.of(ctx)
    return memory


def _current_settings() -> CodexNativeSettings:
    return _settings if _settings is not None else _read_settings()


def _read_settings() -> CodexNativeSettings:
    global _settings
    from contexthost.config import load_settings
    from contexthost_codex_native.settings import PACKAGE, CodexNativeSettings

    _settings = load_settings(CodexNativeSettings, PACKAGE).values
    return _settings
