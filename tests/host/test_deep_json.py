"""JSON that is nested more deeply than Python's decoders go: read as they read what is not, and written again."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from contexthost.cli.output import echo_json
from contexthost.errors import SessionFormatError
from contexthost.session.deep import loads_deep
from contexthost.session.entries import decode_json, encode_json


def test_what_holds_itself_cannot_be_written() -> None:
    circle: list[Any] = []
    circle.append({"again": circle})
    with pytest.raises(SessionFormatError, match="holds itself"):
        encode_json({"data": circle})


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_the_decoder_for_deep_values_reads_what_the_other_reads(value: Any) -> None:
    for text in (json.dumps(value, indent=1), json.dumps(value, ensure_ascii=False)):
        if "NaN" in text or "Infinity" in text:
            continue
        assert repr(loads_deep(text, int)) == repr(json.loads(text))


@pytest.mark.parametrize(
    "text",
    ["", " ", "[", "]", "[1,]", "[1 2]", "{", '{"a"}', '{"a":}', '{"a":1,}', "{1:2}", '{"a":1]', "[1}", "01", "1.",
     "-", "+1", ".5", "1e", "nul", "NaN", "[Infinity]", '"', '"\n"', "1 1", "\ufeff1", "[1],", "\u0661"],
)  # fmt: skip
def test_the_decoder_for_deep_values_refuses_what_is_not_json(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        loads_deep(text, int)


def test_what_is_nested_deeply_is_printed_in_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    value = decode_json(b"[" * 5_000 + '"é😀\\ud800"'.encode() + b"]" * 5_000)
    echo_json(value)
    assert capsys.readouterr().out == "[" * 5_000 + r'"\u00e9\ud83d\ude00\ud800"' + "]" * 5_000 + "\n"
