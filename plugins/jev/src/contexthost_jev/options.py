"""What a compaction by Jev can be told."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["JevOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JevOptions:
    """Thresholds and budgets; the defaults are those of the settings.

    Attributes:
        keep_threshold: the least probability, 0 to 1, at which a call stays.
        keep_result_threshold: the same for a whole result; None takes ``keep_threshold``. Jev's answers about results
            run lower than those about calls (means of 0.25 to 0.40), so a lower one keeps more.
        preserve_recent_messages: the newest messages that are never touched; the first one never is either.
        min_reduction_ratio: below this share of characters a compaction is not worth it (for the session adapter;
            `compact` reports what it finds).
        max_state_tokens: estimated tokens of the state.
        max_request_tokens: estimated tokens of one request, state and questions.
        truncate_head_chars: what stays of a truncated result, in characters.
        goal: what the session is after; None takes the last prompts.
        frozen_messages: messages at the end that are there for Jev's eyes alone: never touched, never asked about.
    """

    keep_threshold: float = 0.5
    keep_result_threshold: float | None = None
    preserve_recent_messages: int = 6
    min_reduction_ratio: float = 0.25
    max_state_tokens: int = 25_000
    max_request_tokens: int = 30_000
    truncate_head_chars: int = 300
    goal: str | None = None
    frozen_messages: int = 0

    @property
    def result_threshold(self) -> float:
        """The threshold for results that is in force."""
        return self.keep_threshold if self.keep_result_threshold is None else self.keep_result_threshold

    def is_pinned(self, index: int, count: int) -> bool:
        """Whether the message at ``index`` of ``count`` must not be touched."""
        return index == 0 or index >= count - max(self.preserve_recent_messages, self.frozen_messages)

    def is_recent(self, index: int, count: int) -> bool:
        """Whether the state shows this message as fully as it can: the first one and the newest ones."""
        return index == 0 or index >= count - self.preserve_recent_messages
