"""Session files written line by line, for tests that want to show what is in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Content = str | list[Any] | None
Bytes = bytes  # the builtin, for a class that has a method of this name

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)
USAGE_ZERO: Json = {
    **dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "totalTokens"), 0),
    "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite", "total"), 0),
}
_LEAF: Any = object()  # "the current leaf", where None already means "no parent"
_UNSET: Any = object()


class Literal:
    """Bytes that stand in a line exactly as given: `Literal(b"1e21")`, `Literal(b'"\\xff"')`."""

    def __init__(self, data: bytes) -> None:
        self.data = data


def encode(value: Any, *, ascii_only: bool = False) -> bytes:
    """One line of JSON as Pi writes it, without the line feed; lone surrogates are escaped, `Literal`s put in."""
    literals: list[bytes] = []

    def stand_in(item: Any) -> str:
        if not isinstance(item, Literal):
            raise TypeError(f"not JSON: {item!r}")
        literals.append(item.data)
        return f"\x1a{len(literals) - 1}\x1a"

    text = json.dumps(value, ensure_ascii=ascii_only, separators=(",", ":"), default=stand_in)
    text = re.sub("[\ud800-\udfff]", lambda found: f"\\u{ord(found[0]):04x}", text)
    line = text.encode()
    return re.sub(rb'"\\u001a(\d+)\\u001a"', lambda found: literals[int(found[1])], line)


def text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def image_block() -> Json:
    return {"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}


def tool_call(call_id: str, name: str, arguments: Json | None = None) -> Json:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": {} if arguments is None else arguments}


def usage_of(total: int) -> Json:
    """A provider's usage of `total` tokens, of which 10 are output."""
    return {**USAGE_ZERO, "input": total - 10, "output": 10, "totalTokens": total}


