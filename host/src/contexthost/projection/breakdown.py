"""Where the context window goes: the tokens of a snapshot by category, and its largest entries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from contexthost.messages import Message, own_text
from contexthost.projection.entries import ProjectedEntry
from contexthost.projection.snapshot import Snapshot
from contexthost.tokens import TokenCounter, block_tokens, message_tokens

__all__ = ["ORDER", "Breakdown", "Category", "LargeEntry", "breakdown", "main_argument", "pieces"]

_CATEGORY_OF_ROLE: Final = {
    "system": "system",
    "user": "user",
    "custom": "user",
    "bashExecution": "user",
    "assistant": "assistant",
    "branchSummary": "summaries",
    "compactionSummary": "summaries",
}
_CATEGORY_OF_BLOCK: Final = {"thinking": "thinking", "toolCall": "tool calls"}
ORDER: Final = (
    "system", "user", "assistant", "thinking", "tool calls", "tool results", "summaries", "masked", "other",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Category:
    """A kind of content: ``name``, how many pieces of it there are, their tokens; ``tool`` for results of one tool."""

    name: str
    tool: str | None
    count: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LargeEntry:
    """An entry of the context; ``what`` names role or tool, ``argument`` a call's path or command, ``category`` the
    kind of content that most of its tokens are."""

    entry_id: str
    position: int
    what: str
    argument: str
    category: str
    tokens: int


@dataclass(frozen=True, slots=True)
class Breakdown:
    """``categories`` in a fixed order, results by tool with the largest first; ``largest`` by tokens; their sum."""

    categories: tuple[Category, ...]
    largest: tuple[LargeEntry, ...]
    tokens: int


def breakdown(snapshot: Snapshot, *, largest: int = 10) -> Breakdown:
    """Counts a snapshot by category; one pass over the context, with the counts remembered per entry where possible."""
    sums: dict[tuple[str, str | None], list[int]] = {}
    arguments: dict[str, str] = {}
    counter = snapshot._counter
    for entry in snapshot.entries:
        messages = entry.read()
        for message in messages:
            for call in _calls(message):
                if isinstance(call.get("id"), str):
                    arguments[call["id"]] = main_argument(call.get("arguments"))
        for key, tokens in _pieces(messages, entry.masked, counter):
            piece = sums.setdefault(key, [0, 0])
            piece[0] += 1
            piece[1] += tokens
    ranked = sorted(sums.items(), key=lambda item: (ORDER.index(item[0][0]), -item[1][1], item[0][1] or ""))
    categories = tuple(Category(name, tool, count, tokens) for (name, tool), (count, tokens) in ranked)
    big = sorted((entry for entry in snapshot.entries if entry.tokens), key=lambda entry: -entry.tokens)[:largest]
    return Breakdown(
        categories=categories,
        largest=tuple(_large(entry, arguments, counter) for entry in big),
        tokens=sum(category.tokens for category in categories),
    )


def main_argument(arguments: Any) -> str:
    """The argument that tells a tool call from others: its path or command, else its first text; "" if none."""
    if not isinstance(arguments, Mapping):
        return ""
    for key in ("path", "file_path", "command"):
        if isinstance(arguments.get(key), str):
            return str(arguments[key])
    return next((value for value in arguments.values() if isinstance(value, str)), "")


def pieces(entry: ProjectedEntry, counter: TokenCounter) -> Iterator[tuple[tuple[str, str | None], int]]:
    """An entry's content by category and, for results, tool, with the tokens of each piece."""
    return _pieces(entry.read(), entry.masked, counter)


def _pieces(
    messages: Sequence[Message], masked: bool, counter: TokenCounter
) -> Iterator[tuple[tuple[str, str | None], int]]:
    for message in messages:
        role = message.get("role")
        content = message.get("content")
        if masked:
            yield ("masked", None), message_tokens(message, counter)
        elif role == "toolResult":
            tool = message.get("toolName")
            yield ("tool results", tool if isinstance(tool, str) else ""), message_tokens(message, counter)
        elif role == "assistant" and isinstance(content, list):
            for block in content:
                kind = block.get("type") if isinstance(block, dict) else None
                name = _CATEGORY_OF_BLOCK.get(kind, "assistant") if isinstance(kind, str) else "assistant"
                yield (name, None), block_tokens(block, counter)
        else:
            name = _CATEGORY_OF_ROLE.get(role, "other") if isinstance(role, str) else "other"
            yield (name, None), message_tokens(message, counter)


def _calls(message: Message) -> Iterator[Mapping[str, Any]]:
    content = message.get("content")
    if message.get("role") == "assistant" and isinstance(content, list):
        for block in content:
            if isinstance(block, dict) and block.get("type") == "toolCall":
                yield block


def _large(entry: ProjectedEntry, arguments: Mapping[str, str], counter: TokenCounter) -> LargeEntry:
    message = entry.read()[-1]
    role = own_text(message.get("role"))
    what, argument = role or "message", ""
    if role == "toolResult":
        what = own_text(message.get("toolName")) or "tool result"
        argument = arguments.get(own_text(message.get("toolCallId")), "")
    elif role == "bashExecution":
        argument = own_text(message.get("command"))
    else:
        calls = list(_calls(message))
        if calls:
            what = "assistant → " + ", ".join(own_text(call.get("name"), "(no name)") for call in calls)
            argument = main_argument(calls[0].get("arguments"))
    return LargeEntry(
        entry.source.id, entry.source.position, what, argument, _main_category(entry, counter), entry.tokens
    )


def _main_category(entry: ProjectedEntry, counter: TokenCounter) -> str:
    sums = dict.fromkeys(ORDER, 0)
    for (name, _), tokens in pieces(entry, counter):
        sums[name] += tokens
    return max(ORDER, key=sums.__getitem__)  # the first of several
