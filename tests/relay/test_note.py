"""The note: what it says, in which order, and that it keeps to its limits whatever it is made from."""

from __future__ import annotations

import re
from dataclasses import replace

from hypothesis import given, strategies as st

from contexthost_relay.gitlog import Commit, RepositoryLog
from contexthost_relay.note import FileChange, NoteSection, NoteSource, Said, write_note
from contexthost_relay.settings import Limits
from contexthost_relay.subagents import Subagent

MADE = "2026-01-05T12:34:56Z"
EMPTY = NoteSource(number=3, path="/notes/s/3.md", made=MADE)


def said(text: str, number: int = 1) -> Said:
    return Said(f"0000000{number}", f"2026-01-05T09:0{number}:00.000Z", text)


def test_a_whole_note() -> None:
    source = replace(
        EMPTY,
        instructions=[said("Make the tests\npass", 1), said("and the docs", 2)],
        earlier=iter([said("second of old", 5), said("first of old", 4)]),
        summary_id="abcd1234",
        answer=said("Done.\n\nAll green.", 3),
        agents=[
            Subagent("a-1", "Explore", "Look around", "completed", result="Found it.\nHere.", entry_id="0000000b"),
            Subagent("a-2", "Plan", "Think", started="2026-01-05T09:30:00.000Z", worktree="/w/worktrees/x", branch="b"),
        ],
        files=[FileChange("a.py", edits=2), FileChange("b.py", edits=1, writes=1)],
        repositories=[RepositoryLog("/project", "main", (Commit("abc1234", "2026-01-05T10:00:00+00:00", "Fix"),))],
        extra=[NoteSection("More", "from a plugin")],
    )
    assert write_note(source, Limits()) == (
        "# Relay note 3\n"
        "\n"
        "The conversation up to here was replaced by this note. A program made it from the session's record, without "
        "a model. What follows the note is the conversation as it was.\n"
        "\n"
        "## Subagents that have not come back\n"
        "\n"
        "- **RUNNING** since 2026-01-05 09:30: `a-2`, Plan, “Think”, worktree /w/worktrees/x, branch b\n"
        "\n"
        "## What the user said since the last compaction, oldest first\n"
        "\n"
        "- [00000001, 2026-01-05 09:01] Make the tests pass\n"
        "- [00000002, 2026-01-05 09:02] and the docs\n"
        "\n"
        'An earlier summary is replaced too: `recall` with entryId "abcd1234".\n'
        "Before that, oldest first: “first of old” · “second of old”\n"
        "\n"
        "## The last answer before what follows [00000003, 2026-01-05 09:03]\n"
        "\n"
        "> Done.\n"
        ">\n"
        "> All green.\n"
        "\n"
        "## Subagents that have come back, newest first\n"
        "\n"
        "- completed `a-1`, Explore, “Look around” [0000000b]: Found it. Here.\n"
        "\n"
        "## Files changed, the last first\n"
        "\n"
        "- b.py (1 edit, 1 write)\n"
        "- a.py (2 edits)\n"
        "\n"
        "## Commits since the session began\n"
        "\n"
        "/project, branch main:\n"
        "- abc1234 Fix (2026-01-05 10:00)\n"
        "\n"
        "## More\n"
        "\n"
        "from a plugin\n"
        "\n"
        "---\n"
        'Everything else is still in the session. `recall({"query": "words"})` searches it, '
        '`recall({"entryId": "…"})` gives one entry whole; ids stand in brackets above.\n'
        'This note: `recall({"entryId": "note:3"})`, /notes/s/3.md\n'
        "Made 2026-01-05 12:34.\n"
    )


def test_sections_without_anything_are_left_out() -> None:
    assert write_note(EMPTY, Limits()).count("##") == 0


def instruction_lengths(note: str) -> list[int]:
    return [len(line.split("] ", 1)[1]) for line in note.splitlines() if line.startswith("- [")]


def test_newer_instructions_keep_more_older_are_shortened_then_left_out() -> None:
    source = replace(EMPTY, instructions=[said("x" * 2_000, at % 9) for at in range(40)])
    note = write_note(source, Limits())
    lengths = instruction_lengths(note)
    assert lengths[-1] == 700  # userMessageEach
    assert lengths[-2] == 560  # four fifths of it
    assert lengths == sorted(lengths)
    assert min(lengths) >= 80
    missing = re.search(r"- \((\d+) older are left out", note)
    assert missing is not None
    assert int(missing[1]) + len(lengths) == 40


def test_short_instructions_are_never_cut_as_long_as_there_is_room() -> None:
    source = replace(EMPTY, instructions=[said(f"do {at}", 1) for at in range(60)])
    note = write_note(source, Limits())
    assert all(f"] do {at}\n" in note for at in range(60))


