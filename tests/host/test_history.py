"""The record behind the context: what entries say, in which state they are, searching, paging, earlier sessions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from contexthost._recorded import Query, fold
from contexthost.history import History, paged
from contexthost.projection import MASK_PREFIX, ProjectionAuthority
from contexthost.session import Session
from support.builder import SessionBuilder, encode, image_block, text_block, tool_call


def opened(build: SessionBuilder, path: Path) -> History:
    session = Session.open(build.write(path / "s.jsonl"))
    return History(session, ProjectionAuthority(session).snapshot)


def texts(history: History, query: str, **options: object) -> list[str]:
    return [hit.item.text for hit in history.search(query, limit=10, **options)]  # type: ignore[arg-type]  # passed on


MASK = MASK_PREFIX + "read result masked"


def test_texts_images_and_calls_are_readable(tmp_path: Path) -> None:
    build = SessionBuilder()
    user = build.user([text_block("look"), image_block()])
    call = build.assistant(
        "on it", thinking="secret", calls=[tool_call("c", "bash", {"command": 'echo "a"\nls', "timeout": 5})]
    )
    result = build.tool_result("c", "a\nfile", tool="bash")
    command = build.bash("pwd", "/here")
    history = opened(build, tmp_path)
    said = {entry_id: history.get(entry_id) for entry_id in (user, call, result, command)}
    assert [(item.recorded.kind, item.text) for item in said.values() if item] == [
        ("user", "look\n[image]"),
        ("assistant", 'on it\n[call bash]\ncommand: echo "a"\nls\ntimeout: 5'),
        ("tool result", "a\nfile"),
        ("command", "$ pwd\n/here"),
    ]
    found = said[result]
    assert found is not None
    assert (found.recorded.tool, found.recorded.call_id, found.state) == ("bash", "c", "in context")


def test_settings_edits_and_prompts_say_nothing(tmp_path: Path) -> None:
    build = SessionBuilder()
    ids = [build.system("prompt words"), build.model_change("p", "m"), build.custom("note", {"text": "prompt words"})]
    history = opened(build, tmp_path)
    assert [history.get(entry_id) for entry_id in [*ids, "nothing"]] == [None] * 4
    assert history.search("prompt words", limit=5) == []


def test_omitted_is_not_found_replaced_says_its_replacement_masked_its_original(tmp_path: Path) -> None:
    build = SessionBuilder()
    omitted, replaced, masked, both = (build.user(f"falcon {name}") for name in ("one", "two", "three", "four"))
    build.edit(omitted, None)
    build.edit(replaced, "heron two")
    build.edit(masked, MASK)
    build.edit(both, "heron four")
    build.edit(both, MASK)
    history = opened(build, tmp_path)
    assert texts(history, "falcon") == ["falcon three"]
    assert texts(history, "heron") == ["heron four", "heron two"]
    items = [history.get(entry_id) for entry_id in (omitted, replaced, masked, both)]
    assert [(item.change, item.text) for item in items if item] == [
        ("omitted", ""),
        ("replaced", "heron two"),
        ("masked", "falcon three"),
        ("masked", "heron four"),  # what the mask stands over had been replaced
    ]


def test_what_the_model_does_not_see_any_more_comes_first_then_newest_first(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("otter 1")
    build.user("otter 2")
    kept = build.user("otter 3")
    build.compaction("otter summary", kept)
    build.user("otter 4")
    masked = build.user("otter 5")
    build.edit(masked, MASK)
    history = opened(build, tmp_path)
    hits = history.search("OTTER", limit=10)
    assert [(hit.item.text, hit.item.state) for hit in hits] == [
        ("otter 5", "in context, masked"),
        ("otter 2", "compacted away"),
        ("otter 1", "compacted away"),
        ("otter 4", "in context"),
        ("otter 3", "in context"),
    ]
    assert [hit.item.text for hit in history.search("otter", limit=2)] == ["otter 5", "otter 2"]
    assert texts(history, "summary") == []
    assert texts(history, "summary", summaries=True) == ["otter summary"]


def test_an_edit_from_before_a_compaction_still_counts(tmp_path: Path) -> None:
    build = SessionBuilder()
    secret = build.user("the password is swordfish")
    build.edit(secret, None)
    kept = build.user("go on")
    build.compaction("summary", kept)
    history = opened(build, tmp_path)
    assert history.search("swordfish", limit=5) == []
    item = history.get(secret)
    assert item is not None
    assert (item.withheld, item.text) == (True, "")


def test_other_branches_only_when_asked_and_their_omissions_prevail(tmp_path: Path) -> None:
    build = SessionBuilder()
    root = build.user("start")
    build.user("marmot left")
    left_secret = build.user("marmot secret")
    build.edit(left_secret, None)
    build.branch_from(left_secret)
    build.edit(left_secret, MASK)  # on yet another branch it was only masked
    build.branch_from(root)
    build.user("marmot right")
    history = opened(build, tmp_path)
    assert texts(history, "marmot") == ["marmot right"]
    hits = history.search("marmot", limit=5, scope="all")
    assert [(hit.item.text, hit.item.state) for hit in hits] == [
        ("marmot left", "other branch"),
        ("marmot right", "in context"),
    ]


def test_an_edit_on_another_branch_does_not_touch_this_one(tmp_path: Path) -> None:
    build = SessionBuilder()
    shared = build.user("lynx")
    build.edit(shared, None)
    build.branch_from(shared)
    build.user("on")
    history = opened(build, tmp_path)
    assert texts(history, "lynx") == ["lynx"]


def test_commands_kept_from_the_model_stay_so(tmp_path: Path) -> None:
    build = SessionBuilder()
    hidden = build.bash("cat token", "sk-badger", exclude=True)
    build.bash("ls", "badger.txt")
    history = opened(build, tmp_path)
    assert texts(history, "badger") == ["$ ls\nbadger.txt"]
    item = history.get(hidden)
    assert item is not None
    assert (item.change, item.text) == ("hidden", "")


def test_tools_can_be_left_out(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.assistant("searching", calls=[tool_call("c", "recall", {"query": "stoat"})])
    build.tool_result("c", "stoat found", tool="recall")
    history = opened(build, tmp_path)
    assert len(texts(history, "stoat")) == 2
    assert texts(history, "stoat", skip_tools=frozenset({"recall"})) == []
    assert texts(history, "searching", skip_tools=frozenset({"recall"})) == ["searching"]


def test_a_condition_alone_can_decide(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.tool_result("a", "one", tool="bash")
    build.tool_result("b", "two", tool="read")
    history = opened(build, tmp_path)
    found = history.search("", limit=5, where=lambda item: item.recorded.tool == "read")
    assert [hit.item.text for hit in found] == ["two"]
    assert history.search("", limit=5) == history.search("  ", limit=5) == history.search("one", limit=0) == []


def test_snippets_have_200_characters_on_each_side(tmp_path: Path) -> None:
    build = SessionBuilder()
    build.user("a" * 300 + " Needle " + "b" * 300)
    build.user("needle")
    history = opened(build, tmp_path)
    short, long = (hit.snippet for hit in history.search("needle", limit=5))
    assert short == "needle"
    assert long == "…" + "a" * 199 + " Needle " + "b" * 199 + "…"


@pytest.mark.parametrize("ascii_only", [False, True])
@pytest.mark.parametrize(
    ("text", "query"),
    [
        ('say "hello\\world"', '"HELLO\\WORLD"'),
        ("a/b/c.py", "A/B/C"),
        ("エラーが出た", "エラー"),
        ("Ошибка сети", "ОШИБКА"),
        ("Größe", "GRÖSSE"[:2]),
        ("x < y && z", "< &&"),
        ("tab\there", "tab here"),
        ("the timestamp of it", "timestamp"),
        ("stop the content", "content STOP"),
        ("🦊 fox", "🦊"),
    ],
)
def test_words_are_found_however_json_writes_them(tmp_path: Path, text: str, query: str, ascii_only: bool) -> None:
    build = SessionBuilder()
    build.ascii_only = ascii_only
    build.user(text)
    assert texts(opened(build, tmp_path), query) == [text]


@pytest.mark.parametrize("query", ["timestamp", "content", "text", "role", "assistant", "stop", "usage", "anthropic"])
def test_the_frame_of_a_message_is_not_what_it_says(tmp_path: Path, query: str) -> None:
    build = SessionBuilder()
    build.user("hello")
    build.assistant("hi")
    build.tool_result("c", "out")
    assert texts(opened(build, tmp_path), query) == []


@given(
    st.lists(st.text(max_size=30), min_size=1, max_size=4),
    st.data(),
)
def test_the_quick_look_at_the_bytes_never_hides_a_word(lines: list[str], data: st.DataObject) -> None:
    text = "\n".join(lines)
    words = fold(text).split()
    if not words:
        return
    word = data.draw(st.sampled_from(words))
    start = data.draw(st.integers(0, len(word) - 1))
    query = Query(word[start:])
    message = {"type": "message", "message": {"role": "user", "content": [{"type": "text", "text": text}]}}
    if query.words and query.find(text) is not None and "\u212a" not in text and "\u0130" not in text:
        assert query.may_be_in(encode(message))
        assert query.may_be_in(encode(message, ascii_only=True))


def test_pages_follow_each_other_by_code_points() -> None:
    text = "añ🦊" * 10
    pages, offset = [], 0
    while True:
        page = paged(text, offset, 7)
        pages.append(page.text)
        if page.next_offset is None:
            break
        offset = page.next_offset
    assert "".join(pages) == text
    assert [len(page) for page in pages] == [7, 7, 7, 7, 2]
    assert (paged(text, -5, 7).offset, paged(text, 99, 7).text, paged("", 0, 7).total) == (0, "", 0)


def test_the_index_moves_along_with_the_session(tmp_path: Path) -> None:
    build = SessionBuilder()
    first = build.user("first weasel")
    history = opened(build, tmp_path)
    session = history.session
    assert len(texts(history, "weasel")) == 1
    session.append([{"type": "message", "message": {"role": "user", "content": "second weasel"}}])
    assert len(texts(history, "weasel")) == 2
    session.append([{"type": "context_edit", "targetId": first, "replacement": None}])
    assert texts(history, "weasel") == ["second weasel"]
    session.move_leaf(first)
    assert texts(history, "weasel") == ["first weasel"]


def test_a_search_leaves_entries_as_they_were(tmp_path: Path) -> None:
    build = SessionBuilder()
    for number in range(20):
        build.user(f"ferret {number}")
    history = opened(build, tmp_path)
    history.search("ferret", limit=30)
    assert [entry._data for entry in history.session.entries] == [None] * 20  # nothing is kept decoded


# Earlier sessions ----------------------------------------------------------------------------------------------------


def test_lineage_goes_back_through_forks_and_tells_what_is_missing(tmp_path: Path) -> None:
    old = SessionBuilder(header={"id": "old", "parentSession": str(tmp_path / "gone.jsonl")})
    old.user("from the oldest")
    old.write(tmp_path / "old.jsonl")
    middle = SessionBuilder(header={"id": "middle", "parentSession": "old.jsonl"})
    middle.user("from the middle")
    middle.write(tmp_path / "middle.jsonl")
    build = SessionBuilder(header={"parentSession": str(tmp_path / "middle.jsonl")})
    build.user("here")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    found = opened(build, tmp_path).lineage()
    assert [(ancestor.path.name, ancestor.history is not None) for ancestor in found] == [
        ("middle.jsonl", True),
        ("old.jsonl", True),
        ("gone.jsonl", False),
    ]
    assert found[2].problem is not None
    oldest = found[1].history
    assert oldest is not None
    (hit,) = oldest.search("oldest", limit=3)
    assert (hit.item.state, hit.item.session_id) == ("earlier session", "old")
    assert {path: path.read_bytes() for path in before} == before


def test_lineage_reads_on_where_a_parent_grew(tmp_path: Path) -> None:
    parent = SessionBuilder(header={"id": "parent"})
    parent.user("before")
    path = parent.write(tmp_path / "parent.jsonl")
    build = SessionBuilder(header={"parentSession": str(path)})
    history = opened(build, tmp_path)
    assert len(history.lineage()) == 1
    with Session.open(path) as writing:
        writing.append([{"type": "message", "message": {"role": "user", "content": "mink afterwards"}}])
    grown = history.lineage()[0].history
    assert grown is not None
    assert len(grown.search("mink", limit=3)) == 1


@pytest.mark.parametrize("content", [b"", b"not a session\n", b'{"type":"label"}\n'])
def test_a_parent_that_is_no_session_is_told(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "parent.jsonl").write_bytes(content)
    build = SessionBuilder(header={"parentSession": "parent.jsonl"})
    (found,) = opened(build, tmp_path).lineage()
    assert found.history is None
    assert "not a Pi session" in (found.problem or "")


def test_parents_in_a_circle_end(tmp_path: Path) -> None:
    for name, parent in (("a", "b"), ("b", "a")):
        header = {"type": "session", "version": 3, "id": name, "parentSession": f"{parent}.jsonl"}
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(header) + "\n")
    found = History(Session.open(tmp_path / "a.jsonl")).lineage()
    assert [(ancestor.path.name, ancestor.problem) for ancestor in found] == [
        ("b.jsonl", None),
        ("a.jsonl", "the chain of parent sessions leads in a circle"),
    ]
