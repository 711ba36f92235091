"""What the model sees: Pi's rules of projection with values worked out by hand, and what contexthost adds to them.

That the real Pi agrees, on hundreds of random sessions, is shown in tests/integration; here each rule stands by itself.
Added are: which masks are in force and what they save, how far a provider's usage is trusted, drafts that are refused
and why, and previews that equal what a commit gives.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contexthost.errors import EntryNotFound, InvalidDraft, ParentCycle, SessionLocked
from contexthost.projection import (
    MASK_PREFIX,
    CompactionDraft,
    ContextEditDraft,
    CustomDraft,
    CustomMessageDraft,
    Draft,
    MaskLedger,
    Mend,
    ProjectionAuthority,
    Snapshot,
    context_messages,
)
from contexthost.projection.breakdown import breakdown
from contexthost.session import Session
from support.builder import SessionBuilder, text_block, tool_call, usage_of

MASK = MASK_PREFIX + "read of a.py"  # 24 + 12 characters


class Characters:
    """One token a character, so that every figure can be worked out by hand."""

    def count(self, text: str) -> int:
        return len(text)


@pytest.fixture(autouse=True)
def _home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path_factory.mktemp("home")))


@pytest.fixture
def build() -> SessionBuilder:
    return SessionBuilder()


@pytest.fixture
def opened(build: SessionBuilder, tmp_path: Path) -> Callable[[], ProjectionAuthority]:
    """The authority of the session as it is built so far."""

    def open_() -> ProjectionAuthority:
        path = build.write(tmp_path / "session.jsonl")
        return ProjectionAuthority(Session.open(path), counter=Characters(), window=1000)

    return open_


Opened = Callable[[], ProjectionAuthority]


def shown(snapshot: Snapshot) -> list[tuple[str, Any]]:
    """Role and content (or summary) of everything the model sees."""
    return [(one["role"], one.get("content", one.get("summary"))) for one in snapshot.messages]


def texts(snapshot: Snapshot) -> list[Any]:
    return [content for _, content in shown(snapshot)]


# -- compactions ----------------------------------------------------------------------------------------------------


def test_the_compaction_comes_first_then_what_it_keeps_then_what_came_after(
    build: SessionBuilder, opened: Opened
) -> None:
    build.user("gone")
    kept = build.user("kept")
    build.label(kept, "l")
    compaction = build.compaction("sum", kept, tokens_before=77)
    build.user("after")
    snapshot = opened().snapshot()
    assert shown(snapshot) == [("compactionSummary", "sum"), ("user", "kept"), ("user", "after")]
    assert snapshot.messages[0] == {
        "role": "compactionSummary",
        "summary": "sum",
        "tokensBefore": 77,
        "timestamp": 1767603604000,  # 2026-01-05T09:00:04Z
    }
    assert [entry.source.type for entry in snapshot.entries] == ["compaction", "message", "label", "message"]
    assert snapshot.checkpoint is not None
    assert snapshot.checkpoint.id == compaction
    assert [entry.source.position for entry in snapshot.entries] == [3, 1, 2, 4]


def test_kept_system_messages_give_way_to_the_compactions_own_but_later_ones_count(
    build: SessionBuilder, opened: Opened
) -> None:
    first = build.system("old prompt")
    build.user("kept")
    build.compaction("sum", first, system_message=build.system_message("checkpoint"))
    build.system("later")
    assert texts(opened().snapshot()) == ["checkpoint", "sum", "kept", "later"]


def test_only_the_newest_compaction_on_the_branch_counts_and_older_ones_in_its_range_show_nothing(
    build: SessionBuilder, opened: Opened
) -> None:
    first = build.user("1")
    build.compaction("one", first)
    build.user("2")
    build.compaction("two", first)
    build.user("3")
    authority = opened()
    assert texts(authority.snapshot()) == ["two", "1", "2", "3"]
    assert [entry.source.type for entry in authority.snapshot().entries].count("compaction") == 2
    assert texts(authority.at(build.id_at(3))) == ["one", "1", "2"]


@pytest.mark.parametrize("kept", [None, "missing", "later", "side"])
def test_a_compaction_that_names_nothing_before_it_keeps_nothing(
    build: SessionBuilder, opened: Opened, kept: str | None
) -> None:
    root = build.user("root")
    build.entry("message", id="side", message={"role": "user", "content": "side"})
    build.branch_from(root)
    build.user("before")
    build.compaction("sum", kept)
    build.entry("message", id="later", message={"role": "user", "content": "later"})
    assert texts(opened().snapshot()) == ["sum", "later"]


def test_an_empty_compaction_summary_is_a_message_and_an_empty_branch_summary_is_none(
    build: SessionBuilder, opened: Opened
) -> None:
    build.branch_summary("", "x")
    build.branch_summary("came back", "x")
    first = build.user("kept")
    authority = opened()
    assert shown(authority.snapshot()) == [("branchSummary", "came back"), ("user", "kept")]
    assert authority.snapshot().messages[0]["fromId"] == "x"
    build.compaction("", first)
    assert shown(opened().snapshot()) == [("compactionSummary", ""), ("user", "kept")]


# -- context edits --------------------------------------------------------------------------------------------------


def test_the_last_edit_of_an_entry_counts_also_one_that_gives_it_back(build: SessionBuilder, opened: Opened) -> None:
    a, b, c = build.user("a"), build.user("b"), build.user("c")
    build.edit(a, None)
    build.edit(a, "a again")
    build.edit(b, "b'")
    build.edit(b, None)
    build.edit(c, "c'")
    build.edit(c, [text_block("c''")])
    snapshot = opened().snapshot()
    assert texts(snapshot) == ["a again", [text_block("c''")]]
    [one, two, three] = snapshot.entries[:3]
    assert (one.omitted, one.replaced, one.masked) == (False, True, False)
    assert (two.omitted, two.replaced, two.masked) == (True, False, False)
    assert one.base.messages[0]["content"] == "a"
    assert two.edit is not None
    assert two.edit.id == build.id_at(7)
    assert three.source.id == c


def test_text_becomes_a_block_where_a_role_has_no_plain_text_and_all_else_is_kept(
    build: SessionBuilder, opened: Opened
) -> None:
    user = build.user("u")
    reply = build.assistant("t", calls=[tool_call("c", "read")], usage=usage_of(50))
    result = build.tool_result("c", "r", is_error=True, details={"x": 1})
    custom = build.custom_message("mine", "m", details={"y": 2})
    for target in (user, reply, result, custom):
        build.edit(target, "new")
    snapshot = opened().snapshot()
    assert texts(snapshot) == ["new", [text_block("new")], [text_block("new")], "new"]
    originals = [context_messages(entry.source)[0] for entry in snapshot.entries[:4]]
    for message, original in zip(snapshot.messages, originals, strict=True):
        assert {**message, "content": 0} == {**original, "content": 0}
    assert snapshot.messages[1]["usage"] == usage_of(50)
    assert (snapshot.messages[2]["toolCallId"], snapshot.messages[2]["isError"]) == ("c", True)


def test_an_edit_counts_before_its_target_and_an_edit_of_an_edit_does_nothing(
    build: SessionBuilder, opened: Opened
) -> None:
    build.edit("later", "edited")
    edit = build.edit("nobody", None)
    build.entry("message", id="later", message={"role": "user", "content": "original"})
    build.edit(edit, None)
    assert texts(opened().snapshot()) == ["edited"]


def test_replacements_leave_roles_alone_that_cannot_be_edited_but_omissions_do_not(
    build: SessionBuilder, opened: Opened
) -> None:
    bash, prompt, summary = build.bash("ls", "out"), build.system("prompt"), build.branch_summary("sum")
    for target in (bash, prompt, summary):
        build.edit(target, "new")
    assert [one["role"] for one in opened().snapshot().messages] == ["bashExecution", "system", "branchSummary"]
    assert texts(opened().snapshot())[1:] == ["prompt", "sum"]
    build.edit(bash, None)
    assert texts(opened().snapshot()) == ["prompt", "sum"]


def test_edits_count_only_within_the_context_and_only_on_their_branch(build: SessionBuilder, opened: Opened) -> None:
    a = build.user("a")
    build.edit(a, "edited")
    b = build.user("b")
    assert texts(opened().snapshot()) == ["edited", "b"]
    build.compaction("sum", b)
    assert texts(opened().snapshot()) == ["sum", "b"]
    build.compaction("again", a)
    assert texts(opened().snapshot()) == ["again", "edited", "b"]
    build.branch_from(a)
    build.user("aside")
    authority = opened()
    assert texts(authority.snapshot()) == ["a", "aside"]
    authority.session.move_leaf(b)
    assert texts(authority.snapshot()) == ["edited", "b"]
    authority.session.move_leaf(a)
    assert texts(authority.snapshot()) == ["a"]
    authority.session.move_leaf(None)
    assert texts(authority.snapshot()) == []


# -- single entries -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "content"), [("system", ""), ("user", []), ("assistant", []), ("toolResult", []), ("custom", None)]
)
def test_null_content_becomes_the_empty_content_of_its_role(
    build: SessionBuilder, opened: Opened, role: str, content: Any
) -> None:
    build.message({"role": role, "content": None})
    build.message({"role": role})
    first, second = opened().snapshot().messages
    assert first["content"] == content
    assert second.get("content") == content


def test_a_custom_message_is_shown_with_its_own_keys(build: SessionBuilder, opened: Opened) -> None:
    build.entry("custom_message", customType="mine", content=None, display=False)
    assert opened().snapshot().messages == (
        {"role": "custom", "customType": "mine", "content": [], "display": False, "timestamp": 1767603601000},
    )


def test_entries_without_messages_are_part_of_the_context_all_the_same(build: SessionBuilder, opened: Opened) -> None:
    user = build.user("u")
    build.label(user, "l")
    build.session_info("n")
    build.custom("mine", 1)
    build.usage()
    build.entry("from-the-future", message={"role": "user", "content": "no"})
    build.message(None)
    snapshot = opened().snapshot()
    assert len(snapshot.entries) == 7
    assert texts(snapshot) == ["u"]


def test_model_and_thinking_level_come_from_the_whole_branch(build: SessionBuilder, opened: Opened) -> None:
    assert (opened().snapshot().model, opened().snapshot().thinking_level) == (None, "off")
    build.thinking("high")
    build.model_change("openai", "gpt")
    last = build.user("u")
    build.compaction("sum", last)
    snapshot = opened().snapshot()
    assert (snapshot.model, snapshot.thinking_level) == ({"provider": "openai", "modelId": "gpt"}, "high")
    build.assistant("failed", stop_reason="error", provider="anthropic", model="claude")
    build.thinking("low")
    snapshot = opened().snapshot()
    assert (snapshot.model, snapshot.thinking_level) == ({"provider": "anthropic", "modelId": "claude"}, "low")
    authority = opened()
    authority.snapshot()
    authority.session.move_leaf(last)
    assert authority.snapshot().model == {"provider": "openai", "modelId": "gpt"}
    assert authority.snapshot().thinking_level == "high"


def test_a_cycle_is_an_error_that_names_an_entry(build: SessionBuilder, opened: Opened) -> None:
    build.entry("custom", id="a", parent="b")
    build.entry("custom", id="b", parent="a")
    with pytest.raises(ParentCycle, match=r"parent cycle at [ab]:"):
        opened().snapshot()


def test_the_projection_from_another_leaf_moves_nothing(build: SessionBuilder, opened: Opened) -> None:
    first = build.user("a")
    build.user("b")
    authority = opened()
    before = authority.snapshot()
    assert texts(authority.at(first)) == ["a"]
    assert authority.snapshot() is before
    with pytest.raises(EntryNotFound):
        authority.at("nobody")


def test_models_that_are_equal_in_python_but_not_in_json_stay_apart(build: SessionBuilder, opened: Opened) -> None:
    models: list[Any] = ["claude", 1, True, 1.0, ["claude"], None]
    at = [build.message({"role": "assistant", "content": [], "provider": "p", "model": model}) for model in models]
    found = [opened().at(entry_id).model for entry_id in at]
    assert repr(found) == repr([{"provider": "p", "modelId": model} for model in models])


def test_a_window_without_room_is_refused() -> None:
    with pytest.raises(ValueError, match="window"):
        ProjectionAuthority(Session.in_memory(), window=0)


# -- masks ----------------------------------------------------------------------------------------------------------


def test_the_ledger_counts_masks_in_force_and_what_they_save(build: SessionBuilder, opened: Opened) -> None:
    build.assistant(calls=[tool_call(name, "read") for name in "abcd"])
    results = [build.tool_result(name, name * 100) for name in "abcd"]
    build.edit(results[0], MASK)  # 100 - 36
    build.edit(results[1], [text_block(MASK)])  # the same
    build.edit(results[2], MASK)
    build.edit(results[2], "unmasked")
    build.edit(results[3], None)  # an omission is no mask
    snapshot = opened().snapshot()
    assert snapshot.ledger == MaskLedger(masked_results=2, reclaimed_tokens=128)
    assert [entry.masked for entry in snapshot.entries[1:5]] == [True, True, False, False]
    assert [entry.tokens for entry in snapshot.entries[1:5]] == [36, 36, 8, 0]
    assert [entry.base.tokens for entry in snapshot.entries[1:5]] == [100] * 4


def test_a_replacement_counts_what_the_model_then_reads(build: SessionBuilder, opened: Opened) -> None:
    user = build.user("u" * 50)
    reply = build.assistant("t" * 50, thinking="h" * 50, calls=[tool_call("c", "read", {"path": "p"})])
    result = build.tool_result("c", "r" * 50)
    note = build.custom_message("mine", "m" * 50)
    command = build.bash("ls", "o" * 50)
    for target in (user, reply, result, note, command):
        build.edit(target, [text_block("new"), {"type": "thinking", "thinking": "why"}, tool_call("c", "read")])
    for target in (user, result):
        build.edit(target, "12345")
    snapshot = opened().snapshot()
    # "new", "why", "read", "{}"; a command stays as it is
    expected = [5, 3 + 3 + 4 + 2, 5, 12, 52]
    assert [entry.tokens for entry in snapshot.entries[:5]] == expected
    again = opened().snapshot()
    assert len(again.messages) == 5  # now the messages are there when they are counted
    assert [entry.tokens for entry in again.entries[:5]] == expected


def test_what_is_only_counted_does_not_stay_decoded(build: SessionBuilder, opened: Opened) -> None:
    build.user("hello")
    snapshot = opened().snapshot()
    item = snapshot.entries[0]
    assert (snapshot.tokens, breakdown(snapshot).tokens) == (5, 5)
    assert item.read() == item.read()
    assert item.read()[0] is not item.read()[0]
    assert item.source.read() is not item.source.read()
    message = item.messages[0]
    assert item.read()[0] is item.messages[0] is message
    assert message["content"] == "hello"


@pytest.mark.parametrize(
    "replacement",
    [
        "[pi-compaction] earlier read",
        " " + MASK,
        MASK + "\nand a second line",
        [text_block(MASK), text_block("more")],
        [{"type": "image", "data": MASK}],
        [],
        [MASK],
    ],
    ids=range(7),
)
def test_a_replacement_that_is_not_one_line_with_the_prefix_is_no_mask(
    build: SessionBuilder, opened: Opened, replacement: Any
) -> None:
    build.assistant(calls=[tool_call("a", "read")])
    build.edit(build.tool_result("a", "r"), replacement)
    snapshot = opened().snapshot()
    assert (snapshot.entries[1].masked, snapshot.entries[1].replaced) == (False, True)
    assert snapshot.ledger == MaskLedger(0, 0)


def test_a_compacted_away_mask_saves_nothing_any_more(build: SessionBuilder, opened: Opened) -> None:
    build.assistant(calls=[tool_call("a", "read")])
    build.edit(build.tool_result("a", "a" * 100), MASK)
    assert opened().snapshot().ledger == MaskLedger(1, 64)
    build.compaction("sum", None)
    assert opened().snapshot().ledger == MaskLedger(0, 0)


def test_token_bounds_enclose_the_count_and_are_exact_after_it(build: SessionBuilder, opened: Opened) -> None:
    build.assistant("text", thinking="thought", calls=[tool_call("a", "read", {"path": "ä" * 50})])
    result = build.tool_result("a", [text_block("r" * 100), {"type": "image", "data": "", "mimeType": "image/png"}])
    command = build.bash("ls", "o" * 300)
    hidden = build.user("hidden")
    build.edit(result, "n" * 500)
    build.edit(command, "x")  # no effect on a command
    build.edit(hidden, None)
    snapshot = opened().snapshot()
    assert snapshot.entries[3].token_bounds == (0, 0)  # what is omitted is known without counting
    for entry in snapshot.entries:
        lower, upper = entry.token_bounds
        assert lower <= entry.tokens <= upper
        assert entry.token_bounds == (entry.tokens, entry.tokens)


# -- usage ----------------------------------------------------------------------------------------------------------


def test_a_providers_usage_is_the_base_and_what_came_since_is_counted(build: SessionBuilder, opened: Opened) -> None:
    build.user("u" * 10)
    build.assistant("old", usage=usage_of(300))
    build.assistant("t", calls=[tool_call("a", "read")], usage=usage_of(500))
    build.tool_result("a", "r" * 100)
    usage = opened().snapshot().usage
    assert (usage.tokens, usage.source, usage.window) == (600, "provider", 1000)
    assert (usage.lower, usage.upper) == (580, 640)


def test_without_a_providers_usage_everything_is_counted(build: SessionBuilder, opened: Opened) -> None:
    build.user("u" * 10)
    build.assistant("zero", usage=usage_of(10) | {"totalTokens": 0, "input": 0, "output": 0})
    build.assistant("none", usage=None)
    build.assistant("fail", usage=usage_of(500), stop_reason="error")
    build.assistant("stop", usage=usage_of(500), stop_reason="aborted")
    usage = opened().snapshot().usage
    assert (usage.tokens, usage.source) == (26, "estimate")


@pytest.mark.parametrize("later", ["edit", "edit elsewhere", "compaction"])
def test_usage_from_before_an_edit_or_a_compaction_is_not_trusted_until_the_next_answer(
    build: SessionBuilder, opened: Opened, later: str
) -> None:
    user = build.user("u" * 10)
    reply = build.assistant("t", usage=usage_of(500))
    assert opened().snapshot().usage.source == "provider"
    if later == "compaction":
        build.compaction("sum", reply)
    else:
        build.edit(user if later == "edit" else "nobody", None)
    assert opened().snapshot().usage.source == "estimate"
    build.assistant("new", usage=usage_of(200))
    build.user("1234")
    usage = opened().snapshot().usage
    assert (usage.tokens, usage.source) == (204, "provider")


# -- drafts ---------------------------------------------------------------------------------------------------------


def pair(build: SessionBuilder) -> tuple[str, str, str]:
    """A user message, an answer with the calls a and b, their results, and a last answer; ids of the middle three."""
    build.user("question")
    call = build.assistant("look", calls=[tool_call("a", "read"), tool_call("b", "read")])
    first, second = build.tool_result("a", "A"), build.tool_result("b", "B")
    build.assistant("answer")
    return call, first, second


def omit(target: str) -> ContextEditDraft:
    return ContextEditDraft(target_id=target, replacement=None)


def replace(target: str, content: Any) -> ContextEditDraft:
    return ContextEditDraft(target_id=target, replacement={"content": content})


def compact(first: str | None, **more: Any) -> CompactionDraft:
    return CompactionDraft(summary="sum", first_kept_entry_id=first, **more)


def refused(authority: ProjectionAuthority, drafts: list[Draft], told: str) -> None:
    """All three ways to hand drafts in refuse them, and nothing is written."""
    path = authority.session.path
    assert path is not None
    before, snapshot = path.read_bytes(), authority.snapshot()
    for way in (authority.validate, authority.preview, authority.commit):
        with pytest.raises(InvalidDraft, match=told):
            way(drafts)
    assert path.read_bytes() == before
    assert authority.snapshot() is snapshot


@pytest.mark.parametrize(
    ("replacement", "told"),
    [
        ("text", "replacement is None or a dict"),
        ({}, "neither text nor a list"),
        ({"content": None}, "neither text nor a list"),
        ({"content": 5}, "neither text nor a list"),
        ({"content": ["text"]}, "00000001: .*block"),
        ({"content": [{"type": "text"}]}, "a block of the type text without text"),
        ({"content": [{"type": "text", "text": 5}]}, "a block of the type text without text"),
        ({"content": [{"type": "image", "data": "AAAA"}]}, "a block of the type image without mimeType"),
        ({"content": [{"type": "thinking", "text": "x"}]}, "a block of the type thinking without thinking"),
        ({"content": [{"type": "toolCall", "id": "c", "name": "n"}]}, "a block of the type toolCall without arguments"),
    ],
    ids=range(10),
)
def test_a_replacement_that_would_break_requests_is_refused(
    build: SessionBuilder, opened: Opened, replacement: Any, told: str
) -> None:
    user = build.user("u")
    refused(opened(), [ContextEditDraft(target_id=user, replacement=replacement)], told)


def test_an_edit_of_what_is_not_there_not_on_the_branch_or_not_editable_is_refused(
    build: SessionBuilder, opened: Opened
) -> None:
    root = build.user("root")
    side = build.user("side")
    build.branch_from(root)
    others = [build.system("s"), build.bash("ls", ""), build.label(root, "l"), build.branch_summary("b")]
    others.append(build.compaction("sum", root))
    authority = opened()
    refused(authority, [omit("nobody")], "entry nobody not found")
    refused(authority, [omit(side)], f"entry {side} is not on the active branch")
    for other in others:
        refused(authority, [omit(other)], f"entry {other} does not contribute editable model content")


def test_an_edit_of_what_a_compaction_took_away_is_accepted(build: SessionBuilder, opened: Opened) -> None:
    gone = build.user("gone")
    build.compaction("sum", None)
    assert texts(opened().commit([omit(gone)])) == ["sum"]


def test_a_compaction_that_would_lose_everything_is_refused(build: SessionBuilder, opened: Opened) -> None:
    root = build.user("root")
    side = build.user("side")
    build.branch_from(root)
    build.user("u")
    authority = opened()
    refused(authority, [CompactionDraft(summary=" \n", first_kept_entry_id=root)], "an empty summary")
    refused(authority, [compact("nobody")], "first kept entry nobody not found")
    refused(authority, [compact(side)], f"first kept entry {side} is not on the active branch")
    refused(authority, [compact(root, tokens_before=-1)], "tokens_before cannot be negative")


COST = {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0.5}
USAGE = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "totalTokens": 10, "cost": COST}


@pytest.mark.parametrize(
    ("usage", "told"),
    [
        ({}, "its input is no number"),
        ({"input": 1}, "its output is no number"),
        ([USAGE], "it is not an object"),
        ("x", "it is not an object"),
        ({**USAGE, "cacheRead": None}, "its cacheRead is no number"),
        ({**USAGE, "output": "2"}, "its output is no number"),
        ({**USAGE, "output": True}, "its output is no number"),
        ({**USAGE, "totalTokens": float("inf")}, "its totalTokens is no number"),
        ({**USAGE, "totalTokens": 10**400}, "its totalTokens is no number"),
        ({**USAGE, "cost": None}, "its cost is not an object"),
        ({**USAGE, "cost": 0.5}, "its cost is not an object"),
        ({**USAGE, "cost": {**COST, "total": "y"}}, "its cost.total is no number"),
        ({**USAGE, "cost": {"total": 1}}, "its cost.input is no number"),
    ],
    ids=range(13),
)
def test_usage_that_pi_cannot_add_up_is_refused(
    build: SessionBuilder, opened: Opened, usage: Any, told: str
) -> None:
    """Pi's terminal would end with an error at every opening of the session."""
    root = build.user("root")
    refused(opened(), [compact(root, usage=usage)], f"usage is not as Pi records it: {told}")


