"""Sessions through the core: what becomes a message, what a compaction holds, three rounds on a growing session."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from contexthost.session import Session
from contexthost_jev.adapter import Compacted, Declined, compact_session, session_history, to_jev_messages
from contexthost_jev.core import JevAsker
from contexthost_jev.messages import JevMessage, ToolResult, ToolUse
from contexthost_jev.options import JevOptions
from contexthost_jev.summary import decode_summary
from jev.histories import Scripted
from jev.jev_server import by_number
from jev.sessions import KEEP, Open, add_turns, chatter, small_session
from support.builder import SessionBuilder, image_block, text_block, tool_call

EVERY = JevOptions(min_reduction_ratio=0.0)


def compacted(opened: Open, asker: JevAsker, options: JevOptions = EVERY, **more: Any) -> Compacted:
    outcome = asyncio.run(compact_session(opened.preparation(), opened.snapshot, asker, options, **more))
    assert isinstance(outcome, Compacted), outcome
    return outcome


def declined(opened: Open, asker: JevAsker | None, options: JevOptions = EVERY) -> Declined:
    outcome = asyncio.run(compact_session(opened.preparation(), opened.snapshot, asker, options))
    assert isinstance(outcome, Declined), outcome
    return outcome


def details(done: Compacted) -> dict[str, Any]:
    assert done.result.details is not None
    return dict(done.result.details)


# Messages --------------------------------------------------------------------------------------------------------


def call(id_: str, name: str = "read") -> dict[str, Any]:
    return tool_call(id_, name, {"path": "a"})


def result(id_: Any, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": "toolResult", "toolCallId": id_, "toolName": "read", "content": content, **more}


def test_parallel_calls_get_their_results_in_one_message() -> None:
    messages = [
        {"role": "assistant", "content": [text_block("Both."), call("a"), call("b")]},
        result("b", [text_block("2")], isError=True),
        result("a", [text_block("1")], isError=False),
    ]
    assert to_jev_messages(messages) == [
        JevMessage("assistant", "Both.", (ToolUse("a", "read", {"path": "a"}), ToolUse("b", "read", {"path": "a"}))),
        JevMessage("user", tool_results=(ToolResult("b", "2", is_error=True), ToolResult("a", "1"))),
    ]


def test_thinking_is_left_out_and_images_become_a_note() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": [text_block("See:"), image_block(), text_block("well?")]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}, text_block("Yes.")]},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "only"}]},
        result("a", [image_block()]),
        {"role": "user", "content": [{"type": "audio", "data": "…"}]},
    ]
    assert to_jev_messages(messages) == [
        JevMessage("user", "See:\n[an image was here]\nwell?"),
        JevMessage("assistant", "Yes."),
        JevMessage("user", tool_results=(ToolResult("a", "[an image was here]"),)),
        JevMessage("user", "[content that is no text was here]"),
    ]


def test_commands_notes_and_summaries_are_user_messages_with_a_label() -> None:
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are."},
        {"role": "bashExecution", "command": "ls", "output": "a.py", "exitCode": 0},
        {"role": "bashExecution", "command": "pwd", "output": "/", "exitCode": 0, "excludeFromContext": True},
        {"role": "custom", "customType": "todo", "content": "Buy milk.", "display": True},
        {"role": "branchSummary", "summary": "Tried it.", "fromId": "x"},
        {"role": "robot", "content": "beep"},
    ]
    found = to_jev_messages(messages)
    assert [(message.role, message.label) for message in found] == [
        ("user", "bash"),
        ("user", "note"),
        ("user", "branch-summary"),
    ]
    assert found[0].text == "Ran `ls`\n```\na.py\n```"
    assert found[1].text == "Buy milk."
    assert "Tried it." in found[2].text


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": None},
        {"role": "user", "content": [None, 1, "x", [], {"type": "text", "text": 5}]},
        {"role": "assistant", "content": "…" * 0},
        {"role": ["user"], "content": "x"},
        {"content": "x"},
    ],
)
def test_messages_without_usable_content_are_left_out(message: dict[str, Any]) -> None:
    assert to_jev_messages([message]) in ([], [JevMessage("user", "[content that is no text was here]")])


def test_calls_and_results_without_ids_never_pair() -> None:
    broken = {"role": "assistant", "content": [{"type": "toolCall", "arguments": [1]}, {"type": "toolCall", "id": 7}]}
    found = to_jev_messages([broken, result(None, "x"), result(7, "y")])
    ids = [use.id for use in found[0].tool_uses] + [one.id for one in found[1].tool_results]
    assert len(set(ids)) == 4


# One compaction --------------------------------------------------------------------------------------------------


def test_the_kept_part_is_shown_to_jev_and_never_altered(tmp_path: Path) -> None:
    builder = SessionBuilder()
    add_turns(builder, 1, 4, size=3000)
    add_turns(builder, 5, 4, size=100)
    opened = Open.at(builder.write(tmp_path / "s.jsonl"))
    asker = Scripted(lambda name: 0.0)
    history = session_history(opened.preparation(), opened.snapshot)
    kept_calls = [use.id for message in history.kept for use in message.tool_uses]
    done = compacted(opened, asker)
    asked = {one["toolCallId"] for one in details(done)["decisions"]}
    assert kept_calls
    assert not asked & set(kept_calls)
    assert done.dropped == len(asked) == 8 - len(kept_calls)
    shown = json.dumps(asker.states[0])
    assert "src/8.py" in shown, "the newest call is there for Jev to see"
    assert "src/8.py" not in done.result.summary
    assert done.result.first_kept_entry_id == opened.preparation().first_kept_entry_id
    assert done.result.tokens_before == opened.preparation().tokens_before


def test_kept_truncated_and_dropped_calls_are_in_the_summary_as_decided(tmp_path: Path) -> None:
    opened = Open.at(small_session(tmp_path / "s.jsonl"))
    scores = by_number(call=lambda n: [0.9, 0.9, 0.1][n - 1], result=lambda n: [0.9, 0.1, 0.1][n - 1])
    done = compacted(opened, Scripted(scores))
    assert (done.kept, done.truncated, done.dropped, done.requests) == (1, 1, 1, 1)
    summary = done.result.summary
    assert "<1>" + "x" * 2997 in summary
    assert "<2>" + "x" * 297 + "\n[… 2,700 more characters were cut here" in summary
    assert "src/3.py" not in summary
    for text in ("Task 1: look at the files.", "Reading 1.", "Reading 2.", "Reading 3.", "Task 1 is done."):
        assert text in summary


def test_the_details_explain_the_run(tmp_path: Path) -> None:
    opened = Open.at(small_session(tmp_path / "s.jsonl"))
    done = compacted(opened, Scripted(by_number(call=lambda n: 0.6, result=lambda n: 0.2)))
    found = details(done)
    assert found["plugin"] == "jev"
    assert found["format"] == 1
    assert found["model"] == "jev-scripted"
    assert found["options"]["keepThreshold"] == 0.5
    assert found["decisions"][1] == {
        "id": "t2",
        "toolCallId": "c2",
        "tool": "read",
        "resultChars": 3000,
        "keepCall": 0.6,
        "keepResult": 0.2,
        "action": "truncate",
    }
    assert (found["requests"], found["stage"]) == (1, "full")
    assert found["milliseconds"] >= 0
    assert json.loads(json.dumps(found)) == found


def independent_count(text: str) -> int:
    """The characters of a summary's texts, inputs and results, from the numbers in its headings."""
    import re

    total, at = 0, 0
    heading = re.compile(r"^\[(?:user|assistant|call)[^\n]*\]$", re.MULTILINE)
    while found := heading.search(text, at):
        sizes = [int(number) for number in re.findall(r"(?:, |input |result |error )(\d+)", found[0])]
        total += sum(sizes)
        at = found.end() + sum(size + 1 for size in sizes)
    return total


