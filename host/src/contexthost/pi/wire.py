"""What crosses the bridge, in Pi's shapes, from and to the host's own: models, drafts, answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

from contexthost.compaction import CompactionSettings
from contexthost.context import ModelInfo
from contexthost.errors import InvalidDraft
from contexthost.events import (
    Cancel,
    CompactionResult,
    Handled,
    Hold,
    InputEvent,
    Outcome,
)
from contexthost.messages import Message
from contexthost.plugins import Chained
from contexthost.projection import CompactionDraft, ContextEditDraft, CustomDraft, CustomMessageDraft, Draft
from contexthost.shapes import usage_problem
from contexthost.text import printable, said_by, shorten
from contexthost.toolbox import usable_result

__all__ = [
    "compaction_to_pi",
    "draft_from_pi",
    "draft_to_pi",
    "failure_to_pi",
    "headers_from_pi",
    "images_from_pi",
    "input_to_pi",
    "model_from_pi",
    "outcome_from_pi",
    "text_or_none",
    "text_to_pi",
    "tool_result_to_pi",
]


def text_or_none(value: Any) -> str | None:
    """``value`` where it is text."""
    return value if isinstance(value, str) else None


def outcome_from_pi(value: Any) -> Outcome:
    """How a turn or run ended; what Pi 1.6.0 does not know counts as completed."""
    return cast(Outcome, value) if value in ("completed", "aborted", "error") else "completed"


def model_from_pi(value: Any) -> ModelInfo | None:
    """A model as Pi describes it; None when there is none."""
    if not isinstance(value, dict) or not isinstance(value.get("id"), str):
        return None
    cache = value.get("promptCache")
    cache = cache if isinstance(cache, dict) else {}
    cost = value.get("cost")
    levels, takes = value.get("thinkingLevelMap"), value.get("input")
    return ModelInfo(
        provider=str(value.get("provider") or ""),
        id=value["id"],
        api=str(value.get("api") or ""),
        context_window=_count(value.get("contextWindow")),
        max_tokens=_count(value.get("maxTokens")),
        prompt_cache_short_seconds=_number(cache.get("short")),
        prompt_cache_long_seconds=_number(cache.get("long")),
        cost={key: float(price) for key, price in cost.items() if _number(price) is not None}
        if isinstance(cost, dict)
        else {},
        base_url=text_or_none(value.get("baseUrl")),
        headers=headers_from_pi(value.get("headers")),
        reasoning=value.get("reasoning") is True,
        thinking_levels={str(key): text for key, text in levels.items() if text is None or isinstance(text, str)}
        if isinstance(levels, dict)
        else {},
        images=not isinstance(takes, list) or "image" in takes,
    )


def compaction_settings_from_pi(value: Any) -> CompactionSettings:
    """Pi's compaction settings; what is absent, or what Pi would refuse to read, is as Pi has it by default."""
    given = value if isinstance(value, dict) else {}
    defaults = CompactionSettings()
    reserve, keep = _tokens(given.get("reserveTokens")), _tokens(given.get("keepRecentTokens"))
    return CompactionSettings(
        enabled=given.get("enabled") is not False,
        reserve_tokens=defaults.reserve_tokens if reserve is None else reserve,
        keep_recent_tokens=defaults.keep_recent_tokens if keep is None else keep,
    )