def test_usage_as_pi_records_it_is_written_as_it_is(build: SessionBuilder, opened: Opened) -> None:
    """Keys that Pi may add to it stay, too."""
    root = build.user("root")
    usage = {**USAGE, "reasoning": 1, "cost": {**COST, "totalFromProvider": True}}
    authority = opened()
    authority.commit([compact(root, usage=usage)])
    assert authority.session.entries[-1].data["usage"] == usage


def test_numbers_that_javascript_does_not_have_are_refused(build: SessionBuilder, opened: Opened) -> None:
    """Pi would read infinity there, write null, and fail on that."""
    root = build.user("root")
    refused(opened(), [compact(root, tokens_before=10**400)], "tokens_before is larger than any context")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ([{"type": "image"}], "custom message: a block of the type image without data"),
        ([{"type": "image", "data": "AAAA", "mimeType": 5}], "a block of the type image without mimeType"),
        ([{"type": "thinking", "thinking": "x"}], "custom message: a content block is neither text nor an image"),
        ([{"type": "file", "data": "AAAA", "mimeType": "a/b"}], "a content block is neither text nor an image"),
        ([{"type": "text", "text": None}], "custom message: a block of the type text without text"),
    ],
    ids=range(5),
)
def test_a_custom_message_is_text_and_whole_images(
    build: SessionBuilder, opened: Opened, content: Any, told: str
) -> None:
    """Of everything else Pi makes an image without data, which providers refuse at every request."""
    build.user("u")
    refused(opened(), [CustomMessageDraft(custom_type="c", content=content)], told)