def test_the_reduction_equals_an_independent_count(tmp_path: Path) -> None:
    path = small_session(tmp_path / "s.jsonl", calls=9)
    opened = Open.at(path)
    done = compacted(opened, Scripted(by_number(call=lambda n: 0.6, result=lambda n: float(n % 3 == 0))))
    before = 0
    for line in path.read_text().splitlines()[1:]:
        entry = json.loads(line)
        if entry["id"] == done.result.first_kept_entry_id:
            break
        for block in entry["message"]["content"] if isinstance(entry["message"]["content"], list) else ():
            before += len(block.get("text", "")) + len(json.dumps(block.get("arguments", ""), separators=(",", ":")))
            before -= 2 if "arguments" not in block else 0  # the quotes of ""
        if isinstance(entry["message"]["content"], str):
            before += len(entry["message"]["content"])
    after = independent_count(done.result.summary)
    assert details(done)["charsBefore"] == before
    assert details(done)["charsAfter"] == after
    assert done.reduction == (before - after) / before


def test_the_users_instructions_are_part_of_the_goal(tmp_path: Path) -> None:
    asker = Scripted(lambda name: 0.0)
    compacted(Open.at(small_session(tmp_path / "s.jsonl")), asker, custom_instructions="Keep all about src/2.py.")
    goal = asker.states[0]["goal"]
    assert goal.startswith("Question 5?")
    assert goal.endswith("\n\nFor this compaction the user asks: Keep all about src/2.py.")


