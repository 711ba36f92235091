"""Making the projected messages safe to send: every call answered once, every result owned, nothing lost silently."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from contexthost.messages import Message, convert_to_llm

__all__ = ["Mend", "mend"]

NO_RESULT: Final = "No result provided"
"""What stands for a missing tool result: Pi's own text, so that switching between the two costs no cache miss."""


@dataclass(frozen=True, slots=True)
class Mend:
    """One change that `mend` made to what would be sent.

    Attributes:
        kind: ``orphan-result`` and ``duplicate-result`` were left out, ``unanswered-call`` got a synthetic error
            result, ``late-result`` was moved up to its call, ``failed-attempt`` (an aborted or failed answer) was
            left out as Pi leaves it out, ``repeated-call`` (an id twice in one message, or none) was left out,
            ``late-system`` was moved behind the results it stood between.
        tool_call_id: the call concerned; None for the last two kinds.
        index: the message's place in the projected, converted messages.
    """

    kind: Literal[
        "orphan-result",
        "duplicate-result",
        "unanswered-call",
        "late-result",
        "repeated-call",
        "failed-attempt",
        "late-system",
    ]
    tool_call_id: str | None
    index: int


def mend(messages: Iterable[Message]) -> tuple[list[Message], list[Mend]]:
    """Converts messages to those of a provider request and mends what providers refuse.

    After it, each assistant message is followed at once by exactly one result for each of its calls, in call order,
    and no other result exists. Messages that need no change are passed on as the same objects.
    """
    source = convert_to_llm(messages)
    mends: list[Mend] = []
    results = _first_results(source, mends)
    inside = _inside_batches(source)
    out: list[Message] = []
    for index, message in enumerate(source):
        role = message.get("role")
        if role == "toolResult":
            continue  # placed right behind its call, or reported by _first_results
        if _failed(message):
            mends.append(Mend("failed-attempt", None, index))
            continue
        if index in inside:
            mends.append(Mend("late-system", None, index))
        if role != "assistant":
            out.append(message)
            continue
        out.append(_without_repeated_calls(message, index, mends))
        for call_id, name in _calls(message):
            found = results.pop((index, call_id), None)
            if found is None:
                mends.append(Mend("unanswered-call", call_id, index))
                out.append(_no_result(call_id, name, message.get("timestamp")))
            else:
                out.append(source[found])
    return out, mends


def _first_results(source: list[Message], mends: list[Mend]) -> dict[tuple[int, str], int]:
    """For each call, as (index of its message, id), where its result stands; reports results that answer nothing."""
    owner: dict[str, int] = {}
    answered: dict[tuple[int, str], int] = {}
    last_other = -1  # the newest message that may not stand between a call and its result
    for index, message in enumerate(source):
        role = message.get("role")
        if role == "toolResult":
            call_id = message.get("toolCallId")
            if not isinstance(call_id, str) or call_id not in owner:
                mends.append(Mend("orphan-result", call_id if isinstance(call_id, str) else None, index))
            elif (owner[call_id], call_id) in answered:
                mends.append(Mend("duplicate-result", call_id, index))
            else:
                answered[owner[call_id], call_id] = index
                if last_other > owner[call_id]:
                    mends.append(Mend("late-result", call_id, index))
        elif role in ("user", "assistant") and not _failed(message):
            last_other = index
            if role == "assistant":
                for call_id, _ in _calls(message):
                    owner[call_id] = index
    return answered


def _failed(message: Message) -> bool:
    return message.get("role") == "assistant" and message.get("stopReason") in ("aborted", "error")


def _without_repeated_calls(message: Message, index: int, mends: list[Mend]) -> Message:
    """The message without calls that repeat an id of the same message or have none: no result could answer them."""
    content = message.get("content")
    if not isinstance(content, list):
        return message
    seen: set[str] = set()
    kept: list[Any] = []
    for block in content:
        if isinstance(block, dict) and block.get("type") == "toolCall":
            call_id = block.get("id")
            if not isinstance(call_id, str) or call_id in seen:
                mends.append(Mend("repeated-call", call_id if isinstance(call_id, str) else None, index))
                continue
            seen.add(call_id)
        kept.append(block)
    return message if len(kept) == len(content) else {**message, "content": kept}


def _inside_batches(source: list[Message]) -> set[int]:
    """The system messages that tool results follow, so that they stand between a call and its result."""
    inside: set[int] = set()
    follower: Any = None  # the role of the next message that is not a system message
    for index in range(len(source) - 1, -1, -1):
        role = source[index].get("role")
        if role != "system":
            follower = role
        elif follower == "toolResult":
            inside.add(index)
    return inside


def _calls(message: Message) -> Iterator[tuple[str, Any]]:
    """The calls of an assistant message, each id once."""
    seen: set[str] = set()
    content = message.get("content")
    for block in content if isinstance(content, list) else ():
        if isinstance(block, dict) and block.get("type") == "toolCall":
            call_id = block.get("id")
            if isinstance(call_id, str) and call_id not in seen:
                seen.add(call_id)
                yield call_id, block.get("name")


def _no_result(call_id: str, name: Any, timestamp: Any) -> Message:
    return {
        "role": "toolResult",
        "toolCallId": call_id,
        "toolName": name if isinstance(name, str) else "",
        "content": [{"type": "text", "text": NO_RESULT}],
        "isError": True,
        "timestamp": timestamp,
    }