def test_custom_entries_need_a_type_and_content(build: SessionBuilder, opened: Opened) -> None:
    build.user("u")
    authority = opened()
    number: Any = 5
    refused(authority, [CustomDraft(custom_type="")], "a custom entry needs a type")
    refused(authority, [CustomDraft(custom_type=number)], "a custom entry needs a type")
    refused(authority, [CustomMessageDraft(custom_type=number, content="x")], "a custom message needs a type")
    refused(authority, [CustomMessageDraft(custom_type="", content="x")], "a custom message needs a type")
    bad: Any = None
    refused(authority, [CustomMessageDraft(custom_type="c", content=bad)], "neither text nor a list")
    refused(authority, [bad], "None is not a draft")


def test_a_call_and_its_results_are_omitted_together_or_not_at_all(build: SessionBuilder, opened: Opened) -> None:
    call, first, second = pair(build)
    authority = opened()
    refused(authority, [omit(call)], "an orphaned result for a: providers refuse that")
    refused(authority, [omit(call), omit(first)], "an orphaned result for b")
    refused(authority, [omit(second)], "an unanswered call b")
    refused(authority, [replace(call, "no calls any more")], "an orphaned result for a")
    snapshot = authority.preview([omit(second), omit(call), omit(first)])
    assert texts(snapshot) == ["question", [text_block("answer")]]
    kept = [text_block("l"), tool_call("a", "read"), tool_call("b", "read")]
    assert authority.preview([replace(call, kept)]).mended == ()