@pytest.mark.parametrize("tool", ["context_tree_query", "recall"])
def test_the_summary_names_a_recovery_tool_that_the_model_has(tmp_path: Path, tool: str) -> None:
    builder = SessionBuilder()
    builder.system("You are.", tools_added=[{"name": "read"}, {"name": tool}])
    add_turns(builder, 1, 3)
    chatter(builder)
    done = compacted(Open.at(builder.write(tmp_path / "s.jsonl")), Scripted(lambda name: 0.0))
    assert f"the tool `{tool}`" in done.result.summary.splitlines()[-1]


def test_without_one_the_summary_promises_nothing(tmp_path: Path) -> None:
    done = compacted(Open.at(small_session(tmp_path / "s.jsonl")), Scripted(lambda name: 0.0))
    assert done.result.summary.endswith("[end of the verbatim history]")


# No compaction ---------------------------------------------------------------------------------------------------


def test_too_little_to_save_is_not_worth_it(tmp_path: Path) -> None:
    opened = Open.at(small_session(tmp_path / "s.jsonl"))
    found = declined(opened, Scripted(lambda name: 1.0), JevOptions())
    assert found == Declined("not-worth-it", "only 0.0% would go, and less than 25% is not worth it")


def test_nothing_to_score_is_told_apart_from_a_failure(tmp_path: Path) -> None:
    builder = SessionBuilder()
    chatter(builder, 20)
    found = declined(Open.at(builder.write(tmp_path / "s.jsonl")), Scripted(lambda name: 0.0))
    assert found == Declined("nothing-to-score", "no tool call is left that could go")


def test_a_session_of_pinned_messages_is_too_short(tmp_path: Path) -> None:
    opened = Open.at(small_session(tmp_path / "s.jsonl"))
    found = declined(opened, Scripted(lambda name: 0.0), JevOptions(preserve_recent_messages=1000))
    assert found == Declined("too-short", "the history is too short")


def test_a_history_that_does_not_fit_is_told_with_both_figures(tmp_path: Path) -> None:
    opened = Open.at(small_session(tmp_path / "s.jsonl"))
    found = declined(opened, Scripted(lambda name: 0.0), JevOptions(max_state_tokens=60))
    assert found.kind == "does-not-fit"
    assert found.detail.endswith("tokens of the 60 that Jev may get")


def test_ids_used_twice_are_told_as_a_malformed_history(tmp_path: Path) -> None:
    builder = SessionBuilder()
    add_turns(builder, 1, 2)
    add_turns(builder, 1, 2)
    chatter(builder)
    assert (
        declined(Open.at(builder.write(tmp_path / "s.jsonl")), Scripted(lambda name: 0.0)).kind == "malformed-history"
    )


def test_without_an_asker_and_without_a_key_it_says_how_to_get_one(tmp_path: Path) -> None:
    found = declined(Open.at(small_session(tmp_path / "s.jsonl")), None)
    assert found.kind == "no-key"
    assert "TYPESAFE_API_KEY" in found.detail


# Rounds ----------------------------------------------------------------------------------------------------------


def grow(path: Path, builder: SessionBuilder) -> None:
    """Appends what the builder has written since, with the file's leaf as parent."""
    with Session.open(path) as session:
        session.append(
            [
                {key: value for key, value in json.loads(line).items() if key not in ("id", "parentId", "timestamp")}
                for line in builder.lines
            ]
        )
    builder.lines.clear()