def _tokens(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 0 and number.is_integer() else None


def headers_from_pi(value: Any) -> dict[str, str]:
    """Headers as Pi has them; null means that one is not sent."""
    return {str(key): text for key, text in value.items() if isinstance(text, str)} if isinstance(value, dict) else {}


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number > 0 else None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def images_from_pi(value: Any) -> tuple[Mapping[str, Any], ...]:
    """The images of an input."""
    return tuple(image for image in value if isinstance(image, dict)) if isinstance(value, list) else ()


def draft_from_pi(value: Mapping[str, Any]) -> Draft:
    """A draft that another extension has proposed before us.

    Raises:
        InvalidDraft: it is of no kind that Pi 1.6.0 has.
    """
    kind = value.get("type")
    if kind == "context_edit":
        return ContextEditDraft(target_id=str(value.get("targetId")), replacement=value.get("replacement"))
    if kind == "custom":
        return CustomDraft(custom_type=str(value.get("customType") or ""), data=value.get("data"))
    if kind == "custom_message":
        return CustomMessageDraft(
            custom_type=str(value.get("customType") or ""),
            content=value.get("content") or "",
            display=bool(value.get("display")),
            details=value.get("details"),
        )
    if kind == "compaction":
        usage = value.get("usage")
        return CompactionDraft(
            summary=str(value.get("summary") or ""),
            first_kept_entry_id=text_or_none(value.get("firstKeptEntryId")),
            details=value.get("details"),
            usage=usage if usage_problem(usage) is None else None,  # theirs to answer for; nobody asked needs it
        )
    raise InvalidDraft(f"another extension proposes a {kind!r} entry")


def draft_to_pi(draft: Draft) -> dict[str, Any]:
    """A draft as Pi's ``turn_end`` and ``agent_before_settle`` take it; absent keys stay absent."""
    if isinstance(draft, ContextEditDraft):
        replacement = None if draft.replacement is None else dict(draft.replacement)
        return {"type": "context_edit", "targetId": draft.target_id, "replacement": replacement}
    if isinstance(draft, CustomDraft):
        return {"type": "custom", "customType": draft.custom_type, "data": draft.data}
    if isinstance(draft, CustomMessageDraft):
        return _without_none(
            type="custom_message",
            customType=draft.custom_type,
            content=draft.content,
            display=draft.display,
            details=draft.details,
        )
    # Pi works out tokensBefore itself, and every draft's compaction counts as an extension's.
    made = _without_none(type="compaction", summary=draft.summary, details=draft.details, usage=draft.usage)
    return {**made, "firstKeptEntryId": draft.first_kept_entry_id}


def _without_none(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def compaction_to_pi(plugin: str, answer: Cancel | CompactionResult) -> dict[str, Any]:
    """A plugin's answer to ``session_before_compact``."""
    if isinstance(answer, Cancel):
        # Pi shows the reason as it is, and its user has to know whose it is.
        reason = text_to_pi(answer.reason)
        return {"cancel": True, "reason": said_by(plugin, reason) if reason else ""}
    compaction = _without_none(
        summary=answer.summary,
        firstKeptEntryId=answer.first_kept_entry_id,
        tokensBefore=answer.tokens_before,
        details=answer.details,
        usage=answer.usage,
    )
    return {"compaction": compaction}


def input_to_pi(event: InputEvent, chained: Chained[InputEvent]) -> dict[str, Any]:
    """The answer to ``input``: ``continue``, ``transform``, ``handled`` or ``hold``."""
    ending = chained.ended_by
    action: Literal["continue", "transform", "handled", "hold"] = "continue"
    if ending is not None and isinstance(ending[1], Handled):
        return {"action": "handled"}
    seen = chained.event
    changed = seen.text != event.text or seen.images != event.images
    if ending is not None and isinstance(ending[1], Hold):
        action = "hold"
    elif changed:
        action = "transform"
    if not changed:
        return {"action": action}
    return {"action": action, "text": seen.text, "images": [dict(image) for image in seen.images]}


def text_to_pi(value: Any) -> str | None:
    """What a plugin says, as Pi shows it: Pi leaves control sequences in, and it may quote a session. None: no text."""
    return printable(value) if isinstance(value, str) else None


def failure_to_pi(text: str) -> str:
    """A failure as Pi shows it: it may quote all of a session, with control sequences; the log has it whole."""
    return shorten(printable(text), 2_000)


def tool_result_to_pi(plugin: str, name: str, given: Any) -> dict[str, Any]:
    """What a plugin's tool gave, checked, with its content as blocks."""
    result = usable_result(plugin, name, given)
    content: Sequence[Mapping[str, Any]]
    content = [{"type": "text", "text": result.content}] if isinstance(result.content, str) else list(result.content)
    return {"content": content, "isError": result.is_error, "details": result.details}


def message_of(value: Any) -> Message:
    """A message that came with an event."""
    return value if isinstance(value, dict) else {}