def test_an_omitted_call_is_given_back_only_with_its_results(build: SessionBuilder, opened: Opened) -> None:
    call, first, second = pair(build)
    for target in (call, first, second):
        build.edit(target, None)
    calls = [tool_call("a", "read"), tool_call("b", "read")]
    authority = opened()
    refused(authority, [replace(call, calls)], "an unanswered call a")
    refused(authority, [replace(first, "A")], "an orphaned result for a")
    assert authority.preview([replace(call, calls), replace(first, "A"), replace(second, "B")]).mended == ()


def test_call_ids_that_a_provider_uses_again_hide_no_broken_pair(build: SessionBuilder, opened: Opened) -> None:
    parts: list[str] = []
    for text in "xy":
        parts.append(build.assistant(text, calls=[tool_call("call_0", "read")]))
        parts.append(build.tool_result("call_0", text))
    authority = opened()
    assert authority.snapshot().mended == ()
    refused(authority, [omit(parts[1])], "an unanswered call call_0")
    refused(authority, [omit(parts[3])], "an unanswered call call_0")
    refused(authority, [omit(parts[0])], "an orphaned result for call_0")
    refused(authority, [omit(parts[2])], "a second result for call_0")
    authority.validate([omit(parts[2]), omit(parts[3])])
    authority.validate([omit(parts[0]), omit(parts[1])])