class SessionBuilder:
    """Builds a session file, entry by entry.

    Every method that writes an entry returns its id and makes it the leaf, as Pi does. Ids are `00000001`,
    `00000002`, … and each entry is one second younger than the one before. With `version=1` the entries carry
    neither id nor parent (the ids returned are in no file) and `compaction` takes the index of the first kept line.
    """

    def __init__(self, *, version: Any = 3, cwd: str = "/project", header: Json | None = None) -> None:
        self.linear = version in (None, 1)
        self.leaf: str | None = None
        self.preface = b""  # what stands before the header
        self.lines: list[Bytes] = []
        self.line_end = b"\n"
        self.ascii_only = False
        self.count = 0
        self.parents: dict[str, str | None] = {}  # of the entry that an id names: the last one written with it
        first: Json = {"type": "session", "version": version, "id": "session-1", "timestamp": self._now(), "cwd": cwd}
        if version is None:
            del first["version"]
        self.header = {**first, **(header or {})}

    # -- lines ---------------------------------------------------------------------------------------------------

    def bytes(self) -> Bytes:
        """The whole file."""
        return self.preface + encode(self.header) + b"\n" + b"".join(self.lines)

    def write(self, path: Path) -> Path:
        path.write_bytes(self.bytes())
        return path

    def raw(self, line: Bytes, *, end: Bytes | None = None) -> None:
        """A line as it is; `end=b""` makes it a torn tail."""
        self.lines.append(line + (self.line_end if end is None else end))

    def entry(self, type_: Any, *, id: str | None = None, parent: Any = _LEAF, **fields: Any) -> str:
        """An entry of any type. `parent` may be given to hang it elsewhere than on the leaf."""
        self.count += 1
        entry_id = self.id_at(self.count) if id is None else id
        parent_id = self.leaf if parent is _LEAF else parent
        tree = {} if self.linear else {"id": entry_id, "parentId": parent_id}
        self.raw(encode({"type": type_, **tree, "timestamp": self._now(), **fields}, ascii_only=self.ascii_only))
        self.parents[entry_id] = parent_id
        self.leaf = entry_id
        return entry_id

    def id_at(self, count: int) -> str:
        """The id that the `count`-th entry gets (from 1), also of one that is still to be written."""
        return f"{count:08x}"

    def branch_from(self, entry_id: str | None) -> None:
        """Moves the leaf: the next entry becomes a child of this one, or a new root."""
        self.leaf = entry_id

    def _now(self) -> str:
        moment = START + timedelta(seconds=self.count)
        return moment.strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"

    def _milliseconds(self) -> int:
        return int((START + timedelta(seconds=self.count + 1)).timestamp() * 1000)

    # -- messages ------------------------------------------------------------------------------------------------

    def message(self, message: Any, **fields: Any) -> str:
        return self.entry("message", message=message, **fields)

    def user(self, content: Content, **extra: Any) -> str:
        return self.message({"role": "user", "content": content, "timestamp": self._milliseconds(), **extra})

    def assistant(
        self,
        text: Content = None,
        *,
        thinking: str | None = None,
        calls: Sequence[Json] = (),
        usage: Any = _UNSET,
        stop_reason: str | None = None,
        provider: str = "anthropic",
        model: str = "claude-sonnet-4-5",
        **extra: Any,
    ) -> str:
        """A reply: thinking, text (a string, or the list of blocks) and tool calls. Usage is all zero unless given."""
        blocks: list[Any] = [] if thinking is None else [{"type": "thinking", "thinking": thinking}]
        if isinstance(text, str):
            blocks.append(text_block(text))
        elif text is not None:
            blocks.extend(text)
        blocks.extend(calls)
        reply: Json = {
            "role": "assistant",
            "content": blocks,
            "api": "anthropic-messages",
            "provider": provider,
            "model": model,
            "usage": USAGE_ZERO if usage is _UNSET else usage,
            "stopReason": stop_reason or ("toolUse" if calls else "stop"),
            "timestamp": self._milliseconds(),
        }
        return self.message({**reply, **extra})

    def tool_result(
        self, call_id: str, content: Content = "", *, tool: str = "read", is_error: bool = False, **extra: Any
    ) -> str:
        """The result of a call; a string becomes one text block."""
        result: Json = {"role": "toolResult", "toolCallId": call_id, "toolName": tool}
        result["content"] = [text_block(content)] if isinstance(content, str) else content
        return self.message({**result, "isError": is_error, "timestamp": self._milliseconds(), **extra})

    def system(
        self,
        content: Content,
        *,
        sections: dict[str, str | None] | None = None,
        tools_added: Sequence[Json] | None = None,
        tools_removed: Iterable[str] | None = None,
        **extra: Any,
    ) -> str:
        return self.message({**self.system_message(content, sections, tools_added, tools_removed), **extra})

    def system_message(
        self,
        content: Content,
        sections: dict[str, str | None] | None = None,
        tools_added: Sequence[Json] | None = None,
        tools_removed: Iterable[str] | None = None,
    ) -> Json:
        """A system message that is not an entry, for a compaction's checkpoint."""
        message: Json = {"role": "system", "content": content}
        if sections is not None:
            message["sections"] = sections
        if tools_added is not None:
            message["toolsAdded"] = list(tools_added)
        if tools_removed is not None:
            message["toolsRemoved"] = [{"name": name} for name in tools_removed]
        return {**message, "timestamp": self._milliseconds()}

    def bash(self, command: str, output: str, *, exit_code: Any = 0, exclude: bool = False, **extra: Any) -> str:
        """A command that the user ran (`!`), or one hidden from the model (`!!`, `exclude=True`)."""
        run: Json = {"role": "bashExecution", "command": command, "output": output, "exitCode": exit_code}
        run |= {"cancelled": False, "truncated": False, "timestamp": self._milliseconds()}
        if exclude:
            run["excludeFromContext"] = True
        return self.message({**run, **extra})

    # -- other entries -------------------------------------------------------------------------------------------

    def edit(self, target: str, replacement: Any) -> str:
        """A context edit: None omits the target; a string or a list of blocks takes the place of its content."""
        if isinstance(replacement, str | list):
            replacement = {"content": replacement}
        return self.entry("context_edit", targetId=target, replacement=replacement)

    def compaction(
        self,
        summary: str,
        first_kept: str | int | None = None,
        *,
        tokens_before: int = 1000,
        system_message: Json | None = None,
        **extra: Any,
    ) -> str:
        """A compaction that keeps from `first_kept` on; None keeps nothing (its own id, as Pi writes it then).

        An integer is written as version 1's `firstKeptEntryIndex`: the header's line has index 0.
        """
        kept: Json = {"firstKeptEntryIndex": first_kept}
        if not isinstance(first_kept, int):
            kept = {"firstKeptEntryId": first_kept or self.id_at(self.count + 1)}
        if system_message is not None:
            kept["systemMessage"] = system_message
        return self.entry("compaction", summary=summary, tokensBefore=tokens_before, **{**kept, **extra})

    def branch_summary(self, summary: str, from_id: str = "root", **extra: Any) -> str:
        return self.entry("branch_summary", fromId=from_id, summary=summary, **extra)

    def custom_message(
        self, custom_type: str, content: Content, *, display: bool = True, details: Any = None, **extra: Any
    ) -> str:
        fields = {"customType": custom_type, "content": content, "display": display, "details": details}
        return self.entry("custom_message", **fields, **extra)

    def custom(self, custom_type: str, data: Any = None) -> str:
        return self.entry("custom", customType=custom_type, data=data)

    def label(self, target: str, label: str | None) -> str:
        return self.entry("label", targetId=target, **({} if label is None else {"label": label}))

    def model_change(self, provider: str, model_id: str) -> str:
        return self.entry("model_change", provider=provider, modelId=model_id)

    def thinking(self, level: str) -> str:
        return self.entry("thinking_level_change", thinkingLevel=level)

    def usage(self, kind: str = "cache_warm", usage: Any = _UNSET) -> str:
        counted = usage_of(100) if usage is _UNSET else usage
        return self.entry("usage", kind=kind, provider="anthropic", model="claude-sonnet-4-5", usage=counted)

    def session_info(self, name: str) -> str:
        return self.entry("session_info", name=name)
