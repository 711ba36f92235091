"""``context_tree_query``: what is found, what comes back, in which pages, and what must not come back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from contexthost.history import History
from contexthost.projection import ContextEditDraft, ProjectionAuthority
from contexthost.session import Session
from contexthost_masking.cli_query import tree_query
from contexthost_masking.query import PAGE_CHARS, Answer, QueryError, Request, answer
from support.builder import SessionBuilder, tool_call
from support.masking import Characters

MASK = "[pi-compaction] Earlier result masked"


class Work:
    """A small session: three reads and a command, the first read masked, the second omitted, the third replaced."""

    def __init__(self) -> None:
        self.build = build = SessionBuilder()
        build.user("look at the files")
        self.masked = self.read("src/alpha.py", "def alpha(): return 'Needle one'")
        self.omitted = self.read("src/beta.py", "a secret Needle two")
        self.replaced = self.read("src/gamma.py", "a password Needle three")
        self.command = self.run("pytest -q", "3 passed, Needle four")
        build.edit(self.masked, MASK)
        build.edit(self.omitted, None)
        build.edit(self.replaced, "a Needle, redacted")
        build.assistant("done")

    def call(self, tool: str, arguments: dict[str, Any], text: Any) -> str:
        number = self.build.count
        self.build.assistant(calls=[tool_call(f"call-{number}", tool, arguments)])
        return self.build.tool_result(f"call-{number}", text, tool=tool)

    def read(self, path: str, text: Any) -> str:
        return self.call("read", {"path": path}, text)

    def run(self, command: str, text: Any) -> str:
        return self.call("bash", {"command": command}, text)

    def ask(self, **arguments: Any) -> Answer:
        entries = [json.loads(line) for line in self.build.bytes().splitlines()[1:]]
        session = Session.in_memory(entries=entries)
        authority = ProjectionAuthority(session, counter=Characters())
        return answer(Request.of(arguments), History(session, authority.snapshot), session)


def ids(found: Answer) -> list[str]:
    return [result["entryId"] for result in found.data["results"]]


@pytest.fixture
def work() -> Work:
    return Work()


# -- one entry -------------------------------------------------------------------------------------------------------


def test_a_masked_entry_gives_its_original(work: Work) -> None:
    found = work.ask(entry=work.masked)
    assert found.found
    assert found.text == (
        f"[{work.masked}] tool result read · turn 1 · in context, masked · 32 characters\n"
        "def alpha(): return 'Needle one'"
    )


def test_a_replaced_entry_gives_what_stands_in_its_place(work: Work) -> None:
    found = work.ask(entry=work.replaced)
    assert found.data["text"] == "a Needle, redacted"
    assert "password" not in json.dumps(found.data) + found.text


def test_an_omitted_entry_is_known_and_says_nothing(work: Work) -> None:
    found = work.ask(entry=work.omitted)
    assert not found.found
    assert found.text.endswith("It was omitted from the conversation; there is no text to give.")
    assert "secret" not in json.dumps(found.data) + found.text


def test_a_command_that_the_user_hid_is_not_there(work: Work) -> None:
    hidden = work.build.bash("cat key", "hunter2", exclude=True)
    assert work.ask(entry=hidden).text == f"There is no entry {hidden} here."
    assert work.ask(text="hunter2").data["results"] == []
    assert ids(work.ask(turns="6-")) == []


def test_an_unknown_id_is_told(work: Work) -> None:
    assert work.ask(entry="zzz").text == "There is no entry zzz here."
    assert work.ask(call="zzz").text == "There is no result of a call zzz here."


def test_a_result_is_read_by_the_id_of_its_call(work: Work) -> None:
    (result,) = work.ask(tool="bash").data["results"]
    assert work.ask(call=result["callId"]).data["text"] == "3 passed, Needle four"


def test_what_was_compacted_away_comes_back(work: Work) -> None:
    work.build.compaction("a summary", None)
    found = work.ask(entry=work.masked)
    assert (found.data["place"], found.data["change"]) == ("compacted away", "masked")
    assert found.data["text"] == "def alpha(): return 'Needle one'"


def test_another_branch_must_be_asked_for(work: Work) -> None:
    work.build.branch_from(work.masked)
    work.build.user("elsewhere")
    assert work.ask(entry=work.command).text == f'The entry {work.command} is on another branch: ask with scope "all".'
    assert work.ask(entry=work.command, scope="all").data["text"] == "3 passed, Needle four"
    assert ids(work.ask(text="four")) == []
    assert ids(work.ask(text="four", scope="all")) == [work.command]
    assert ids(work.ask(tool="bash")) == []
    assert ids(work.ask(tool="bash", scope="all")) == [work.command]


# -- pages -----------------------------------------------------------------------------------------------------------


def test_a_page_has_8000_characters_and_names_the_next(work: Work) -> None:
    text = "".join(f"line {number} 😀\n" for number in range(2_000))
    entry = work.run("long", text)
    found = work.ask(entry=entry)
    assert PAGE_CHARS == 8_000
    assert found.data["text"] == text[:8_000]
    pages = [found.data["text"]]
    while found.data["continue"] is not None:
        assert f"(more: continue {found.data['continue']})" in found.text
        assert len(found.text) < 8_600
        found = work.ask(**{"continue": found.data["continue"]})
        pages.append(found.data["text"])
    assert "".join(pages) == text
    assert [len(page) for page in pages[:-1]] == [8_000] * (len(pages) - 1)


def test_a_text_that_ends_with_the_page_has_no_next(work: Work) -> None:
    for length, more in ((8_000, False), (8_001, True)):
        entry = work.run("long", "x" * length)
        assert (work.ask(entry=entry).data["continue"] is not None) is more


def test_the_lengths_of_the_blocks_tell_where_they_were_joined(work: Work) -> None:
    blocks = [{"type": "text", "text": "one\n"}, {"type": "text", "text": ""}, {"type": "text", "text": "three"}]
    found = work.ask(entry=work.run("three", blocks))
    assert (found.data["text"], found.data["blocks"]) == ("one\n\n\nthree", [4, 0, 5])


def test_a_list_is_paged_and_stays_as_it_was_when_it_began(work: Work) -> None:
    results = [work.run(f"job {number}", f"haystack {number} " + "y" * 390) for number in range(40)]
    expected = results[::-1]
    for question in ({"text": "haystack"}, {"tool": "bash", "turns": "5-"}):
        found = work.ask(**question)
        seen = ids(found)
        assert 0 < len(seen) < 30
        work.run("job new", "haystack new")  # came later: not part of this list
        while found.data["continue"] is not None:
            assert len(found.text) <= 8_000
            found = work.ask(**{"continue": found.data["continue"]})
            seen += ids(found)
        assert seen == expected
        work.build.lines = work.build.lines[:-2]
        work.build.leaf = results[-1]


@pytest.mark.parametrize("token", ["nonsense", "e30=x", "W10", "eyJvZmZzZXQiOi0xfQ", "eyJlbnRyeSI6NX0", "eyJhIjoxfQ"])
def test_a_token_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(QueryError, match="is no token of an earlier answer"):
        Request.of({"continue": token})


# -- lists -----------------------------------------------------------------------------------------------------------


def test_all_words_must_occur_case_aside_and_what_is_gone_comes_first(work: Work) -> None:
    assert ids(work.ask(text="NEEDLE")) == [work.masked, work.command, work.replaced]
    assert ids(work.ask(text="needle ALPHA")) == [work.masked]
    assert ids(work.ask(text="needle secret")) == []
    assert ids(work.ask(text="password")) == []


def test_a_snippet_has_the_words_with_200_characters_on_each_side(work: Work) -> None:
    entry = work.run("long", "a" * 500 + " pin " + "b" * 500)
    (result,) = work.ask(text="pin").data["results"]
    assert result["entryId"] == entry
    assert result["snippet"] == "…" + "a" * 199 + " pin " + "b" * 199 + "…"


def test_by_tool_omitted_results_are_found_too_without_a_text(work: Work) -> None:
    found = work.ask(tool="READ")
    assert sorted(ids(found)) == sorted([work.masked, work.omitted, work.replaced])
    states = {result["entryId"]: (result["change"], result["characters"]) for result in found.data["results"]}
    assert states[work.omitted] == ("omitted", 0)
    assert "secret" not in found.text


def test_by_path_the_call_and_its_result_are_found_by_the_end_of_the_path(work: Work) -> None:
    for path in ("src/alpha.py", "alpha.py", "./src/alpha.py", "/project/src/alpha.py"):
        found = work.ask(path=path)
        assert [result["kind"] for result in found.data["results"]] == ["tool result", "assistant"]
        assert ids(found)[0] == work.masked
    assert ids(work.ask(path="lpha.py")) == []


def test_an_edited_call_is_not_found_by_its_old_path(work: Work) -> None:
    call = work.ask(path="alpha.py").data["results"][1]["entryId"]
    work.build.edit(call, "there was a call")
    assert ids(work.ask(path="alpha.py")) == []


@pytest.mark.parametrize(("turns", "count"), [("1", 3), (1, 3), ("2-3", 4), ("3-", 5), ("4", 2), ("99", 0)])
def test_turns_are_the_assistants_messages_from_1(work: Work, turns: object, count: int) -> None:
    # Turn 1 has the user's question as well; the last turn is the answer alone.
    assert len(ids(work.ask(turns=turns))) == count


@pytest.mark.parametrize("turns", ["x", "3-1", "-3", "1.5", True])
def test_turns_that_are_no_range_are_refused(turns: object) -> None:
    with pytest.raises(QueryError, match="turns"):
        Request.of({"turns": turns})


def test_conditions_are_joined(work: Work) -> None:
    assert ids(work.ask(text="needle", tool="read", path="alpha.py", turns="1-2")) == [work.masked]
    assert ids(work.ask(text="needle", tool="bash", path="alpha.py")) == []


def test_nothing_to_look_for_is_refused() -> None:
    for arguments in ({}, {"scope": "all"}, {"entry": "  "}, {"entry": None}):
        with pytest.raises(QueryError, match="say what to look for"):
            Request.of(arguments)


def test_searches_are_not_found_by_searches(work: Work) -> None:
    earlier = work.call("context_tree_query", {"text": "four"}, "3 passed, Needle four")
    assert ids(work.ask(text="four")) == [work.command]
    assert ids(work.ask(turns="6-")) == []
    assert ids(work.ask(tool="context_tree_query")) == [earlier]
    assert work.ask(entry=earlier).data["text"] == "3 passed, Needle four"


def test_a_mask_above_an_omission_does_not_bring_the_text_back(work: Work) -> None:
    work.build.edit(work.omitted, MASK)
    assert "secret" not in work.ask(entry=work.omitted).text
    assert ids(work.ask(text="secret")) == []


def test_a_batch_of_masks_is_drafts_of_the_host(work: Work) -> None:
    draft = ContextEditDraft(target_id=work.command, replacement={"content": MASK})
    entries = [json.loads(line) for line in work.build.bytes().splitlines()[1:]]
    session = Session.in_memory(entries=entries)
    authority = ProjectionAuthority(session, counter=Characters())
    history = History(session, authority.snapshot)
    authority.commit([draft])
    assert answer(Request.of({"entry": work.command}), history, session).data["text"] == "3 passed, Needle four"


def test_words_on_the_command_line_are_what_text_says(tmp_path: Path) -> None:
    build = SessionBuilder()
    lit = build.user("the amber lamp is lit")
    build.user("the amber moon")
    path = build.write(tmp_path / "session.jsonl")
    asked = (["amber", "lamp"], ["--text", "amber lamp"], ["lamp", "--text", "amber"])
    printed = [CliRunner().invoke(tree_query, [str(path), *arguments, "--json"]).output for arguments in asked]
    assert len(set(printed)) == 1
    assert [one["entryId"] for one in json.loads(printed[0])["results"]] == [lit]