def test_a_compaction_must_not_keep_from_inside_a_pair(build: SessionBuilder, opened: Opened) -> None:
    call, first, second = pair(build)
    authority = opened()
    refused(authority, [compact(first)], "an orphaned result for a")
    refused(authority, [compact(second)], "an orphaned result for b")
    assert texts(authority.preview([compact(call)]))[0] == "sum"
    assert len(authority.preview([compact(None)]).messages) == 1
    assert len(authority.preview([compact(first), compact(None)]).messages) == 1  # judged as a whole


def test_what_was_broken_before_is_no_reason_to_refuse_and_can_be_mended(build: SessionBuilder, opened: Opened) -> None:
    orphan = build.tool_result("lost", "r")
    open_call = build.assistant("t", calls=[tool_call("open", "read")])
    user = build.user("u")
    authority = opened()
    assert set(authority.snapshot().mended) == {Mend("orphan-result", "lost", 0), Mend("unanswered-call", "open", 1)}
    authority.validate([omit(user)])
    assert authority.commit([omit(orphan), omit(open_call)]).mended == ()


def test_masks_are_never_refused(build: SessionBuilder, opened: Opened) -> None:
    _, first, second = pair(build)
    orphan = build.tool_result("lost", "r")
    authority = opened()
    masks = [replace(target, MASK) for target in (first, second, orphan)]
    assert authority.commit(masks).ledger.masked_results == 3
    assert authority.commit(masks).ledger.masked_results == 3


