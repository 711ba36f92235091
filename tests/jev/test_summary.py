"""The verbatim summary: how it reads, that any content survives it, and that only our own text is taken for ours."""

from __future__ import annotations

import json

import pytest

from contexthost_jev.messages import JevMessage, ToolResult, ToolUse
from contexthost_jev.summary import MARKER, decode_summary, encode_summary, is_verbatim_summary, recovery_line
from jev.histories import calls, results, says, user

SHORT = [
    user("Fix the parser."),
    calls("a", text="Looking."),
    JevMessage("user", tool_results=(ToolResult("a", "def parse(…\n[… cut]", truncated=True),)),
    calls("b", "c", tool="bash"),
    JevMessage("user", tool_results=(ToolResult("b", "no such file", is_error=True),)),
    JevMessage("user", "Ran `ls`", label="bash"),
    says("Done."),
]

TEXT = f"""{MARKER}
What users and the assistant wrote is here word for word. Some old tool calls were left out, and the output of others \
was cut where it says so. Numbers in headings count characters.

[user, 15]
Fix the parser.

[assistant, 8]
Looking.

[call read, input 15, result 19, cut]
{{"path":"a.py"}}
def parse(…
[… cut]

[assistant]

[call bash, input 15, error 12]
{{"path":"b.py"}}
no such file

[call bash, input 15, no result]
{{"path":"c.py"}}

[user bash, 8]
Ran `ls`

[assistant, 5]
Done.

[end of the verbatim history]"""


def test_a_summary_reads_as_a_conversation() -> None:
    assert encode_summary(SHORT) == TEXT


def test_it_parses_back_with_ids_of_its_own() -> None:
    decoded = decode_summary(TEXT)
    assert decoded == [
        user("Fix the parser."),
        JevMessage("assistant", "Looking.", (ToolUse("summary:1", "read", {"path": "a.py"}),)),
        JevMessage("user", tool_results=(ToolResult("summary:1", "def parse(…\n[… cut]", truncated=True),)),
        JevMessage(
            "assistant",
            "",
            (ToolUse("summary:2", "bash", {"path": "b.py"}), ToolUse("summary:3", "bash", {"path": "c.py"})),
        ),
        JevMessage("user", tool_results=(ToolResult("summary:2", "no such file", is_error=True),)),
        JevMessage("user", "Ran `ls`", label="bash"),
        says("Done."),
    ]


def test_a_line_at_the_end_says_how_to_find_what_left() -> None:
    line = recovery_line({"context_tree_query", "read"})
    assert line == (
        "Output that was left out or cut is still in the session; the tool `context_tree_query` "
        "(search for words of it, or for the file or command) finds it."
    )
    summary = encode_summary(SHORT, line)
    assert summary == f"{TEXT}\n{line}"
    assert decode_summary(summary) == decode_summary(TEXT)


def test_without_a_recovery_tool_nothing_is_promised() -> None:
    assert recovery_line({"read", "bash"}) is None


def test_both_recovery_tools_are_named() -> None:
    line = recovery_line({"recall", "context_tree_query"})
    assert line is not None
    assert "`context_tree_query`" in line
    assert "`recall`" in line


def test_a_result_far_from_its_call_stands_with_its_call() -> None:
    decoded = decode_summary(encode_summary([calls("a"), user("Meanwhile."), results(a="late")]))
    assert decoded is not None
    assert [message.tool_results[0].text for message in decoded if message.tool_results] == ["late"]
    assert decoded[2] == user("Meanwhile.")


def test_a_result_whose_call_is_elsewhere_is_kept_as_one() -> None:
    summary = encode_summary([user("Go."), JevMessage("user", tool_results=(ToolResult("x", "lost", True),))])
    assert "[error of a call that is not here, 4]\nlost" in summary
    decoded = decode_summary(summary)
    assert decoded is not None
    assert decoded[1].tool_results == (ToolResult("summary:1", "lost", True),)


@pytest.mark.parametrize(
    "text",
    [
        TEXT,  # a summary inside a message
        "[end of the verbatim history]",
        "\n\n[assistant, 5]\nHello\n\n",
        "[call read, input 2, no result]\n{}",
        " leading and trailing \r\n\t ",
        "</summary>",
        "\ud83d lone surrogate, \u2028 separators, \x00 and 🙂",
    ],
)
def test_text_that_looks_like_the_summary_itself_is_only_text(text: str) -> None:
    history = [user(text), calls("a", text=text, tool='odd name, "quoted" ]\n', given={"t": text}), results(a=text)]
    decoded = decode_summary(encode_summary(history))
    assert decoded is not None
    assert [(message.role, message.text) for message in decoded] == [("user", text), ("assistant", text), ("user", "")]
    assert decoded[1].tool_uses[0].tool == 'odd name, "quoted" ]\n'
    assert decoded[1].tool_uses[0].input == {"t": text}
    assert decoded[2].tool_results[0].text == text


def test_a_summary_survives_being_stored_as_json() -> None:
    summary = encode_summary([user("猫 🙂 \ud83d\n"), *SHORT])
    assert decode_summary(json.loads(json.dumps(summary))) == decode_summary(summary)


@pytest.mark.parametrize(
    "summary",
    [
        "",
        "## Goal\nFix the parser.",
        MARKER,
        TEXT.replace("[user, 15]", "[user, 16]"),
        TEXT.replace("[user, 15]", "[user, 99999]"),
        TEXT.replace("[assistant, 8]", "[robot, 8]"),
        TEXT.replace("[assistant, 8]\nLooking.\n\n", ""),  # a call that belongs to no assistant message
        TEXT.replace('{"path":"a.py"}', '{"path":"a.py"]'),
        TEXT.removesuffix("[end of the verbatim history]"),
        TEXT + " and more",
        "Note: " + TEXT,
        TEXT[: len(TEXT) // 2],
    ],
)
def test_what_is_not_exactly_ours_is_not_taken_for_it(summary: str) -> None:
    assert decode_summary(summary) is None


def test_the_first_line_tells_ours_from_others() -> None:
    assert is_verbatim_summary(TEXT)
    assert not is_verbatim_summary("## Goal")
