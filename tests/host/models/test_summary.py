"""Shows the built-in summary: its prompts, how its parts are joined, and that no unusable answer becomes one.

The frames of the prompts and the joins are Pi's (the texts in between are our own); they were written down by hand.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from contexthost.compaction import CompactionSettings, FileOps, Preparation
from contexthost.compaction.summary import SUMMARY_SYSTEM_PROMPT, summary_prompts
from contexthost.context import AbortSignal, ModelRequest
from contexthost.errors import CompactionCancelled, CompactionFailed
from contexthost.events import CompactionResult
from contexthost.messages import Message
from contexthost.models import Reply, ScriptedCall, ScriptedModel, summarize
from contexthost.models.scripted import Step
from contexthost.models.usage import add_usage

HEADINGS = [
    "## Goal", "## Constraints & Preferences", "## Progress", "### Done", "### In Progress", "### Blocked",
    "## Key Decisions", "## Next Steps", "## Critical Context",
]  # fmt: skip
PREFIX_HEADINGS = ["## Original Request", "## Progress So Far", "## Context Needed to Continue"]


def user(text: str) -> Message:
    return {"role": "user", "content": text, "timestamp": 1}


def preparation(
    *history: Message, prefix: tuple[Message, ...] = (), previous: str | None = None, files: FileOps | None = None
) -> Preparation:
    return Preparation(
        first_kept_entry_id="00000009",
        messages_to_summarize=history,
        turn_prefix_messages=prefix,
        is_split_turn=bool(prefix),
        tokens_before=1234,
        previous_summary=previous,
        file_ops=files or FileOps(),
        settings=CompactionSettings(),
    )


def run(prepared: Preparation, *script: Step, signal: AbortSignal | None = None, **more: Any) -> CompactionResult:
    return asyncio.run(summarize(prepared, ScriptedModel(script), signal or AbortSignal(), **more))


def headings(text: str) -> list[str]:
    return [line for line in text.split("\n") if line.startswith("#")]


# --- prompts ---------------------------------------------------------------------------------------------------------


def test_the_first_summary_asks_for_the_history_under_pis_headings() -> None:
    (prompt,) = summary_prompts(preparation(user("do it"), {"role": "custom", "content": "noted"}))
    assert prompt.text.startswith("<conversation>\n[User]: do it\n\n[User]: noted\n</conversation>\n\nSummarise ")
    assert headings(prompt.text) == HEADINGS
    assert "previous-summary" not in prompt.text


def test_a_previous_summary_is_carried_on() -> None:
    (prompt,) = summary_prompts(preparation(user("more"), previous="## Goal\nall"))
    frame = (
        "<conversation>\n[User]: more\n</conversation>\n\n"
        "<previous-summary>\n## Goal\nall\n</previous-summary>\n\n"
        "The conversation above follows on from the summary in <previous-summary>."
    )
    assert prompt.text.startswith(frame)
    assert headings(prompt.text) == ["## Goal", *HEADINGS]


def test_a_split_turn_is_asked_for_by_itself_after_the_history() -> None:
    history, prefix = summary_prompts(preparation(user("old"), prefix=(user("new"),)))
    assert (history.part, prefix.part) == ("history", "turn-prefix")
    assert "[User]: new" not in history.text
    assert prefix.text.startswith("# Conversation\n[User]: new\n\n# Instructions\nThe conversation above is ")
    assert headings(prefix.text) == ["# Conversation", "# Instructions", *PREFIX_HEADINGS]


def test_custom_instructions_end_every_prompt() -> None:
    prompts = summary_prompts(preparation(user("old"), prefix=(user("new"),)), "the tests")
    assert [prompt.text.endswith("\n\nAdditional focus: the tests") for prompt in prompts] == [True, True]


def test_tool_results_are_cut_at_2000_characters() -> None:
    long = {"role": "toolResult", "content": [{"type": "text", "text": "x" * 2100}]}
    (prompt,) = summary_prompts(preparation(user("hi"), long))
    assert "x" * 2000 + "\n\n[... 100 more characters truncated]\n</conversation>" in prompt.text
    assert "x" * 2001 not in prompt.text


def test_a_request_has_the_prompt_and_nothing_to_call() -> None:
    model = ScriptedModel(["summary"])
    asyncio.run(summarize(preparation(user("hi")), model, AbortSignal(), thinking_level="low"))
    (request,) = model.requests
    system, asked = request.messages
    assert (system["role"], system["content"]) == ("system", SUMMARY_SYSTEM_PROMPT)
    assert (asked["role"], asked["content"][0]["text"][:15]) == ("user", "<conversation>\n")
    assert (list(request.tools), request.session_id, request.thinking_level) == ([], None, "low")


# --- results ---------------------------------------------------------------------------------------------------------


def test_a_summary_ends_with_the_file_lists_and_records_what_it_cost() -> None:
    files = FileOps(read=frozenset({"b.py", "a.py"}), written=frozenset({"c.py"}), edited=frozenset({"a.py"}))
    reply = Reply(text=" the summary \n", usage={"input": 7, "totalTokens": 7})
    made = run(preparation(user("hi"), files=files), reply)
    assert made.summary == (
        "the summary\n\n<read-files>\nb.py\n</read-files>\n\n<modified-files>\na.py\nc.py\n</modified-files>"
    )
    assert (made.first_kept_entry_id, made.tokens_before) == ("00000009", 1234)
    assert made.details == {"readFiles": ["b.py"], "modifiedFiles": ["a.py", "c.py"]}
    assert made.usage is not None
    assert (made.usage["input"], made.usage["totalTokens"]) == (7, 7)


def test_the_parts_of_a_split_turn_are_joined_and_their_usage_added_up() -> None:
    script = [Reply(text="old", usage={"input": 7, "output": 1}), Reply(text="new", usage={"input": 5, "output": 2})]
    made = run(preparation(user("a"), prefix=(user("b"),)), *script)
    assert made.summary == "old\n\n---\n\n**Turn Context (split turn):**\n\nnew"
    assert made.usage is not None
    assert (made.usage["input"], made.usage["output"]) == (12, 3)


@pytest.mark.parametrize(("previous", "history"), [(None, "No prior history."), ("before", "before")])
def test_a_split_first_turn_keeps_the_history_there_is(previous: str | None, history: str) -> None:
    made = run(preparation(prefix=(user("b"),), previous=previous), "new")
    assert made.summary == f"{history}\n\n---\n\n**Turn Context (split turn):**\n\nnew"


def test_usages_add_up_kind_by_kind() -> None:
    first = {"input": 1, "reasoning": 4, "cost": {"input": 0.5, "total": 0.5, "totalFromProvider": True}}
    second = {"input": 2, "cacheWrite1h": 3, "cost": {"input": 0.25, "total": 0.25, "totalFromProvider": False}}
    assert add_usage(first, second) == {
        "input": 3,
        "reasoning": 4,
        "cacheWrite1h": 3,
        "cost": {"input": 0.75, "total": 0.75, "totalFromProvider": False},
    }


# --- answers that cannot be used -------------------------------------------------------------------------------------

UNUSABLE: list[tuple[Step, str]] = [
    ("", "came back empty"),
    (" \n", "came back empty"),
    (Reply(thinking="hm"), "came back empty"),
    (Reply(text="so far", stop_reason="length"), "cut off at the model's output limit"),
    (Reply(text="so", calls=[ScriptedCall("read")]), "called a tool"),
    (Reply(text="so", calls=[ScriptedCall("read")], stop_reason="stop"), "called a tool"),
    (Reply(text="so", error="500: no"), "failed: 500: no"),
    (Reply(text="so", stop_reason="pending"), "stopped with 'pending'"),
]


@pytest.mark.parametrize(("answer", "reason"), UNUSABLE)
def test_an_unusable_answer_is_no_summary(answer: Step, reason: str) -> None:
    with pytest.raises(CompactionFailed, match=reason) as caught:
        run(preparation(user("hi")), answer)
    assert not isinstance(caught.value, CompactionCancelled)
    assert str(caught.value).startswith("The summary ")


@pytest.mark.parametrize(("answer", "reason"), UNUSABLE)
def test_an_unusable_second_answer_spoils_the_first(answer: Step, reason: str) -> None:
    with pytest.raises(CompactionFailed, match=f"^The summary of the split turn .*{reason}"):
        run(preparation(user("a"), prefix=(user("b"),)), "old", answer)


def test_an_abort_is_told_from_a_failure() -> None:
    signal = AbortSignal()

    def aborting(_: ModelRequest) -> str:
        signal.abort()
        return "late"

    with pytest.raises(CompactionCancelled):
        run(preparation(user("hi")), aborting, signal=signal)


def test_an_abort_between_the_parts_ends_it() -> None:
    signal = AbortSignal()

    def aborting(_: ModelRequest) -> str:
        signal.abort()
        return "never"

    model = ScriptedModel(["old", aborting])
    with pytest.raises(CompactionCancelled):
        asyncio.run(summarize(preparation(user("a"), prefix=(user("b"),)), model, signal))