def test_three_rounds_on_a_growing_session(tmp_path: Path) -> None:
    path = small_session(tmp_path / "s.jsonl", calls=3)
    more = SessionBuilder()

    # Round 1: c1 is kept, c2 cut, c3 gone.
    opened = Open.at(path)
    first = compacted(opened, Scripted(by_number(lambda n: float(n < 3), lambda n: float(n == 1))))
    opened.append(first.result)
    opened.session.close()
    decoded = decode_summary(first.result.summary)
    assert decoded is not None
    assert first.result.summary.count("Task 1: look at the files.") == 1

    # Round 2: only c1 of the old calls is asked about again, besides the new ones; it is cut now.
    add_turns(more, 11, 2)
    chatter(more)
    grow(path, more)
    opened = Open.at(path)
    preparation = opened.preparation()
    assert preparation.previous_summary == first.result.summary
    asker = Scripted(by_number(lambda n: 1.0, lambda n: 0.0))
    second = compacted(opened, asker)
    assert [one["toolCallId"] for one in details(second)["decisions"]] == ["summary:1", "c11", "c12"]
    assert [one["id"] for one in details(second)["decisions"]] == ["t1", "t3", "t4"], "t2 is the one that was cut"
    assert (second.kept, second.truncated, second.dropped) == (0, 3, 0)
    cut_once = "<2>" + "x" * 297 + "\n[… 2,700 more characters were cut here; run the tool again to have them]"
    assert cut_once in first.result.summary
    assert cut_once in second.result.summary
    assert second.result.summary.count("[verbatim history") == 1, "the old summary is not wrapped"
    assert second.result.summary.count("Task 1: look at the files.") == 1
    opened.append(second.result)
    opened.session.close()

    # Round 3: nothing new to ask about: everything was cut. That is no failure of Jev's.
    chatter(more)
    grow(path, more)
    opened = Open.at(path)
    asker = Scripted(lambda name: 0.0)
    assert declined(opened, asker).kind == "nothing-to-score"
    assert asker.asked == []

    # And with new calls in it: only those.
    add_turns(more, 21, 2)
    chatter(more)
    opened.session.close()
    grow(path, more)
    opened = Open.at(path)
    third = compacted(opened, Scripted(lambda name: 0.0))
    assert [one["toolCallId"] for one in details(third)["decisions"]] == ["c21", "c22"]
    everything = decode_summary(third.result.summary)
    assert everything is not None
    prompts = [message.text for message in everything if message.is_prompt and message.text.startswith("Task")]
    assert prompts == [f"Task {number}: look at the files." for number in (1, 11, 21)]
    opened.session.close()


def test_a_summary_by_somebody_else_stays_word_for_word(tmp_path: Path) -> None:
    builder = SessionBuilder()
    kept = builder.user("First.")
    builder.compaction("## Goal\nMend it.\n[user, 3]\n", kept)
    add_turns(builder, 1, 3)
    chatter(builder)
    done = compacted(Open.at(builder.write(tmp_path / "s.jsonl")), Scripted(lambda name: 0.0))
    decoded = decode_summary(done.result.summary)
    assert decoded is not None
    assert decoded[0] == JevMessage("user", "## Goal\nMend it.\n[user, 3]\n", label="summary")


def test_a_call_that_never_got_its_result_stays_without_one(tmp_path: Path) -> None:
    builder = SessionBuilder()
    builder.user("Go.")
    builder.assistant("Trying.", calls=[tool_call("lost", "bash", {"command": "sleep"})], stop_reason="aborted")
    add_turns(builder, 1, 3)
    chatter(builder)
    asker = Scripted(lambda name: 0.0)
    done = compacted(Open.at(builder.write(tmp_path / "s.jsonl")), asker)
    assert '[call bash, input 19, no result]\n{"command":"sleep"}' in done.result.summary
    assert asker.states[0]["history"][1]["pending_calls"] == [{"tool": "bash", "input": {"command": "sleep"}}]


def test_nothing_is_written(tmp_path: Path) -> None:
    path = small_session(tmp_path / "s.jsonl")
    before = path.read_bytes()
    compacted(Open.at(path), Scripted(lambda name: 0.0))
    assert path.read_bytes() == before
    assert KEEP.keep_recent_tokens == 200
