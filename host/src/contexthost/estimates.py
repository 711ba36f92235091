"""What a way to make room would leave: the answers of ``context_estimates``."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Estimate", "Prices"]


@dataclass(frozen=True, slots=True)
class Prices:
    """Dollars per million tokens: ``read`` from the prompt cache, ``write`` into it (or sent anew)."""

    read: float
    write: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What one way to make room would leave of a context; nothing has been done yet.

    Attributes:
        what: the way, in a few words.
        command: the command line that takes it, with ``SESSION`` for the session; empty when there is none.
        tokens_after: what would be left, in tokens by the host's counter (compare with ``snapshot.tokens``); None when
            there is nothing to do now.
        rewritten_tokens: those of ``tokens_after`` that a warm prompt cache would not have any more; None for all.
        at_least: whether ``tokens_after`` is the least that could be left, rather than the expected figure.
        note: a sentence or two: why nothing is to be done, what the figure leaves out.
        prices: what tokens cost, if the plugin knows better than the session shows.
    """

    what: str
    command: str = ""
    tokens_after: int | None = None
    rewritten_tokens: int | None = None
    at_least: bool = False
    note: str = ""
    prices: Prices | None = None
