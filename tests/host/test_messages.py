"""Shows that strings, numbers, JSON, digests and messages come out as in Pi, whatever a session file holds.

The expected JSON, digests, dates and messages were printed by Pi 1.6.0 (and its Node's JSON.stringify); lengths are
worked out by hand.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from contexthost.messages import (
    bash_execution_text,
    canonical_digest,
    convert_to_llm,
    current_system_message,
    digest_message,
    js_items,
    js_json,
    js_truthy,
    slice_head,
    text_of,
    timestamp_ms,
    utf16_key,
    utf16_len,
)

# --- strings -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "units"), [("", 0), ("abc", 3), ("é€", 2), ("😀😀😀", 6), ("\ud83d", 1), ("a😀\udc00", 4)]
)
def test_a_length_is_in_utf16_units(text: str, units: int) -> None:
    assert utf16_len(text) == units


def test_strings_sort_by_utf16_unit() -> None:
    # U+1F600 begins with the unit D83D, and so comes before U+FFFF.
    assert sorted(["\uffff", "😀", "z", "é"], key=utf16_key) == ["z", "é", "😀", "\uffff"]


@pytest.mark.parametrize(
    ("text", "units", "head"),
    [
        ("abc", 2, "ab"),
        ("abc", 3, "abc"),
        ("abc", 9, "abc"),
        ("abc", 0, ""),
        ("abc", -1, ""),
        ("a😀b", 1, "a"),
        ("a😀b", 2, "a"),  # the pair is left out, not split
        ("a😀b", 3, "a😀"),
        ("\ud83dab", 1, "\ud83d"),  # half of no pair
        ("a\ud83d", 2, "a\ud83d"),
        ("a\ud83d\ude00", 2, "a"),  # a pair that arrived as two halves
        ("😀😀", 2, "😀"),
    ],
)
def test_a_head_never_splits_a_surrogate_pair(text: str, units: int, head: str) -> None:
    assert slice_head(text, units) == head


@given(st.text(), st.integers(min_value=0, max_value=30))
def test_a_head_is_a_prefix_and_at_most_one_unit_short(text: str, units: int) -> None:
    head = slice_head(text, units)
    assert text.startswith(head)
    assert utf16_len(head) <= units
    assert head == text or utf16_len(head) >= units - 1


@pytest.mark.parametrize("value", [True, 1, -1, 0.5, "0", [], {}, [0]])
def test_empty_containers_are_true_in_javascript(value: object) -> None:
    assert js_truthy(value)


@pytest.mark.parametrize("value", [None, False, 0, 0.0, -0.0, ""])
def test_null_zero_and_the_empty_string_are_false_in_javascript(value: object) -> None:
    assert not js_truthy(value)


# --- JSON ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (1.0, "1"),
        (0.1, "0.1"),
        (-1.5, "-1.5"),
        (-0.0, "0"),
        (123456789.125, "123456789.125"),
        (1e20, "100000000000000000000"),
        (123456789012345680000, "123456789012345680000"),
        (1e21, "1e+21"),
        (10**23, "1e+23"),
        (1.5e300, "1.5e+300"),
        (0.000001, "0.000001"),
        (1e-7, "1e-7"),
        (-2.5e-9, "-2.5e-9"),
        (5e-324, "5e-324"),
        (2**53 - 1, "9007199254740991"),
        (2**53 + 1, "9007199254740992"),
        (12345678901234567890, "12345678901234567000"),
        (10**400, "null"),
        (math.inf, "null"),
        (-math.inf, "null"),
        (math.nan, "null"),
        (True, "true"),
        (None, "null"),
    ],
)
def test_numbers_are_printed_as_javascript_prints_them(value: object, printed: str) -> None:
    assert js_json(value) == printed


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("é\u2028\u2029\x7f", '"é\u2028\u2029\x7f"'),
        ('\x00\x1f\b\f\n\r\t"\\/', r'"\u0000\u001f\b\f\n\r\t\"\\/"'),
        ("\ud800x", r'"\ud800x"'),
        ("\udc00\ud800", r'"\udc00\ud800"'),
        ("\ud83d\ude00", '"😀"'),  # two halves that Python keeps apart are one character in JavaScript
    ],
)
def test_only_control_characters_and_lone_surrogates_are_escaped(text: str, printed: str) -> None:
    assert js_json(text) == printed


def test_integer_like_keys_come_first_and_ascend() -> None:
    value = {"b": 1, "10": 2, "a": 3, "2": 4, "01": 5, "-1": 6, "4294967294": 7, "4294967295": 8, "٣": 9}
    assert js_json(value) == ('{"2":4,"10":2,"4294967294":7,"b":1,"a":3,"01":5,"-1":6,"4294967295":8,"٣":9}')
    assert list(js_items({"x": 1, "1": 2, "0": 3})) == [("0", 3), ("1", 2), ("x", 1)]


def test_json_has_no_spaces() -> None:
    assert js_json({"a": {"y": [1.0, True, None, {}], "x": []}}) == '{"a":{"y":[1,true,null,{}],"x":[]}}'


def test_nesting_deeper_than_the_stack_is_printed() -> None:
    value: list[Any] = []
    for _ in range(50_000):
        value = [value]
    assert js_json(value) == "[" * 50_001 + "]" * 50_001
    assert len(canonical_digest(value)) == 16


def test_what_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="JSON cannot hold a set"):
        js_json([{1}])


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)  # fmt: skip


@given(JSON_VALUES)
def test_printed_json_always_reads_back_as_the_same_value(value: object) -> None:
    # As JavaScript reads it: every number is a double.
    assert json.loads(js_json(value), parse_int=float) == value


@given(st.text(st.characters(codec=None, exclude_categories=())))
def test_printed_json_can_always_be_written_as_utf8(text: str) -> None:
    assert js_json([text, {text: text}]).encode("utf-8")


@given(JSON_VALUES)
def test_a_digest_never_depends_on_the_order_of_keys(value: object) -> None:
    assert canonical_digest(_reversed_keys(value)) == canonical_digest(value)


def _reversed_keys(value: object) -> object:
    if isinstance(value, dict):
        return {key: _reversed_keys(value[key]) for key in reversed(value)}
    return [_reversed_keys(element) for element in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("value", "digest"),
    [
        (None, "74234e98afe7498f"),
        ("", "12ae32cb1ec02d01"),
        ("hello", "5aa762ae383fbb72"),
        ([], "4f53cda18c2baa0c"),
        ({"b": 1, "a": [1.0, 2]}, "94a786c3662bc7be"),
        ({"\uffff": 1, "😀": 2, "z": 3, "10": 4, "9": 5}, "629e4599b5f90077"),
        ("\ud800", "8c0c59dd0d275aad"),
        ([{"type": "text", "text": "é😀"}], "1d93f1501f5a1bf6"),
        ({"n": 1e21, "m": 12345678901234567890}, "47564c634e568643"),
    ],
)
def test_digests_are_those_of_the_real_pi(value: object, digest: str) -> None:
    assert canonical_digest(value) == digest


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"content": "hello", "summary": "s"}, "hello"),
        ({"content": "", "summary": "s"}, ""),
        ({"content": None, "summary": "s"}, "s"),
        ({"command": "ls", "output": "files"}, "files"),
        ({"role": "unknown"}, None),
    ],
)
def test_a_message_is_digested_by_what_it_says(message: dict[str, Any], said: object) -> None:
    assert digest_message(message) == canonical_digest(said)


# --- text and time -------------------------------------------------------------------------------------------------


def test_the_text_of_content_is_that_of_its_text_blocks() -> None:
    blocks = [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]
    assert text_of(blocks) == "ab"
    assert text_of(blocks, "\n") == "a\nb"
    assert text_of("plain", "\n") == "plain"


@pytest.mark.parametrize(
    "content", [None, 5, {}, [], [None, 5, "x"], [{"type": "text"}], [{"type": "text", "text": 5}]]
)
def test_content_of_a_wrong_type_has_no_text(content: object) -> None:
    assert text_of(content) == ""


@pytest.mark.parametrize(
    ("timestamp", "milliseconds"),
    [
        ("2026-11-30T09:48:11.613Z", 1796032091613),
        ("2026-11-30T09:48Z", 1796032080000),
        ("2026-11-30T09:48:11.6139+02:30", 1796023091613),
        ("1969-12-31T23:59:59.9995Z", -1),
        ("2026-11-30", 1795996800000),
        ("2026", 1767225600000),
        (1796032091613, 1796032091613),
    ],
)
def test_a_timestamp_is_milliseconds_since_1970(timestamp: object, milliseconds: int) -> None:
    assert timestamp_ms(timestamp) == milliseconds


@pytest.mark.parametrize(
    "timestamp",
    ["2026-13-01", "nonsense", "", "2026-11-30T09:48:11.613+99:00", None, True, [], math.nan, 1e300, 10**400],
)
def test_what_is_no_timestamp_has_no_time(timestamp: object) -> None:
    assert timestamp_ms(timestamp) is None


# --- messages for the provider -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ({"command": "ls", "output": "a\nb", "exitCode": 0}, "Ran `ls`\n```\na\nb\n```"),
        (
            {"command": "x", "output": "", "exitCode": 2, "truncated": True, "fullOutputPath": "/o"},
            "Ran `x`\n(no output)\n\nCommand exited with code 2\n\n[Output truncated. Full output: /o]",
        ),
        (
            {"command": "x", "output": "o", "exitCode": None, "cancelled": True},
            "Ran `x`\n```\no\n```\n\n(command cancelled)",
        ),
        (
            {"command": "x", "output": "o", "exitCode": 3, "cancelled": True},
            "Ran `x`\n```\no\n```\n\n(command cancelled)",
        ),
        ({"command": "x", "output": "o", "truncated": True, "fullOutputPath": ""}, "Ran `x`\n```\no\n```"),
        ({}, "Ran ``\n(no output)"),
    ],
)
def test_a_command_reads_as_in_pi(command: dict[str, Any], text: str) -> None:
    assert bash_execution_text(command) == text
    assert convert_to_llm([{"role": "bashExecution", **command, "timestamp": 5}]) == [
        {"role": "user", "content": [{"type": "text", "text": text}], "timestamp": 5}
    ]


@pytest.mark.parametrize(
    ("message", "content"),
    [
        ({"role": "custom", "customType": "n", "content": "hi", "display": True}, [{"type": "text", "text": "hi"}]),
        ({"role": "custom", "content": [{"type": "image"}]}, [{"type": "image"}]),
        (
            {"role": "compactionSummary", "summary": "S", "tokensBefore": 3},
            [
                {
                    "type": "text",
                    "text": "The conversation history before this point was compacted into the following summary:"
                    "\n\n<summary>\nS\n</summary>",
                }
            ],
        ),
        (
            {"role": "branchSummary", "summary": "S", "fromId": "x"},
            [
                {
                    "type": "text",
                    "text": "The following is a summary of a branch that this conversation came back from:"
                    "\n\n<summary>\nS</summary>",
                }
            ],
        ),
    ],
)
def test_pis_own_roles_become_user_messages(message: dict[str, Any], content: object) -> None:
    assert convert_to_llm([{**message, "timestamp": 7}]) == [{"role": "user", "content": content, "timestamp": 7}]


def test_provider_roles_pass_as_the_same_objects() -> None:
    messages = [{"role": role, "content": "x"} for role in ("system", "user", "assistant", "toolResult")]
    assert all(given is passed for given, passed in zip(messages, convert_to_llm(messages), strict=True))


def test_excluded_commands_and_unknown_roles_are_left_out() -> None:
    excluded = {"role": "bashExecution", "command": "x", "output": "", "excludeFromContext": True}
    assert convert_to_llm([excluded, {"role": "weird", "content": "x"}, {}]) == []


# --- the system message in force -----------------------------------------------------------------------------------


def test_system_messages_are_replayed_into_one() -> None:
    current = current_system_message(
        [
            {
                "role": "system",
                "content": "base",
                "sections": {"b": "B1", "a": "A1", "7": "S"},
                "toolsAdded": [{"name": "t1", "v": 1}, {"name": "t2"}],
                "timestamp": 11,
            },
            {"role": "user", "content": "x"},
            {
                "role": "system",
                "content": "",
                "sections": {"b": "B2", "a": None},
                "toolsRemoved": [{"name": "t1"}],
                "timestamp": 12,
            },
            {
                "role": "system",
                "content": [{"type": "text", "text": "more"}, {"type": "text", "text": "lines"}],
                "sections": {"a": "A3"},
                "toolsAdded": [{"name": "t1", "v": 2}, {"name": "t2", "v": 9}],
                "timestamp": 13,
            },
        ]
    )
    assert js_json(current) == (
        '{"role":"system","content":"base\\n\\nmore\\nlines","sections":{"7":"S","b":"B2","a":"A3"},'
        '"toolsAdded":[{"name":"t2","v":9},{"name":"t1","v":2}],"timestamp":11}'
    )


def test_empty_sections_and_tools_are_left_out_of_the_replay() -> None:
    only = {"role": "system", "content": "x", "sections": {"a": None}, "toolsAdded": [], "timestamp": 0}
    assert current_system_message([only]) == {"role": "system", "content": "x", "timestamp": 0}


def test_without_system_messages_there_is_nothing_to_replay() -> None:
    assert current_system_message([]) is None
    assert current_system_message([{"role": "user", "content": "x"}]) is None
    assert current_system_message([{"role": "system", "content": "no timestamp, no tools"}]) is None


def test_parts_of_a_system_message_with_wrong_types_are_passed_over() -> None:
    junk = {"role": "system", "content": 5, "sections": ["x"], "toolsAdded": [None, "t", {"name": []}], "timestamp": 3}
    assert current_system_message([junk]) == {
        "role": "system",
        "content": "",
        "toolsAdded": [{"name": []}],
        "timestamp": 3,
    }