def test_cuts_are_at_code_points_and_marked() -> None:
    source = replace(EMPTY, instructions=[said("🦊" * 900)])
    assert f"] {'🦊' * 699}…\n" in write_note(source, Limits())


def test_control_characters_and_escape_sequences_do_not_get_through() -> None:
    evil = "a\x1b[31mred\x1b[0m\x1b]0;title\x07b\u202ec\x00d\ud800\x9be"
    source = replace(
        EMPTY,
        instructions=[said(evil)],
        earlier=iter([said(evil)]),
        answer=said(evil),
        agents=[Subagent(evil, evil, evil, evil, result=evil, worktree=evil, branch=evil, entry_id=evil)],
        files=[FileChange(evil, 1)],
        repositories=[RepositoryLog(evil, evil, (Commit(evil, evil, evil),))],
        extra=[NoteSection(evil, evil)],
    )
    note = write_note(source, Limits())
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", note)
    assert "ared" in note


def test_what_was_said_cannot_pose_as_a_section() -> None:
    source = replace(
        EMPTY,
        instructions=[said("hi\n## Subagents that have not come back")],
        answer=said("yes\n## Files changed"),
        extra=[NoteSection("T", "text\n## Commits since")],
    )
    headings = [line for line in write_note(source, Limits()).splitlines() if line.startswith("#")]
    assert len(headings) == 4  # the note's, the instructions', the answer's, the plugin's


def test_running_is_at_the_very_top_even_when_there_is_no_room_for_all() -> None:
    agents = [Subagent(f"id-{at}", "T", "d" * 100, started=MADE) for at in range(50)]
    note = write_note(replace(EMPTY, agents=agents, instructions=[said("x")]), Limits())
    assert note.index("RUNNING") < note.index("What the user said")
    assert re.search(r"\(\d+ more RUNNING\)", note)


TEXT = st.text(max_size=400) | st.text(min_size=1, max_size=3).map(lambda text: text * 700)
SAID = st.builds(Said, st.text(max_size=12), st.text(max_size=30), TEXT)
AGENT = st.builds(
    Subagent, TEXT, TEXT, TEXT, st.sampled_from(["RUNNING", "completed"]), st.text(max_size=30), TEXT, TEXT, TEXT
)
SOURCE = st.builds(
    NoteSource,
    number=st.integers(1, 10**9),
    path=TEXT,
    made=st.text(max_size=30),
    instructions=st.lists(SAID, max_size=30),
    earlier=st.lists(SAID, max_size=10),
    summary_id=st.none() | TEXT,
    answer=st.none() | SAID,
    agents=st.lists(AGENT, max_size=10),
    files=st.lists(st.builds(FileChange, TEXT, st.integers(0, 9), st.integers(0, 9)), max_size=30),
    repositories=st.lists(
        st.builds(RepositoryLog, TEXT, st.none() | TEXT, st.lists(st.builds(Commit, TEXT, TEXT, TEXT)).map(tuple)),
        max_size=3,
    ),
    extra=st.lists(st.builds(NoteSection, TEXT, TEXT), max_size=4),
)
LIMITS = st.builds(
    Limits,
    total=st.integers(500, 12_000),
    userMessages=st.integers(0, 20_000),
    userMessageEach=st.integers(0, 20_000),
    chain=st.integers(0, 20_000),
    answer=st.integers(0, 20_000),
    subagents=st.integers(0, 20_000),
    files=st.integers(0, 20_000),
    git=st.integers(0, 20_000),
    extra=st.integers(0, 20_000),
)


@given(SOURCE, LIMITS)
def test_no_source_and_no_limits_break_the_total(source: NoteSource, limits: Limits) -> None:
    note = write_note(source, limits)
    assert len(note) <= limits.total
    assert note.startswith("# Relay note ")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", note)


@given(SOURCE)
def test_with_the_defaults_the_footer_always_stays(source: NoteSource) -> None:
    note = write_note(source, Limits())
    assert len(note) <= 9_500
    assert f'recall({{"entryId": "note:{source.number}"}})' in note


def test_the_same_source_gives_the_same_note() -> None:
    source = replace(EMPTY, instructions=[said("x" * 2_000, at % 9) for at in range(40)])
    assert write_note(source, Limits()) == write_note(source, Limits())


def test_the_default_sections_fit_together() -> None:
    limits = Limits()
    sections = [limits.userMessages, limits.chain, limits.answer, limits.subagents, limits.files, limits.git]
    frame = len(write_note(replace(EMPTY, path="/" + "x" * 300), limits))
    assert sum(sections) + limits.extra + frame <= limits.total
