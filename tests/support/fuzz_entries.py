"""Entries of known types that say nonsense: they point anywhere, and hold what Pi, host and plugins look for."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from support.fuzz_values import nasty

__all__ = ["STRANGE_ENTRIES"]

Json = dict[str, Any]
_NOBODY: Final = ["missing", "", "root", None, 7]
_CUSTOM_TYPES: Final = [
    "contexthost:held", "contexthost:sent", "contexthost.doctor", "context-relay:resend", "subagents:record",
    "subagent-notification", "jev", "masking", "note", "",
]  # fmt: skip


def _pointer(draw: random.Random, known: list[str]) -> Any:
    return draw.choice([*known, *known, *_NOBODY])


def _maybe(draw: random.Random, known: list[str], usual: Any) -> Any:
    """The usual value, or a nasty one."""
    return usual if draw.random() < 0.6 else nasty(draw, known)


def _edit(draw: random.Random, known: list[str]) -> Json:
    mask = "[pi-compaction] Earlier read src/a.py (1,234 tokens)"
    usual = draw.choice([None, {"content": mask}, {"content": "other"}, {"content": [{"type": "text", "text": mask}]}])
    return {"type": "context_edit", "targetId": _pointer(draw, known), "replacement": _maybe(draw, known, usual)}


def _details(draw: random.Random, known: list[str]) -> Json:
    """What plugins keep in a compaction's details."""
    item = {"type": "compaction", "encrypted_content": _maybe(draw, known, "b3BhcXVl")}
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
    history = draw.choice([[user, item], [item], [item, user], [], [_maybe(draw, known, user), item]])
    native = {"kind": "contexthost-codex-native", "version": _maybe(draw, known, 1), "replacementHistory": history}
    native |= {
        "modelKey": _maybe(draw, known, "openai:openai-responses:gpt-5"),
        "portable": _maybe(draw, known, {"goal": "a"}),
    }
    jev = {"plugin": "jev", "format": 1, "kept": _maybe(draw, known, 3), "reductionRatio": _maybe(draw, known, 0.4)}
    files = {"readFiles": _maybe(draw, known, ["a.py"]), "modifiedFiles": _maybe(draw, known, ["b.py"])}
    made: Json = draw.choice([native, native, jev, files])
    return made


def _compaction(draw: random.Random, known: list[str]) -> Json:
    marker = "<<context-relay:6d1f0c52-3b7e-4a08-9a44-0e2f5b1c7d93>>"
    entry: Json = {
        "type": "compaction",
        "summary": _maybe(draw, known, draw.choice(["What was before.", f"{marker}\n## Goal\nnote", ""])),
        "firstKeptEntryId": _pointer(draw, known),
        "tokensBefore": _maybe(draw, known, 1_000),
    }
    if draw.random() < 0.6:
        entry["details"] = _maybe(draw, known, _details(draw, known))
    if draw.random() < 0.3:
        entry["fromHook"] = _maybe(draw, known, True)
    if draw.random() < 0.3:
        entry["systemMessage"] = _maybe(draw, known, {"role": "system", "content": "Be brief.", "sections": {"a": "b"}})
    if draw.random() < 0.2:
        entry["usage"] = _maybe(draw, known, {"input": 5, "output": 5, "totalTokens": 10})
    return entry


def _custom(draw: random.Random, known: list[str]) -> Json:
    """A plugin's or the host's own record."""
    ids = _maybe(draw, known, ["h1"])
    data = {
        "id": _maybe(draw, known, "h1"), "ids": ids, "how": "sent", "text": "held",
        "sha256": _maybe(draw, known, "0" * 64),
        "images": _maybe(draw, known, 2), "items": _maybe(draw, known, []), "passedOverLine": _maybe(draw, known, 3),
        "result": _maybe(draw, known, "done"), "status": _maybe(draw, known, "completed"), "trigger": "input",
        "description": _maybe(draw, known, "look"), "startedAt": _maybe(draw, known, 1_796_040_000_000),
    }  # fmt: skip
    return {"type": "custom", "customType": draw.choice(_CUSTOM_TYPES), "data": _maybe(draw, known, data)}


def _custom_message(draw: random.Random, known: list[str]) -> Json:
    told = "<task-notification><task-id>a</task-id><status>completed</status><result>r</result></task-notification>"
    details = {"id": "a", "status": _maybe(draw, known, "completed"), "others": _maybe(draw, known, [{}])}
    return {
        "type": "custom_message",
        "customType": draw.choice(_CUSTOM_TYPES),
        "content": _maybe(draw, known, draw.choice(["text", told, [{"type": "text", "text": told}]])),
        "display": _maybe(draw, known, True),
        "details": _maybe(draw, known, details),
    }


