"""Shows which answers count as context overflow: real texts of real providers, and what only looks like them."""

from __future__ import annotations

import pytest

from contexthost.models import is_context_overflow, is_recoverable_length

OVERFLOWS = [
    '400: {"message":"This model\'s maximum context length is 128000 tokens. However, you sent 130000"}',
    "OpenAI API error (400): Your input exceeds the context window of this model. Please adjust your input",
    '400: {"code":"context_length_exceeded"}',
    "prompt is too long: 213462 tokens > 200000 maximum",
    '413 {"error":{"type":"request_too_large","message":"Request exceeds the maximum size"}}',
    "litellm.ContextWindowExceededError: Context Window exceeded for given call.",
    "Requested token count exceeds the model's maximum context length of 131072 tokens",
    "Input length (265330) exceeds model's maximum context length (262144).",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens",
    "Please reduce the length of the messages or completion",
    "Input length 9 exceeds the maximum allowed input length of 131,056 tokens.",
    "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
    "the request exceeds the available context size, try increasing it",
    "tokens to keep from the initial prompt is greater than the context length",
    "prompt token count of 140000 exceeds the limit of 128000",
    "invalid params, context window exceeds limit",
    "Your request exceeded model token limit: 262144 (requested: 291351)",
    "Prompt has 9,000 tokens, but the configured context size is 8,192 tokens",
    "Prompt contains 40000 tokens ... too large for model with 32768 maximum context length",
    '{"code":"1261","message":"Prompt too long"}',
    '{"code":"1261","message":"Prompt exceeds max length"}',
    "Range of input length should be [1, 98304]",
    "prompt too long; exceeded max context length by 4 tokens",
    "Provider finish_reason: model_context_window_exceeded",
    "Input is too long for requested model.",
    'github-copilot API error (413): {"message":"failed to parse request","code":""}',
    "413 status code (no body)",
    "too many tokens",
    "token limit exceeded",
]
OTHERS = [
    '429: {"message":"Rate limit reached for gpt-5: Limit 30000, too many tokens per min"}',
    'OpenAI API error (429): {"message":"Request too large for gpt-5 on tokens per min (TPM): Limit 30000"}',
    "ThrottlingException: Too many tokens, please wait before trying again.",
    "Throttling error: Too many tokens, please wait",
    "Service unavailable: too many tokens in flight",
    "Too many requests; prompt is too long to queue",
    '503: {"message":"too many tokens"}',
    '400: {"message":"max_tokens exceeds the limit of 8192"}',
    "400 status code (no body)",
    '401: {"message":"the code 413: is not here"}',
    "Connection error: reset",
    "",
]


@pytest.mark.parametrize("text", OVERFLOWS)
def test_a_text_that_speaks_of_length_is_an_overflow(text: str) -> None:
    assert is_context_overflow({"stopReason": "error", "errorMessage": text}, None)
    assert not is_context_overflow({"stopReason": "stop", "errorMessage": text}, None)


@pytest.mark.parametrize("text", OTHERS)
def test_any_other_text_is_not(text: str) -> None:
    assert not is_context_overflow({"stopReason": "error", "errorMessage": text}, 100)


@pytest.mark.parametrize(
    ("stop_reason", "sent", "cached", "output", "window", "overflow"),
    [
        ("stop", 60, 41, 5, 100, True),
        ("stop", 60, 40, 5, 100, False),
        ("stop", 60, 41, 5, None, False),
        ("stop", 60, 41, 5, 0, False),
        ("toolUse", 60, 41, 5, 100, False),
        ("length", 99, 0, 0, 100, True),
        ("length", 98, 0, 0, 100, False),
        ("length", 99, 0, 1, 100, False),
        ("aborted", 200, 0, 0, 100, False),
    ],
)
def test_a_silent_overflow_shows_in_the_usage(
    stop_reason: str, sent: int, cached: int, output: int, window: int | None, overflow: bool
) -> None:
    usage = {"input": sent, "cacheRead": cached, "output": output}
    assert is_context_overflow({"stopReason": stop_reason, "usage": usage}, window) is overflow


@pytest.mark.parametrize("usage", [None, 5, {}, {"input": "x", "cacheRead": True}])
def test_a_usage_that_cannot_be_read_is_no_overflow(usage: object) -> None:
    assert not is_context_overflow({"stopReason": "stop", "usage": usage}, 100)


def test_cerebras_says_nothing_when_a_request_is_too_long() -> None:
    error = {"stopReason": "error", "errorMessage": "400 status code (no body)"}
    assert is_context_overflow({**error, "provider": "cerebras"}, None)
    assert not is_context_overflow({**error, "provider": "openai"}, None)


@pytest.mark.parametrize(
    ("stop_reason", "output", "limit", "recoverable"),
    [
        ("length", 99, 100, True),
        ("length", 100, 100, False),
        ("length", 99, None, False),
        ("stop", 99, 100, False),
    ],
)
def test_an_answer_cut_below_its_limit_may_be_asked_for_again(
    stop_reason: str, output: int, limit: int | None, recoverable: bool
) -> None:
    assert is_recoverable_length({"stopReason": stop_reason, "usage": {"output": output}}, limit) is recoverable
