"""Writing entries as JSON: what JavaScript can hold and plain UTF-8 JSON cannot is written as JavaScript writes it."""

from __future__ import annotations

from typing import Any

import pytest

from contexthost.errors import SessionFormatError
from contexthost.session.entries import decode_json, encode_json


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": "é😀"}, '{"a":"é😀"}'),
        ({"a": float("inf")}, '{"a":null}'),
        ({"a": "\ud83d"}, '{"a":"\\ud83d"}'),
        ({"a": "\ud83d", "b": float("inf")}, '{"a":"\\ud83d","b":null}'),
    ],
)
def test_values_from_session_files_can_be_written(value: Any, expected: str) -> None:
    assert encode_json(value) == expected.encode()


def test_an_entry_with_a_lone_surrogate_and_a_number_too_large_survives_its_migration() -> None:
    read = decode_json(b'{"a":"\\ud83d","b":1e999}')
    assert decode_json(encode_json(read)) == {"a": "\ud83d", "b": None}


@pytest.mark.parametrize("value", [{"a": object()}, {"a": object(), "b": "\ud83d"}])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(SessionFormatError, match="cannot be written as JSON"):
        encode_json(value)
