"""Writes Pi session entries: ids, parents, a clock, and usage numbers that agree with the context."""

from __future__ import annotations

import json
import math
import random
import re
from datetime import UTC, datetime
from typing import Any

Json = dict[str, Any]

PROVIDER, API, MODEL = "anthropic", "anthropic-messages", "claude-sonnet-4-5"
# US dollars per million tokens of that model, as Pi's model list has them.
PRICES = {"input": 3.0, "output": 15.0, "cacheRead": 0.3, "cacheWrite": 3.75}
# The provider's own tokenizer counts about 5 % more than cl100k on this text; tool declarations come on top.
PROVIDER_FACTOR, TOOLS_TOKENS = 1.05, 2_500
CACHE_LIFETIME_MS = 5 * 60 * 1000
_BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_BASE64 = _BASE62 + "+/"

# Words (with one character before them), numbers, punctuation (with the newlines behind it), white space: how cl100k
# splits text before it looks up its vocabulary.
_PIECES = re.compile(r"([^\sA-Za-z\d]|[ \t])?([A-Za-z]+)|\d{1,3}|( ?[^\sA-Za-z\d]+)[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s")
# Fitted to cl100k on the text of the session itself: tokens per letter beyond seven, per character of punctuation
# beyond two, and for the character before a word.
WORD_TAIL, PUNCTUATION, LEAD = 0.14, 0.3, 0.45


def rough_tokens(text: str) -> int:
    """About what cl100k counts on code and English, within 2 % over a session; needs no vocabulary."""
    total = 0.0
    for lead, word, marks in _PIECES.findall(text):
        total += 1
        if word:
            total += max(0, len(word) - 7) * WORD_TAIL + (LEAD if lead.strip() else 0)
        elif marks:
            total += max(0, len(marks.strip()) - 2) * PUNCTUATION
    return round(total)


