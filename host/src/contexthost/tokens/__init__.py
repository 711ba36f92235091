"""Counting tokens and judging how full the context window is."""

from contexthost.tokens.counter import TiktokenCounter, TokenCounter, block_tokens, default_counter, message_tokens
from contexthost.tokens.usage import EffectiveUsage, effective_usage

__all__ = [
    "EffectiveUsage",
    "TiktokenCounter",
    "TokenCounter",
    "block_tokens",
    "default_counter",
    "effective_usage",
    "message_tokens",
]