def _subagent(draw: random.Random, known: list[str]) -> Json:
    """A subagent's result, as the relay reads it."""
    message = {
        "role": "toolResult",
        "toolCallId": _pointer(draw, known),
        "toolName": "Agent",
        "content": _maybe(draw, known, [{"type": "text", "text": "Agent started in background. Agent ID: a-1"}]),
        "details": _maybe(draw, known, {"agentId": "a-1", "overflow": _maybe(draw, known, {"id": "o-1"})}),
        "nestedCalls": _maybe(
            draw, known, {"calls": [{"name": "read", "arguments": _maybe(draw, known, {"path": "a"})}]}
        ),
        "isError": _maybe(draw, known, False),
        "timestamp": _maybe(draw, known, 1_796_040_000_000),
    }
    return {"type": "message", "message": message}


def _call(draw: random.Random, known: list[str]) -> Json:
    arguments = {
        "path": _maybe(draw, known, "src/a.py"),
        "todos": _maybe(draw, known, [{"content": "a", "status": "pending"}]),
    }
    name = draw.choice(
        ["read", "write", "edit", "bash", "Agent", "TodoWrite", "context_tree_query", "recall", "a b", ""]
    )
    call = {
        "type": "toolCall",
        "id": _maybe(draw, known, "call-1"),
        "name": name,
        "arguments": _maybe(draw, known, arguments),
    }
    message = {
        "role": "assistant",
        "content": [call, *([_maybe(draw, known, {"type": "text", "text": "and"})] if draw.random() < 0.3 else [])],
        "api": _maybe(draw, known, "anthropic-messages"),
        "provider": _maybe(draw, known, "anthropic"),
        "model": _maybe(draw, known, "claude-sonnet-4-5"),
        "stopReason": _maybe(draw, known, "toolUse"),
        "usage": _maybe(
            draw, known, {"input": 10, "output": _maybe(draw, known, 5), "cacheRead": 0, "totalTokens": 15}
        ),
        "timestamp": _maybe(draw, known, 1_796_040_000_000),
    }
    return {"type": "message", "message": message}


def _user(draw: random.Random, known: list[str]) -> Json:
    message = {"role": "user", "content": _maybe(draw, known, "And then?"), "timestamp": _maybe(draw, known, 1)}
    return {"type": "message", "message": message}


def _system(draw: random.Random, known: list[str]) -> Json:
    message = {
        "role": "system",
        "content": _maybe(draw, known, "Be brief."),
        "sections": _maybe(draw, known, {"skills": _maybe(draw, known, "many"), "a": None}),
        "toolsAdded": _maybe(
            draw, known, [{"name": _maybe(draw, known, "read"), "parameters": _maybe(draw, known, {})}]
        ),
        "toolsRemoved": _maybe(draw, known, [_maybe(draw, known, {"name": "read"})]),
        "timestamp": 1,
    }
    return {"type": "message", "message": message}


def _bash(draw: random.Random, known: list[str]) -> Json:
    message = {
        "role": "bashExecution",
        "command": _maybe(draw, known, "ls"),
        "output": _maybe(draw, known, "a"),
        "exitCode": _maybe(draw, known, 0),
        "cancelled": _maybe(draw, known, False),
        "truncated": _maybe(draw, known, True),
        "fullOutputPath": _maybe(draw, known, "/out"),
        "excludeFromContext": _maybe(draw, known, False),
    }
    return {"type": "message", "message": message}


def _branch_summary(draw: random.Random, known: list[str]) -> Json:
    fields = {"fromId": _pointer(draw, known), "summary": _maybe(draw, known, "Tried something."), "fromHook": True}
    return {"type": "branch_summary", **fields, "details": _maybe(draw, known, _details(draw, known))}


def _small(draw: random.Random, known: list[str]) -> Json:
    entries: list[Json] = [
        {"type": "label", "targetId": _pointer(draw, known), "label": _maybe(draw, known, "here")},
        {"type": "session_info", "name": _maybe(draw, known, "a name")},
        {"type": "model_change", "provider": _maybe(draw, known, "openai"), "modelId": _maybe(draw, known, "gpt-5")},
        {"type": "thinking_level_change", "thinkingLevel": _maybe(draw, known, "high")},
        {"type": "usage", "kind": "cache_warm", "usage": _maybe(draw, known, {"input": 1, "totalTokens": 1})},
        {"type": _maybe(draw, known, "brand_new"), "payload": nasty(draw, known)},
    ]
    return draw.choice(entries)


STRANGE_ENTRIES: Final[tuple[Callable[[random.Random, list[str]], Json], ...]] = (
    _edit, _edit, _compaction, _compaction, _custom, _custom_message, _subagent, _call, _call, _user, _system, _bash,
    _branch_summary, _small,
)  # fmt: skip
"""Each makes the keys of an entry but for id, parent and time; from a source of random numbers and ids of the file."""
