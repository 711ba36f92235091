"""What one entry contributes to the model's context, before and after context edits."""

from __future__ import annotations

from typing import Any, Final

from contexthost.messages import Message, timestamp_ms
from contexthost.session import Entry
from contexthost.tokens import TokenCounter, message_tokens

__all__ = ["MASK_PREFIX", "ProjectedEntry", "context_messages", "is_mask"]

MASK_PREFIX: Final = "[pi-compaction] Earlier "
"""How the one line begins that stands for a masked tool result (from the seed of the masking plugin)."""

_NULL_CONTENT: Final[dict[str, Any]] = {"system": "", "user": [], "assistant": [], "toolResult": []}
_EDITABLE_ROLES: Final = frozenset({"user", "assistant", "toolResult", "custom"})
_IMAGE_BOUND: Final = 1200


def context_messages(entry: Entry) -> tuple[Message, ...]:
    """The messages of an entry as it stands in the file, before any edit (Pi's ``sessionEntryToContextMessages``)."""
    if entry.type == "message":
        message = entry.read_message()
        if message is None:  # Pi 1.6.0 crashes on it
            return ()
        role = message.get("role")
        if message.get("content") is None and isinstance(role, str) and role in _NULL_CONTENT:
            return ({**message, "content": _NULL_CONTENT[role]},)
        return (message,)
    if entry.type == "custom_message":
        data = entry.read()
        content = data.get("content")
        message = {
            "role": "custom",
            "customType": data.get("customType"),
            "content": [] if content is None else content,
            "display": data.get("display"),
            "details": data.get("details"),
            "timestamp": timestamp_ms(entry.timestamp),
        }
        return ({key: value for key, value in message.items() if key in data or key not in ("display", "details")},)
    if entry.type == "branch_summary":
        summary = entry.data.get("summary")
        if not summary:
            return ()
        stamp = timestamp_ms(entry.timestamp)
        return ({"role": "branchSummary", "summary": summary, "fromId": entry.data.get("fromId"), "timestamp": stamp},)
    if entry.type == "compaction":
        data = entry.data
        summary_message = {
            "role": "compactionSummary",
            "summary": data.get("summary"),
            "tokensBefore": data.get("tokensBefore"),
            "timestamp": timestamp_ms(entry.timestamp),
        }
        system = data.get("systemMessage")
        return (system, summary_message) if isinstance(system, dict) else (summary_message,)
    return ()


def is_mask(replacement: Any) -> bool:
    """Whether a context edit's replacement is a mask: one line that begins with `MASK_PREFIX`."""
    if not isinstance(replacement, dict):
        return False
    content = replacement.get("content")
    if isinstance(content, list):
        if len(content) != 1 or not isinstance(content[0], dict) or content[0].get("type") != "text":
            return False
        content = content[0].get("text")
    return isinstance(content, str) and content.startswith(MASK_PREFIX) and "\n" not in content


class ProjectedEntry:
    """An entry of the context as the model sees it: immutable, with messages and token count made when asked for.

    Attributes:
        source: the session's entry.
        edit: the context edit in force, if any.
        previous: this entry before that edit; `base` before all of them.
    """

    __slots__ = ("_counter", "_masked", "_messages", "_shown", "_tokens", "edit", "previous", "source")

    def __init__(
        self,
        source: Entry,
        counter: TokenCounter,
        *,
        shown: bool = True,
        edit: Entry | None = None,
        previous: ProjectedEntry | None = None,
    ) -> None:
        self.source = source
        self.edit = edit
        self.previous = previous
        self._shown = shown  # False for an older compaction inside the kept range
        self._counter = counter
        self._messages: tuple[Message, ...] | None = None
        self._tokens: int | None = None
        self._masked: bool | None = None

    def __repr__(self) -> str:
        state = "masked" if self.masked else "omitted" if self.omitted else "replaced" if self.replaced else "as is"
        return f"ProjectedEntry({self.source!r}, {state})"

    @property
    def base(self) -> ProjectedEntry:
        """The entry without any edit."""
        at = self
        while at.previous is not None:
            at = at.previous
        return at

    def edited(self, edit: Entry) -> ProjectedEntry:
        """This entry under a further context edit."""
        return ProjectedEntry(self.source, self._counter, shown=self._shown, edit=edit, previous=self)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the model sees of it; usually one message, none when omitted. To be read, not written."""
        if self._messages is None:
            self._messages = self._project()
        return self._messages

    def read(self) -> tuple[Message, ...]:
        """As `messages`, but not kept: for whoever looks through a whole context, which is large when decoded."""
        return self._project() if self._messages is None else self._messages

    def _project(self) -> tuple[Message, ...]:
        if not self._shown:
            return ()
        messages = context_messages(self.source)
        if self.edit is None:
            return messages
        replacement = self.edit.data.get("replacement")
        if not isinstance(replacement, dict):  # null omits; anything else cannot be written by Pi
            return ()
        return tuple(_with_content(message, replacement.get("content")) for message in messages)

    @property
    def _ignores_edits(self) -> bool:
        """Whether replacements do not touch its messages: commands, summaries, system messages."""
        if self.source.type == "custom_message":
            return False
        return self.source.role not in _EDITABLE_ROLES

    @property
    def omitted(self) -> bool:
        """Whether an edit says that the model must not see it."""
        return self.edit is not None and not isinstance(self.edit.data.get("replacement"), dict)

    @property
    def masked(self) -> bool:
        """Whether the edit in force is a mask."""
        if self._masked is None:
            self._masked = self.edit is not None and is_mask(self.edit.data.get("replacement"))
        return self._masked

    @property
    def replaced(self) -> bool:
        """Whether an edit that is not a mask puts other content in its place."""
        return self.edit is not None and not self.omitted and not self.masked

    @property
    def tokens(self) -> int:
        """Tokens of its messages, counted at the first call."""
        if self._tokens is None:
            self._tokens = sum(message_tokens(message, self._counter) for message in self._counted())
        return self._tokens

    def _counted(self) -> tuple[Message, ...]:
        """Messages with as many tokens as its own. Those of a replacement do not depend on what it replaces."""
        replacement = self.edit.data.get("replacement") if self.edit is not None and self._messages is None else None
        if not isinstance(replacement, dict) or self.source.type != "message" or self._ignores_edits:
            return self.read()
        return ({"role": self.source.role, "content": replacement.get("content")},)

    @property
    def token_bounds(self) -> tuple[int, int]:
        """Bounds of `tokens` that cost nothing: exact once counted, before that from the length of the stored bytes."""
        if self._tokens is not None:
            return self._tokens, self._tokens
        if self.omitted or not self._shown:
            return 0, 0
        raw = self.source.raw if self.edit is None or self._ignores_edits else self.edit.raw
        # A token is at least one byte of text, and JSON never writes text in fewer bytes.
        return 0, len(raw) + _IMAGE_BOUND * raw.count(b"image")


def _with_content(message: Message, content: Any) -> Message:
    role = message.get("role")
    if not isinstance(role, str) or role not in _EDITABLE_ROLES:
        return message
    if role in ("assistant", "toolResult") and isinstance(content, str):
        content = [{"type": "text", "text": content}]
    return {**message, "content": content}