def compact(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def iso(ms: int) -> str:
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


def message_text(message: Json) -> str:
    """Everything of a message that a provider counts: text, thinking, calls, prompt sections, summaries."""
    if message["role"] == "bashExecution":
        return f"{message['command']}\n{message['output']}"
    content = message["content"]
    parts = [content] if isinstance(content, str) else []
    for block in [] if isinstance(content, str) else content:
        if block["type"] == "toolCall":
            parts += [block["name"], compact(block["arguments"])]
        else:
            parts.append(block.get("text") or block.get("thinking") or "")
    parts += [section for section in message.get("sections", {}).values() if section]
    return "\n".join(parts)


class SessionWriter:
    """Appends entries to a session held in memory, the way Pi does: every entry is a child of the leaf."""

    def __init__(self, rng: random.Random, *, start_ms: int, cwd: str) -> None:
        self.rng = rng
        self.now = start_ms
        self.leaf: str | None = None
        self.entries: list[Json] = []
        self._by_id: dict[str, Json] = {}
        self._tokens: dict[str, int] = {}
        self._cached = 0
        self._cached_at = 0
        # A version 7 UUID: milliseconds first, then random bits.
        tail = f"{rng.getrandbits(62) | 1 << 63:016x}"
        head = f"{start_ms:012x}7{rng.getrandbits(12):03x}{tail}"
        session_id = "-".join((head[:8], head[8:12], head[12:16], head[16:20], head[20:]))
        self.header: Json = {"type": "session", "version": 3, "id": session_id, "timestamp": iso(start_ms), "cwd": cwd}

    def wait(self, low_s: float, high_s: float) -> None:
        self.now += int(self.rng.uniform(low_s, high_s) * 1000)

    def random_text(self, alphabet: str, length: int) -> str:
        return "".join(self.rng.choice(alphabet) for _ in range(length))

    def call_id(self) -> str:
        return "toolu_01" + self.random_text(_BASE62, 22)

    def signature(self) -> str:
        return "Eo" + self.random_text(_BASE64, 94)

    def append(self, kind: str, **fields: Any) -> str:
        entry_id = f"{self.rng.getrandbits(32):08x}"
        while entry_id in self._by_id:
            entry_id = f"{self.rng.getrandbits(32):08x}"
        entry = {"type": kind, "id": entry_id, "parentId": self.leaf, "timestamp": iso(self.now), **fields}
        self.entries.append(entry)
        self._by_id[entry_id] = entry
        self.leaf = entry_id
        return entry_id

    def message(self, role: str, *, age_ms: int = 4, **fields: Any) -> str:
        return self.append("message", message={"role": role, **fields, "timestamp": self.now - age_ms})

    def branch(self) -> list[Json]:
        path: list[Json] = []
        current = self.leaf
        while current is not None:
            path.append(self._by_id[current])
            current = path[-1]["parentId"]
        return path[::-1]

    def context_tokens(self) -> int:
        """Rough tokens of what the model would see now: last compaction, what it kept, what came after, edits."""
        branch = self.branch()
        cut = max((n for n, entry in enumerate(branch) if entry["type"] == "compaction"), default=None)
        seen = branch
        total = 0
        if cut is not None:
            entry = branch[cut]
            kept = next(n for n, other in enumerate(branch) if other["id"] == entry["firstKeptEntryId"])
            seen = [e for e in branch[kept:cut] if e.get("message", {}).get("role") != "system"] + branch[cut + 1 :]
            total = rough_tokens(entry["summary"]) + rough_tokens(message_text(entry["systemMessage"]))
        omitted = {e["targetId"] for e in seen if e["type"] == "context_edit" and e["replacement"] is None}
        return total + sum(self._entry_tokens(entry) for entry in seen if entry["id"] not in omitted)

    def _entry_tokens(self, entry: Json) -> int:
        if entry["id"] not in self._tokens:
            text = message_text(entry["message"]) if entry["type"] == "message" else ""
            self._tokens[entry["id"]] = rough_tokens(entry["summary"] if entry["type"] == "branch_summary" else text)
        return self._tokens[entry["id"]]

    def prompt_tokens(self) -> int:
        """What the provider would count for a request with the present context."""
        return round(PROVIDER_FACTOR * self.context_tokens()) + TOOLS_TOKENS

    def forget_cache(self) -> None:
        """The prompt begins differently from here on (compaction, another branch): only its head is cached."""
        self._cached = min(self._cached, TOOLS_TOKENS)

    def usage(self, output_text: str, *, output_factor: float = PROVIDER_FACTOR) -> Json:
        """What the provider reports for a request with the present context and this output."""
        prompt = self.prompt_tokens()
        fresh = self.now - self._cached_at <= CACHE_LIFETIME_MS
        read = min(self._cached, prompt - 8) if fresh else 0
        plain = self.rng.randint(3, 8)
        counts = {
            "input": plain,
            "output": math.ceil(rough_tokens(output_text) * output_factor) + self.rng.randint(4, 12),
            "cacheRead": read,
            "cacheWrite": prompt - plain - read,
        }
        self._cached, self._cached_at = prompt, self.now
        return priced(counts)

    def assistant(self, content: list[Json], *, stop: str, usage: Json | None = None, **extra: Any) -> str:
        spent = usage or self.usage(message_text({"role": "assistant", "content": content}))
        started = self.now
        self.now += 1200 + spent["output"] * 14 + self.rng.randint(0, 900)
        return self.append(
            "message",
            message={
                "role": "assistant",
                "content": content,
                "api": API,
                "provider": PROVIDER,
                "model": MODEL,
                "usage": spent,
                "stopReason": stop,
                "timestamp": started,
                **extra,
            },
        )

    def lines(self) -> str:
        return "".join(compact(entry) + "\n" for entry in (self.header, *self.entries))


def priced(counts: dict[str, int]) -> Json:
    """A usage object: counts, their total, and what they cost in dollars."""
    cost = {key: round(count * PRICES[key] / 1_000_000, 8) for key, count in counts.items()}
    return {
        **counts,
        "totalTokens": sum(counts.values()),
        "cost": {**cost, "total": round(sum(cost.values()), 8)},
    }
