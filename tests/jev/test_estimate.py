"""The token estimate, counted by hand: letters by sixes, digits by halves, other symbols at 0.9."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from contexthost_jev.estimate import estimate_tenths, estimate_tokens, to_json


@pytest.mark.parametrize(
    ("text", "tenths", "tokens"),
    [
        ("", 0, 0),
        (" \n\t", 0, 0),
        ("a", 10, 1),
        ("parser", 10, 1),  # 1 + floor(5 / 6)
        ("parsers", 20, 2),  # 1 + floor(6 / 6)
        ("a" * 13, 30, 3),  # 1 + floor(12 / 6)
        ("7", 5, 1),  # half a token, rounded up
        ("2026", 20, 2),
        ("12345", 25, 3),
        (".", 9, 1),
        ("...", 27, 3),
        ("src/a.ts", 10 + 9 + 10 + 9 + 10, 5),  # src / a . ts
        ("foo_bar9", 10 + 9 + 10 + 5, 4),
        ('{"path":"a.py"}', 9 + 9 + 10 + 9 + 9 + 9 + 10 + 9 + 10 + 9 + 9, 11),
        ("解析", 18, 2),  # no ASCII letters: two symbols
        ("naïve", 10 + 9 + 10, 3),  # na, ï, ve
        ("🙂", 9, 1),  # one symbol, though JavaScript counts two
    ],
)
def test_a_text_costs_what_it_costs_counted_by_hand(text: str, tenths: int, tokens: int) -> None:
    assert estimate_tenths(text) == tenths
    assert estimate_tokens(text) == tokens


def by_hand(text: str) -> int:
    """The rule again, symbol by symbol, as somebody would count who has no regular expressions."""
    tenths, run = 0, 0
    for symbol in text:
        letter = symbol.isascii() and symbol.isalpha()
        run = run + 1 if letter else 0
        if letter:
            tenths += 10 if run % 6 == 1 else 0
        elif symbol.isascii() and symbol.isdigit():
            tenths += 5
        elif not symbol.isspace():
            tenths += 9
    return tenths


@given(st.text(alphabet=st.sampled_from("ab Z09._\n\u00e9\u4e00\u2003"), max_size=60))
def test_any_text_costs_what_counting_symbol_by_symbol_gives(text: str) -> None:
    assert estimate_tenths(text) == by_hand(text)


@given(st.lists(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=9), max_size=3), max_size=5))
def test_the_cost_of_a_list_is_that_of_its_objects_with_the_commas(objects: list[dict[str, object]]) -> None:
    apart = sum(estimate_tenths(to_json(one)) for one in objects) + 9 * max(len(objects) - 1, 0) + 18
    assert estimate_tenths(to_json(objects)) == apart


def test_json_is_compact_and_keeps_letters_of_all_scripts() -> None:
    assert to_json({"a": [1, 2.5, None], "ü": "猫"}) == '{"a":[1,2.5,null],"ü":"猫"}'


def test_what_python_would_not_print_as_json_is_printed_as_javascript_does() -> None:
    assert to_json({"n": float("inf")}) == '{"n":null}'
    deep: object = 1
    for _ in range(5000):
        deep = [deep]
    assert to_json(deep) == "[" * 5000 + "1" + "]" * 5000
    assert json.loads(to_json({"a": 1})) == {"a": 1}
