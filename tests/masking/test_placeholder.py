"""The placeholder of a masked result: one deterministic line that names the call and the way back to the text."""

from __future__ import annotations

from typing import Any

import pytest

from contexthost.projection import MASK_PREFIX, is_mask
from contexthost_masking.placeholder import overflow_id, placeholder


def line(**changes: Any) -> str:
    parts: dict[str, Any] = {"tool": "read", "argument": "src/app.py", "tokens": 1_234, "lines": 88, "entry_id": "a1b2"}
    return placeholder(**{**parts, **changes})


def test_it_names_tool_argument_size_and_the_way_back() -> None:
    assert line() == (
        '[pi-compaction] Earlier read "src/app.py" result masked (1,234 tokens, 88 lines); '
        'get it: context_tree_query entry "a1b2"'
    )


def test_it_names_the_later_result_that_has_overtaken_it() -> None:
    assert line(later=("edit", 'e"9')) == (
        '[pi-compaction] Earlier read "src/app.py" result masked (1,234 tokens, 88 lines), '
        'overtaken by edit in entry "e\\"9"; get it: context_tree_query entry "a1b2"'
    )
    assert is_mask({"content": line(later=("ba\nsh", "x\n"))})


def test_the_host_knows_it_as_a_mask() -> None:
    assert line().startswith(MASK_PREFIX)
    assert is_mask({"content": line()})


def test_a_call_without_a_known_argument_is_named_by_its_tool_alone() -> None:
    assert line(argument="", tool="ls").startswith("[pi-compaction] Earlier ls result masked (")


def test_one_line_is_not_lines() -> None:
    assert "(1 tokens, 1 line)" in line(tokens=1, lines=1)


def test_a_stored_original_is_hinted_at_at_the_end() -> None:
    assert line(overflow_id="ovf-7").endswith('entry "a1b2"; uncut: overflow_query "ovf-7"')


@pytest.mark.parametrize("length", [79, 80])
def test_an_argument_of_up_to_80_code_points_is_shown_whole(length: int) -> None:
    assert f' "{"ü" * length}" ' in line(argument="ü" * length)


def test_a_longer_argument_keeps_its_beginning_and_its_end() -> None:
    argument = "a" * 30 + "😀" * 2 + "b" * 49
    assert len(argument) == 81
    assert f' "{"a" * 30}…{"b" * 49}" ' in line(argument=argument)


def test_emoji_count_as_one_and_are_never_cut_in_half() -> None:
    assert f' "{"😀" * 30}…{"😀" * 49}" ' in line(argument="😀" * 100)


@pytest.mark.parametrize(
    "bad",
    ["\n", "\r\n", "\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\x00", "\x1b[31m", "\x1b]0;x\x07",
     "\ud800", "\u202e"],
)  # fmt: skip
@pytest.mark.parametrize("part", ["tool", "argument", "overflow_id", "entry_id"])
def test_nothing_from_the_session_can_break_the_line_or_reach_the_terminal(part: str, bad: str) -> None:
    made = line(**{part: f"one{bad}two"})
    assert len(made.splitlines()) == 1
    assert bad not in made
    assert made.isprintable()
    assert is_mask({"content": made})


def test_an_entry_id_is_exact_even_when_it_is_strange() -> None:
    assert line(entry_id='a"\n').endswith('entry "a\\"\\n"')


def test_quotes_in_an_argument_cannot_end_it() -> None:
    assert r'"echo \"; get it: nowhere"' in line(argument='echo "; get it: nowhere')


def test_tool_names_and_overflow_ids_are_bounded() -> None:
    made = line(tool="t" * 10_000, overflow_id="o" * 10_000)
    assert f"Earlier {'t' * 63}… " in made
    assert made.endswith(f'"{"o" * 127}…"')


def test_a_command_of_megabytes_costs_nothing() -> None:
    assert len(line(argument="x" * 5_000_000)) < 250


@pytest.mark.parametrize(
    ("details", "expected"),
    [
        ({"overflow": {"id": "ovf-7"}}, "ovf-7"),
        ({"overflow": {"id": ""}}, None),
        ({"overflow": {"id": 7}}, None),
        ({"overflow": {"ID": "ovf-7"}}, None),
        ({"overflow": "ovf-7"}, None),
        ({"overflow": None}, None),
        ({"id": "ovf-7"}, None),
        ("overflow", None),
        (None, None),
    ],
)
def test_only_details_overflow_id_is_read(details: Any, expected: str | None) -> None:
    assert overflow_id({"details": details}) == expected


def test_a_result_without_details_has_no_overflow() -> None:
    assert overflow_id({}) is None
