"""The verbatim summary: a pruned history as one structured text, which a later round parses back.

The text has a heading line per part, with the number of characters that follow, so that any content stands word for
word, whatever it looks like::

    [user, 15]
    Fix the parser.

    [assistant]

    [call read, input 19, result 321, cut]
    {"path":"parse.py"}
    def parse(…

An ``[assistant]`` heading without a number has no text. A call belongs to the assistant message above it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from contexthost_jev.messages import JevMessage, ToolResult, ToolUse

__all__ = ["MARKER", "RECOVERY_TOOLS", "decode_summary", "encode_summary", "is_verbatim_summary", "recovery_line"]

MARKER: Final = "[verbatim history, kept by jev, format 1]"
"""The first line of every summary of this format."""

_ABOUT: Final = (
    "What users and the assistant wrote is here word for word. Some old tool calls were left out, and the output of "
    "others was cut where it says so. Numbers in headings count characters."
)
_END: Final = "[end of the verbatim history]"

RECOVERY_TOOLS: Final = {
    "context_tree_query": "search for words of it, or for the file or command",
    "recall": "ask for it by what it was about",
}
"""Tools that give back what left the context, and how to ask them."""

_PLAIN_NAME: Final = re.compile(r"[^\s,\[\]\"]+")
_NAME: Final = r"(?P<name>[^\s,\[\]\"]+|\"(?:[^\"\\]|\\.)*\")"
_HEADING: Final = re.compile(
    r"\[(?:"
    r"(?P<role>user|assistant)(?: (?P<label>[a-z-]+))?(?:, (?P<text>\d+))?"
    rf"|call {_NAME}, input (?P<input>\d+), (?:(?P<status>result|error) (?P<size>\d+)(?P<cut>, cut)?|no result)"
    r"|(?P<orphan>result|error) of a call that is not here, (?P<orphan_size>\d+)(?P<orphan_cut>, cut)?"
    r")\]"
)
_ID: Final = "summary:"


def recovery_line(tools: Collection[str]) -> str | None:
    """One line on how output that left can be found again with one of the model's tools; None when it has none."""
    ways = [f"`{tool}` ({how})" for tool, how in RECOVERY_TOOLS.items() if tool in tools]
    if not ways:
        return None
    return f"Output that was left out or cut is still in the session; the tool {' or '.join(ways)} finds it."


def is_verbatim_summary(summary: str) -> bool:
    """Whether a summary begins as ours do."""
    return summary.startswith(MARKER + "\n")


def encode_summary(messages: Sequence[JevMessage], recovery: str | None = None) -> str:
    """The history as a summary; a result stands with its call."""
    results = {result.id: result for message in messages for result in message.tool_results}
    called = {use.id for message in messages for use in message.tool_uses}
    parts = [f"{MARKER}\n{_ABOUT}"]
    for message in messages:
        parts.extend(_parts(message, results, called))
    parts.append(_END if recovery is None else f"{_END}\n{recovery}")
    return "\n\n".join(parts)


def _parts(message: JevMessage, results: dict[str, ToolResult], called: set[str]) -> Iterator[str]:
    if message.text or message.role == "assistant":
        label = f" {message.label}" if message.label else ""
        size, body = (f", {len(message.text)}", f"\n{message.text}") if message.text else ("", "")
        yield f"[{message.role}{label}{size}]{body}"
    for use in message.tool_uses:
        given = use.input_json
        name = use.tool if _PLAIN_NAME.fullmatch(use.tool) else json.dumps(use.tool)
        result = results.get(use.id)
        ending, body = ("no result", "") if result is None else (_status(result), f"\n{result.text}")
        yield f"[call {name}, input {len(given)}, {ending}]\n{given}{body}"
    for result in message.tool_results:
        if result.id not in called:
            status, _, rest = _status(result).partition(" ")
            yield f"[{status} of a call that is not here, {rest}]\n{result.text}"


def _status(result: ToolResult) -> str:
    return f"{'error' if result.is_error else 'result'} {len(result.text)}{', cut' if result.truncated else ''}"


def decode_summary(summary: str) -> list[JevMessage] | None:
    """The history that a summary holds; None when it is not one of ours, or not one any more.

    Calls get new ids, ``summary:1``, ``summary:2``, …; results follow their message in one message.
    """
    if not is_verbatim_summary(summary):
        return None
    try:
        return list(_messages(_sections(summary)))
    except _NotOurs:
        return None


class _NotOurs(Exception):
    """The text is not as `encode_summary` writes it."""


def _sections(summary: str) -> Iterator[tuple[re.Match[str], list[str]]]:
    """(heading, texts below it) for each section."""
    start = f"{MARKER}\n{_ABOUT}\n\n"
    if not summary.startswith(start):
        raise _NotOurs
    at = len(start)
    while True:
        if summary.startswith(_END, at):
            rest = summary[at + len(_END) :]
            if rest and not rest.startswith("\n"):
                raise _NotOurs
            return
        heading = _HEADING.match(summary, at)
        if heading is None:
            raise _NotOurs
        at = heading.end()
        texts: list[str] = []
        for group in ("text", "input", "size", "orphan_size"):
            if heading[group] is not None:
                end = at + 1 + int(heading[group])
                if not summary.startswith("\n", at) or end > len(summary):
                    raise _NotOurs
                texts.append(summary[at + 1 : end])
                at = end
        if not summary.startswith("\n\n", at):
            raise _NotOurs
        yield heading, texts
        at += 2


def _messages(sections: Iterable[tuple[re.Match[str], list[str]]]) -> Iterator[JevMessage]:
    calls = 0
    role, label, text = "", "", ""
    uses: list[ToolUse] = []
    results: list[ToolResult] = []

    def close() -> Iterator[JevMessage]:
        if role == "assistant":
            yield JevMessage("assistant", text, tuple(uses), label=label)
        elif role == "user":
            yield JevMessage("user", text, label=label)
        if results:
            yield JevMessage("user", tool_results=tuple(results))
        uses.clear()
        results.clear()

    for heading, texts in sections:
        if heading["role"]:
            yield from close()
            role, label, text = heading["role"], heading["label"] or "", texts[0] if texts else ""
            continue
        calls += 1
        if heading["orphan"]:
            results.append(
                ToolResult(f"{_ID}{calls}", texts[0], heading["orphan"] == "error", heading["orphan_cut"] is not None)
            )
            continue
        if role != "assistant":
            raise _NotOurs
        uses.append(ToolUse(f"{_ID}{calls}", _tool(heading["name"]), _json(texts[0])))
        if heading["status"]:
            truncated = heading["cut"] is not None
            results.append(ToolResult(f"{_ID}{calls}", texts[1], heading["status"] == "error", truncated))
    yield from close()


def _tool(name: str) -> str:
    decoded = _json(name) if name.startswith('"') else name
    if not isinstance(decoded, str):
        raise _NotOurs
    return decoded


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _NotOurs from error