def test_results_of_failed_attempts_may_go_with_or_without_them(build: SessionBuilder, opened: Opened) -> None:
    failed = build.assistant("t", calls=[tool_call("a", "read")], stop_reason="error")
    result = build.tool_result("a", "r")
    authority = opened()
    authority.validate([omit(failed)])
    authority.validate([omit(result)])


# -- previews and commits -------------------------------------------------------------------------------------------


def test_a_preview_of_drafts_that_build_on_each_other_works(build: SessionBuilder, opened: Opened) -> None:
    """A custom message, then an edit of it, then a compaction that keeps it, each known only as a draft."""
    build.user("u")
    authority = opened()
    before = authority.snapshot()
    shown_first = authority.preview([CustomMessageDraft(custom_type="note", content="draft")])
    made = shown_first.entries[1].source.id
    assert authority.session.get(made) is None  # drafted ids are not promised to anybody
    snapshot = authority.commit([CustomMessageDraft(custom_type="note", content="draft")])
    note = snapshot.entries[1].source.id
    drafts: list[Draft] = [replace(note, "edited"), compact(note, tokens_before=5)]
    preview = authority.preview(drafts)
    assert shown(preview) == [("compactionSummary", "sum"), ("custom", "edited")]
    assert preview.checkpoint is not None
    assert preview.checkpoint.id == preview.leaf_id
    assert [entry.type for entry in preview.branch] == ["message", "custom_message", "context_edit", "compaction"]
    assert (preview.position(note), preview.find(note)) == (1, preview.entries[1])
    assert shown(authority.commit(drafts)) == shown(preview)
    assert texts(before) == ["u"]


