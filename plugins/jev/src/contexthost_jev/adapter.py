"""From a session to a compaction: the preparation's messages through the core, encoded as the verbatim summary."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

from contexthost.compaction import Preparation
from contexthost.context import AbortSignal
from contexthost.events import CompactionResult
from contexthost.messages import Message, convert_to_llm, text_of
from contexthost.projection import Snapshot
from contexthost_jev.core import DoesNotFit, JevAsker, NothingToPrune, Scored, compact
from contexthost_jev.decide import reduction_ratio
from contexthost_jev.errors import FailureKind, JevFailure
from contexthost_jev.messages import JevMessage, ToolResult, ToolUse, history_chars
from contexthost_jev.options import JevOptions
from contexthost_jev.state import default_goal
from contexthost_jev.summary import decode_summary, encode_summary, recovery_line

__all__ = [
    "Compacted",
    "Declined",
    "DeclinedKind",
    "SessionHistory",
    "camel",
    "compact_session",
    "model_tools",
    "session_history",
    "to_jev_messages",
]

DETAILS_FORMAT: Final = 1

DeclinedKind = FailureKind | Literal["does-not-fit", "not-worth-it", "nothing-to-score", "too-short"]
"""Why there is no compaction by Jev."""

_LABELS: Final = {
    "bashExecution": "bash",
    "custom": "note",
    "branchSummary": "branch-summary",
    "compactionSummary": "summary",
}


@dataclass(frozen=True, slots=True)
class Declined:
    """No compaction by Jev; ``detail`` says why, for the user. Nothing was changed."""

    kind: DeclinedKind
    detail: str


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compaction to append. The counts are of the calls that were asked about; ``reduction`` is the share of
    characters by which what it replaces shrank."""

    result: CompactionResult
    kept: int
    truncated: int
    dropped: int
    reduction: float
    requests: int
    milliseconds: int


@dataclass(frozen=True, slots=True)
class SessionHistory:
    """A session for the core: what the compaction replaces, then what is kept behind it."""

    replaced: Sequence[JevMessage]
    kept: Sequence[JevMessage]

    @property
    def messages(self) -> list[JevMessage]:
        """All of it, oldest first."""
        return [*self.replaced, *self.kept]

    def options(self, options: JevOptions, custom_instructions: str | None = None) -> JevOptions:
        """The options with the kept messages frozen, and the user's instructions added to the goal."""
        goal = options.goal
        if custom_instructions:
            base = default_goal(self.messages) if goal is None else goal
            goal = f"{base}\n\nFor this compaction the user asks: {custom_instructions}"
        return replace(options, goal=goal, frozen_messages=len(self.kept))


def to_jev_messages(messages: Iterable[Message]) -> list[JevMessage]:
    """Session messages as the core has them.

    Texts stay word for word; an image or another block that is no text becomes a one-line note; thinking is left out.
    Adjacent tool results make one message. Commands, notes and summaries are user messages with a label; system
    messages and commands hidden from the model are left out, and so are messages without any content.
    """
    converted: list[JevMessage] = []
    results: list[ToolResult] = []

    def close() -> None:
        if results:
            converted.append(JevMessage("user", tool_results=tuple(results)))
            results.clear()

    for place, message in enumerate(messages):
        role = message.get("role")
        if role == "toolResult":
            results.append(_result(message, place))
            continue
        made = _assistant(message, place) if role == "assistant" else _user(message)
        if made is not None and not made.empty:
            close()
            converted.append(made)
    close()
    return converted


def _assistant(message: Message, place: int) -> JevMessage:
    content = message.get("content")
    blocks = content if isinstance(content, list) else []
    calls = [block for block in blocks if isinstance(block, dict) and block.get("type") == "toolCall"]
    uses = tuple(
        # Without an id of its own no result can name it: it stays a call without a result.
        ToolUse(_text(call.get("id")) or f"unnamed:{place}:{number}", _text(call.get("name")), call.get("arguments"))
        for number, call in enumerate(calls)
    )
    return JevMessage("assistant", _content(content), uses)


def _user(message: Message) -> JevMessage | None:
    role = message.get("role")
    label = _LABELS.get(role, "") if isinstance(role, str) else ""
    for converted in convert_to_llm([message]):
        if converted.get("role") == "user":
            return JevMessage("user", _content(converted.get("content")), label=label)
    return None


def _result(message: Message, place: int) -> ToolResult:
    call_id = _text(message.get("toolCallId")) or f"unnamed:{place}"
    return ToolResult(call_id, _content(message.get("content")), message.get("isError") is True)


def _content(content: object) -> str:
    """The texts of a content, and a note for each block that is neither text, thinking nor a call."""
    if not isinstance(content, list):
        return text_of(content)
    parts: list[str] = []
    for block in content:
        match block:
            case {"type": "text", "text": str(text)}:
                parts.append(text)
            case {"type": "text" | "thinking" | "redactedThinking" | "toolCall"}:
                pass
            case {"type": "image"}:
                parts.append("[an image was here]")
            case dict():
                parts.append("[content that is no text was here]")
    return "\n".join(parts)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def session_history(preparation: Preparation, snapshot: Snapshot) -> SessionHistory:
    """What a compaction would replace, and what it keeps.

    A previous summary of ours is read back as the messages it holds; any other one is the first message, word for
    word.
    """
    previous: list[JevMessage] = []
    if preparation.previous_summary:
        decoded = decode_summary(preparation.previous_summary)
        if decoded is None:
            decoded = [JevMessage("user", preparation.previous_summary, label="summary")]
        previous = decoded
    position = snapshot.position(preparation.first_kept_entry_id)
    kept = () if position is None else (snapshot.entries[index] for index in range(position, len(snapshot.entries)))
    return SessionHistory(
        replaced=[
            *previous,
            *to_jev_messages((*preparation.messages_to_summarize, *preparation.turn_prefix_messages)),
        ],
        kept=to_jev_messages(message for entry in kept for message in entry.read()),
    )


