"""Spreading the questions over as few requests as fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from contexthost_jev.questions import QuestionPair, Questions

__all__ = ["ENVELOPE_TOKENS", "Batch", "batch_calls"]

ENVELOPE_TOKENS: Final = 20
"""Set aside in each request for the keys and brackets around state and questions (12.9 by our estimate)."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The questions of one request; ``tokens`` is the estimate of the whole request."""

    pairs: tuple[QuestionPair, ...]
    tokens: int

    @property
    def questions(self) -> Questions:
        """All questions of the request by name."""
        return {name: question for pair in self.pairs for name, question in pair.questions.items()}


def batch_calls(pairs: Iterable[QuestionPair], state_tokens: int, max_request_tokens: int) -> Sequence[Batch]:
    """Requests of at most ``max_request_tokens``, filled in order; the two questions of a call stay together.

    Each costs the state, `ENVELOPE_TOKENS` and its pairs. Raises ValueError when a pair fits no request.
    """
    start = state_tokens + ENVELOPE_TOKENS
    batches: list[Batch] = []
    current: list[QuestionPair] = []
    tokens = start
    for pair in pairs:
        if start + pair.tokens > max_request_tokens:
            raise ValueError(f"the questions about {pair.call.id} do not fit into one request with the state")
        if tokens + pair.tokens > max_request_tokens:
            batches.append(Batch(tuple(current), tokens))
            current, tokens = [], start
        current.append(pair)
        tokens += pair.tokens
    if current:
        batches.append(Batch(tuple(current), tokens))
    return batches