def test_a_commit_is_one_write_of_what_the_preview_showed(
    build: SessionBuilder, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    call, first, second = pair(build)
    authority = opened()
    path = authority.session.path
    assert path is not None
    authority.session.hold()
    writes: list[int] = []
    real = os.write

    def write(descriptor: int, block: bytes) -> int:
        writes.append(block.count(b"\n"))
        return real(descriptor, block)

    monkeypatch.setattr(os, "write", write)
    drafts: list[Draft] = [
        replace(first, MASK),
        replace(second, MASK),
        CustomDraft(custom_type="record", data={"n": 2}),
        compact(call, details={"d": 1}, usage=usage_of(20)),
    ]
    preview = authority.preview(drafts)
    snapshot = authority.commit(drafts)
    assert writes == [4]
    again = ProjectionAuthority(Session.open(path), counter=Characters(), window=1000).snapshot()
    for one in (snapshot, again):
        assert shown(one) == shown(preview)
        assert (one.tokens, one.ledger, one.usage) == (preview.tokens, preview.ledger, preview.usage)
    assert [entry.source.type for entry in again.entries[:5]] == ["compaction", *["message"] * 4]
    assert authority.commit([]) is authority.snapshot()
    assert writes == [4]


def test_what_is_written_has_pis_shape(build: SessionBuilder, opened: Opened) -> None:
    build.system("prompt", tools_added=[{"name": "read"}])
    user = build.user("u" * 400)
    build.assistant("t" * 40)
    result = build.tool_result("lost", "r")
    authority = opened()
    authority.commit(
        [
            replace(result, ""),
            replace(user, "x" * 400),
            compact(None),
            CustomMessageDraft(custom_type="c", content=[], display=False),
        ]
    )
    blank, plain, compaction, note = (entry.data for entry in authority.session.entries[-4:])
    assert blank["replacement"] == {"content": [text_block("")]}
    assert plain["replacement"] == {"content": "x" * 400}
    assert compaction["firstKeptEntryId"] == compaction["id"]
    assert compaction["fromHook"] is True
    # Pi's figure: the prompt (6 + 17 of its tools), 400, 40 and 0 characters, each a quarter rounded up.
    assert compaction["tokensBefore"] == 6 + 100 + 10
    system = compaction["systemMessage"]
    assert (system["content"], system["toolsAdded"]) == ("prompt", [{"name": "read"}])
    assert isinstance(system["timestamp"], int)
    assert {"details", "usage"}.isdisjoint(compaction)
    assert {key: note[key] for key in ("customType", "content", "display")} == {
        "customType": "c",
        "content": [],
        "display": False,
    }
    assert "details" not in note


def test_drafts_are_judged_against_the_file_as_it_is_now(build: SessionBuilder, opened: Opened) -> None:
    call, first, second = pair(build)
    authority = opened()
    authority.snapshot()
    path = authority.session.path
    assert path is not None
    other = ProjectionAuthority(Session.open(path))
    other.commit([omit(call), omit(first), omit(second)])
    with pytest.raises(InvalidDraft, match="an orphaned result for a"):
        authority.commit([replace(first, MASK)])
    assert authority.snapshot().find(first) is not None
    assert texts(authority.snapshot()) == ["question", [text_block("answer")]]


def test_a_locked_session_refuses_the_commit_before_anything_is_written(build: SessionBuilder, opened: Opened) -> None:
    user = build.user("u")
    authority = opened()
    path = authority.session.path
    assert path is not None
    before = path.read_bytes()
    with Session.open(path, owner="the other") as other:
        other.hold()
        with pytest.raises(SessionLocked, match="locked by the other"):
            authority.commit([omit(user)])
    assert path.read_bytes() == before


def test_a_preview_over_an_empty_session_and_over_a_version_1_file(tmp_path: Path) -> None:
    empty = ProjectionAuthority(Session.in_memory(), counter=Characters())
    assert texts(empty.preview([CustomMessageDraft(custom_type="c", content="x")])) == ["x"]
    assert texts(empty.commit([CustomMessageDraft(custom_type="c", content="x")])) == ["x"]
    build = SessionBuilder(version=1)
    build.user("one")
    build.user("two")
    authority = ProjectionAuthority(Session.open(build.write(tmp_path / "old.jsonl")), counter=Characters())
    first = authority.snapshot().entries[0].source.id
    assert texts(authority.commit([omit(first)])) == ["two"]
    assert texts(ProjectionAuthority(Session.open(tmp_path / "old.jsonl")).snapshot()) == ["two"]