def model_tools(snapshot: Snapshot) -> frozenset[str]:
    """The names of the tools that the model has, as the session's system messages tell them."""
    system = snapshot.system_message
    tools = system.get("toolsAdded") if system is not None else None
    return frozenset(_text(tool.get("name")) for tool in tools or () if isinstance(tool, dict))


async def compact_session(
    preparation: Preparation,
    snapshot: Snapshot,
    asker: JevAsker | None = None,
    options: JevOptions | None = None,
    *,
    signal: AbortSignal | None = None,
    custom_instructions: str | None = None,
    tools: Iterable[str] | None = None,
) -> Compacted | Declined:
    """Compact what a preparation would have summarised.

    Without an ``asker`` the key of the environment is used. What is kept behind the cut is shown to Jev and never
    altered. ``tools`` are the names of the tools that the model has (by default those of the session's system
    messages); with a recovery tool among them the summary says how to find what left.

    Writes nothing. Every failure is a Declined; raises JevAborted at the signal.
    """
    options = options or JevOptions()
    try:
        if asker is not None:
            return await _compact(preparation, snapshot, asker, options, signal, custom_instructions, tools)

        from contexthost_jev.client import JevClient
        from contexthost_jev.keys import KEY_HELP, key_from_environment

        key = key_from_environment()
        if key is None:
            return Declined("no-key", f"no key was found: {KEY_HELP}")
        async with JevClient(key) as client:
            return await _compact(preparation, snapshot, client, options, signal, custom_instructions, tools)
    except JevFailure as failure:
        return Declined(failure.kind, str(failure))


async def _compact(
    preparation: Preparation,
    snapshot: Snapshot,
    asker: JevAsker,
    options: JevOptions,
    signal: AbortSignal | None,
    custom_instructions: str | None,
    tools: Iterable[str] | None,
) -> Compacted | Declined:
    history = session_history(preparation, snapshot)
    in_force = history.options(options, custom_instructions)
    outcome = await compact(history.messages, asker, in_force, signal=signal)
    match outcome:
        case NothingToPrune(reason="too-short"):
            return Declined("too-short", "the history is too short")
        case NothingToPrune():
            return Declined("nothing-to-score", "no tool call is left that could go")
        case DoesNotFit(tokens=tokens, budget=budget):
            return Declined("does-not-fit", f"the history needs {tokens:,} tokens of the {budget:,} that Jev may get")
        case Scored() as scored:
            pass
    after = scored.messages[: len(scored.messages) - len(history.kept)]
    before, left = history_chars(history.replaced), history_chars(after)
    reduction = reduction_ratio(before, left)
    if reduction < options.min_reduction_ratio:
        wanted = f"{options.min_reduction_ratio:.0%}"
        return Declined("not-worth-it", f"only {reduction:.1%} would go, and less than {wanted} is not worth it")
    actions = [decision.action for decision in scored.decisions]
    recovery = recovery_line(model_tools(snapshot) if tools is None else frozenset(tools))
    return Compacted(
        result=CompactionResult(
            summary=encode_summary(after, recovery),
            first_kept_entry_id=preparation.first_kept_entry_id,
            tokens_before=preparation.tokens_before,
            details=_details(scored, in_force, before, left),
        ),
        kept=actions.count("keep"),
        truncated=actions.count("truncate"),
        dropped=actions.count("drop"),
        reduction=reduction,
        requests=len(scored.plan.batches),
        milliseconds=scored.milliseconds,
    )


def _details(scored: Scored, options: JevOptions, before: int, after: int) -> dict[str, Any]:
    """What explains the run: two runs on one session may differ, since Jev answers at a temperature."""
    actions = [decision.action for decision in scored.decisions]
    return {
        "plugin": "jev",
        "format": DETAILS_FORMAT,
        "version": importlib.metadata.version("contexthost-jev"),
        "model": scored.model,
        "options": {camel(name): value for name, value in asdict(options).items() if name != "frozen_messages"},
        "decisions": [
            {
                "id": decision.call.id,
                "toolCallId": decision.call.use.id,
                "tool": decision.call.use.tool,
                "resultChars": len(decision.call.result.text),
                "keepCall": decision.keep_call,
                "keepResult": decision.keep_result,
                "action": decision.action,
            }
            for decision in scored.decisions
        ],
        "kept": actions.count("keep"),
        "truncated": actions.count("truncate"),
        "dropped": actions.count("drop"),
        "charsBefore": before,
        "charsAfter": after,
        "reductionRatio": reduction_ratio(before, after),
        "stage": str(scored.plan.fitted.stage),
        "stateTokens": scored.plan.fitted.tokens,
        "requests": len(scored.plan.batches),
        "requestTokens": [batch.tokens for batch in scored.plan.batches],
        "inputTokens": scored.input_tokens,
        "outputTokens": scored.output_tokens,
        "milliseconds": scored.milliseconds,
    }


def camel(name: str) -> str:
    """A field's name as a JSON key."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)
