"""Shows the text that a summarising model reads, and the file lists at the end of a summary, as Pi writes them.

The expected texts and lengths were printed by Pi 1.6.0.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from contexthost.compaction import (
    FileLists,
    FileOps,
    collect_file_ops,
    compute_file_lists,
    format_file_operations,
    serialize_conversation,
    truncate,
)
from contexthost.messages import Message, utf16_len
from support.compaction_fakes import compaction


def test_a_conversation_is_serialised_as_in_pi() -> None:
    messages: list[Message] = [
        {"role": "system", "content": "p"},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]},
        {"role": "user", "content": ""},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t"},
                {"type": "text", "text": "one"},
                {"type": "toolCall", "name": "read", "arguments": {"path": "é.py", "n": 1.0, "2": [1, {"k": None}]}},
                {"type": "text", "text": "two"},
                {"type": "toolCall", "name": "ls", "arguments": {}},
            ],
        },
        {"role": "assistant", "content": [{"type": "text", "text": ""}]},
        {"role": "assistant", "content": []},
        {"role": "toolResult", "content": [{"type": "text", "text": "x"}, {"type": "text", "text": "y"}]},
        {"role": "toolResult", "content": "plain"},
        {"role": "toolResult", "content": []},
    ]
    assert serialize_conversation(messages) == (
        "[User]: ab\n\n"
        "[Assistant]: one\ntwo\n\n"
        '[Assistant tool calls]: read(2=[1,{"k":null}], path="é.py", n=1); ls()\n\n'
        "[Assistant]: \n\n"
        "[Tool result]: xy\n\n"
        "[Tool result]: plain"
    )


def test_an_empty_conversation_is_an_empty_text() -> None:
    assert serialize_conversation([]) == ""


@pytest.mark.parametrize("content", [None, 5, {}, [None, 5, "x"]])
@pytest.mark.parametrize("role", ["user", "assistant", "toolResult"])
def test_content_that_would_crash_pi_is_left_out(role: str, content: object) -> None:
    assert (
        serialize_conversation([{"role": role, "content": content}, {"role": "user", "content": "ok"}]) == "[User]: ok"
    )


def test_calls_with_unusable_arguments_keep_their_place() -> None:
    calls = [
        {"type": "toolCall", "name": "a"},
        {"type": "toolCall", "arguments": 5},
        {"type": "toolCall", "name": "b", "arguments": ["x"]},
    ]
    serialized = serialize_conversation([{"role": "assistant", "content": calls}])
    assert serialized == '[Assistant tool calls]: a(); (); b(0="x")'


@pytest.mark.parametrize(
    ("text", "units", "end"),
    [
        ("x" * 2000, 2000, "xx"),
        ("x" * 2001, 2035, "xx\n\n[... 1 more characters truncated]"),
        ("x" * 1999 + "😀tail", 2034, "xx\n\n[... 5 more characters truncated]"),
        ("x" * 1998 + "😀tail", 2035, "x😀\n\n[... 4 more characters truncated]"),
        ("😀" * 1500, 2038, "😀😀\n\n[... 1000 more characters truncated]"),
    ],
)
def test_tool_results_are_cut_at_2000_units(text: str, units: int, end: str) -> None:
    assert utf16_len(truncate(text)) == units
    assert truncate(text).endswith(end)
    assert serialize_conversation([{"role": "toolResult", "content": text}]) == f"[Tool result]: {truncate(text)}"


def test_only_tool_results_are_cut() -> None:
    assert len(serialize_conversation([{"role": "user", "content": "x" * 5000}])) == len("[User]: ") + 5000


@given(st.text(max_size=30), st.integers(min_value=1, max_value=20))
def test_truncation_never_breaks_a_character(text: str, limit: int) -> None:
    head = truncate(text, limit).split("\n\n[... ")[0] if utf16_len(text) > limit else truncate(text, limit)
    assert text.startswith(head)
    assert head.encode("utf-8").decode("utf-8") == head


# --- files ---------------------------------------------------------------------------------------------------------


def calls(*named: tuple[object, object]) -> list[dict[str, object]]:
    return [{"type": "toolCall", "name": name, "arguments": arguments} for name, arguments in named]


def test_files_come_from_the_calls_named_read_write_and_edit() -> None:
    messages: list[Message] = [
        {
            "role": "assistant",
            "content": calls(
                ("read", {"path": "r.py"}), ("write", {"path": "w.py"}), ("edit", {"path": "e.py"}),
                ("Read", {"path": "no"}), ("grep", {"path": "no"}), ("read", {"path": ""}), ("read", {"path": 5}),
                ("read", None), ("read", "path"), ([], {"path": "no"}),
            ),
        },
        {"role": "user", "content": calls(("read", {"path": "no"}))},
    ]  # fmt: skip
    assert collect_file_ops(messages) == FileOps(frozenset({"r.py"}), frozenset({"w.py"}), frozenset({"e.py"}))


def test_nested_calls_count_that_a_tool_result_records() -> None:
    nested = {"calls": [{"name": "edit", "arguments": {"path": "n.py"}}, None]}
    messages: list[Message] = [
        {"role": "toolResult", "content": [], "nestedCalls": nested},
        {"role": "toolResult", "content": [], "nestedCalls": None},
        {"role": "toolResult", "content": [], "nestedCalls": {"calls": "x"}},
    ]
    assert collect_file_ops(messages) == FileOps(edited=frozenset({"n.py"}))


def test_the_lists_of_the_previous_compaction_are_taken_over() -> None:
    details = {"readFiles": ["r.py", 5], "modifiedFiles": ["m.py"]}
    expected = FileOps(read=frozenset({"r.py"}), edited=frozenset({"m.py"}))
    assert collect_file_ops([], compaction("k", details=details)) == expected
    assert collect_file_ops([], compaction("k", details=details, fromHook=False)) == expected


@pytest.mark.parametrize(
    "data",
    [
        {"details": {"readFiles": ["r.py"]}, "fromHook": True},
        {"details": {"readFiles": "r.py", "modifiedFiles": None}},
        {"details": ["r.py"]},
        {"details": None},
        {},
    ],
)
def test_details_of_extensions_and_of_wrong_types_are_not_taken_over(data: dict[str, Any]) -> None:
    assert collect_file_ops([], compaction("k", **data)) == FileOps()


def test_a_file_that_was_changed_is_not_listed_as_read() -> None:
    ops = FileOps(read=frozenset({"b", "a", "c"}), written=frozenset({"c"}), edited=frozenset({"\uffff", "😀", "c"}))
    # By UTF-16 unit the astral character comes before U+FFFF.
    assert compute_file_lists(ops) == FileLists(["a", "b"], ["c", "😀", "\uffff"])


@pytest.mark.parametrize(
    ("lists", "text"),
    [
        (FileLists([], []), ""),
        (FileLists(["a", "b"], []), "\n\n<read-files>\na\nb\n</read-files>"),
        (FileLists([], ["m"]), "\n\n<modified-files>\nm\n</modified-files>"),
        (
            FileLists(["a"], ["m"]),
            "\n\n<read-files>\na\n</read-files>\n\n<modified-files>\nm\n</modified-files>",
        ),
    ],
)
def test_file_lists_end_a_summary(lists: FileLists, text: str) -> None:
    assert format_file_operations(lists) == text
