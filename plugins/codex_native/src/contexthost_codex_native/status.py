"""What ``/codex-status`` and ``contexthost codex status`` tell."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from contexthost.errors import ContexthostError
from contexthost.text import one_line
from contexthost_codex_native.checkpoint import (
    MalformedCheckpoint,
    claims_to_be_native,
    opaque_characters,
    parse_checkpoint,
)
from contexthost_codex_native.compactor import run_threshold, with_credential
from contexthost_codex_native.eligibility import ineligible_because, kind_of, model_key
from contexthost_codex_native.memory import place_of
from contexthost_codex_native.transport import endpoint, resolve

if TYPE_CHECKING:
    from contexthost.context import Context, ModelInfo
    from contexthost.session import Entry
    from contexthost_codex_native.memory import Memory
    from contexthost_codex_native.settings import CodexNativeSettings

__all__ = ["report", "text_of_report"]


async def report(ctx: Context, settings: CodexNativeSettings, memory: Memory) -> dict[str, Any]:
    """The state as JSON with stable keys. Of credentials it names the kind, never the value; nothing is sent."""
    model, snapshot = ctx.model, ctx.snapshot
    reserve = ctx.compaction_settings.reserve_tokens
    told: dict[str, Any] = {
        "sessionId": snapshot.session_id,
        "model": None if model is None else {"provider": model.provider, "id": model.id, "api": model.api},
        "modelKey": None if model is None else model_key(model),
        "eligible": kind_of(model) is not None,
        "problem": None,
        "endpoint": None,
        "credential": None,
        "enabled": settings.enabled,
        "autoCompact": settings.autoCompact,
        "thresholdTokens": run_threshold(snapshot.window, settings.thresholdRatio, reserve),
        "usageTokens": snapshot.usage.tokens,
        "checkpoint": None if snapshot.checkpoint is None else _checkpoint(snapshot.checkpoint, model),
    }
    if model is None or kind_of(model) is None:
        return {**told, "problem": ineligible_because(model)}
    try:
        told["endpoint"] = _endpoint(model, settings)
        model, key = await with_credential(ctx, model)
        target = resolve(model, key, snapshot.session_id, base_url=settings.subApiBaseUrl)
    except ContexthostError as error:
        return {**told, "problem": str(error)}
    told["credential"] = target.credential
    return {**told, "problem": memory.unsupported.get(place_of(model, target.url))}


def _endpoint(model: ModelInfo, settings: CodexNativeSettings) -> str:
    """Without its query, which may hold a credential."""
    kind = kind_of(model)
    assert kind is not None
    parts = urlsplit(endpoint(kind, model.base_url or "", fallback=settings.subApiBaseUrl))
    return urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))


def _checkpoint(entry: Entry, model: ModelInfo | None) -> dict[str, Any]:
    details = entry.data.get("details")
    summary = entry.data.get("summary")
    told: dict[str, Any] = {
        "entryId": entry.id,
        "timestamp": entry.timestamp,
        "native": claims_to_be_native(details),
        "modelKey": None,
        "sentToThisModel": False,
        "problem": None,
        "opaqueCharacters": 0,
        "userMessages": 0,
        "summaryCharacters": len(summary) if isinstance(summary, str) else 0,
        "bytes": len(entry.raw),
    }
    if not told["native"]:
        return told
    try:
        checkpoint = parse_checkpoint(details)
    except MalformedCheckpoint as error:
        return {**told, "problem": str(error)}
    return {
        **told,
        "modelKey": checkpoint.model_key,
        "sentToThisModel": model is not None and checkpoint.model_key == model_key(model),
        "opaqueCharacters": opaque_characters(checkpoint),
        "userMessages": len(checkpoint.user_items),
    }


def text_of_report(told: dict[str, Any]) -> str:
    """The report for a person, without anything that a terminal would obey."""
    rows: list[tuple[str, str]] = [("model", told["modelKey"] or "unknown")]
    rows.append(("native", "yes" if told["eligible"] and told["problem"] is None else f"no: {told['problem']}"))
    if told["endpoint"] is not None:
        rows.append(("endpoint", told["endpoint"]))
        rows.append(("credential", told["credential"] or "none"))
    if told["eligible"]:
        rows.append(("within a run", _run(told)))
    rows.append(("checkpoint", _checkpoint_text(told["checkpoint"])))
    return "\n".join(f"{name:<13} {one_line(text)}" for name, text in rows)


def _run(told: dict[str, Any]) -> str:
    if not told["enabled"] or not told["autoCompact"]:
        return f"off ({'autoCompact' if told['enabled'] else 'enabled'} in codex_native.json)"
    if told["thresholdTokens"] is None:
        return "off: the context window is too small"
    return f"at {told['thresholdTokens']:,} tokens; now {told['usageTokens']:,}"


def _checkpoint_text(found: dict[str, Any] | None) -> str:
    if found is None:
        return "none"
    where = f"{found['entryId']} of {found['timestamp']}"
    if not found["native"]:
        return f"{where}: an ordinary summary of {found['summaryCharacters']:,} characters"
    if found["problem"] is not None:
        return f"{where}: not usable, {found['problem']}; its summary stands in"
    use = "sent to this model" if found["sentToThisModel"] else "not for this model: its summary stands in"
    kilobytes = math.ceil(found["bytes"] / 1000)
    return (
        f"{where} for {found['modelKey']}: {use}; {kilobytes:,} kB, {found['userMessages']:,} of the user's messages, "
        f"an opaque item of {found['opaqueCharacters']:,} characters and a summary of {found['summaryCharacters']:,}"
    )
