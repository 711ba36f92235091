"""Shows how the JSON text of a tool call's arguments is read: whole, with the faults that models make, cut off."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from contexthost.models.arguments import parse_arguments, partial_arguments

JSON_OBJECTS = st.dictionaries(
    st.text(max_size=4),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ("  ", {}),
        ('{"a": [1, {"b": null}]}', {"a": [1, {"b": None}]}),
        ('{"a": "one\ntwo\t"}', {"a": "one\ntwo\t"}),
        (r'{"path": "C:\dir\new"}', {"path": "C:\\dir\new"}),
        (r'{"re": "\d+\\."}', {"re": "\\d+\\."}),
        ('{"a": "\\ud83d\\ude00"}', {"a": "😀"}),
    ],
)
def test_arguments_are_read_with_the_faults_that_models_make(text: str, arguments: dict[str, Any]) -> None:
    assert parse_arguments(text) == (arguments, None)


@pytest.mark.parametrize("text", ["{", '{"a": 1,}', "null", "[1]", '"text"', "{} {}", '{"a": Infinity}', "[" * 100_000])
def test_unusable_arguments_are_none_and_are_quoted(text: str) -> None:
    arguments, problem = parse_arguments(text)
    assert arguments == {}
    assert problem is not None
    assert f"\n\nReceived arguments:\n{text[:4000]}" in problem
    assert len(problem) < 4200


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("", {}),
        ("{", {}),
        ('{"pa', {}),
        ('{"path"', {}),
        ('{"path":', {}),
        ('{"path": "a/', {"path": "a/"}),
        ('{"path": "a\\', {"path": "a"}),
        ('{"a": 1, "b', {"a": 1}),
        ('{"a": 1, "b": [1, {"c": "x', {"a": 1, "b": [1, {"c": "x"}]}),
        ('{"a": 1, "b": tr', {"a": 1}),
        ('{"a": 12', {"a": 12}),
        ("[1", {}),
    ],
)
def test_arguments_that_were_cut_off_are_read_as_far_as_they_go(text: str, arguments: dict[str, Any]) -> None:
    assert partial_arguments(text) == arguments


@given(JSON_OBJECTS, st.integers(min_value=0, max_value=200))
def test_a_cut_never_invents_members(value: dict[str, Any], cut: int) -> None:
    text = json.dumps(value, ensure_ascii=False)
    assert parse_arguments(text) == (value, None)
    assert partial_arguments(text) == value
    assert set(partial_arguments(text[:cut])) <= set(value)
