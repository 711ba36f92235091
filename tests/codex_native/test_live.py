"""Live sessions with a provider on loopback: by hand, within a run, over model switches, resumes, moves, forks; every
request is one that a provider takes, and the opaque item reaches its own model alone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import contexthost_codex_native
from contexthost.context import Context, Tool, ToolResult
from contexthost.errors import CompactionCancelled, CompactionFailed
from contexthost.host import Host
from contexthost.models import ResponsesModel, Transport
from contexthost.projection import CompactionDraft, ContextEditDraft
from contexthost.session import Session
from contexthost.watch import Notified
from support.codex import KEY, by_kind, compacted, is_compaction, sub_api
from support.model_server import Answer, ModelServer, call, refuse, say

PLUGIN = "codex_native"
TRIGGER = {"type": "compaction_trigger"}
SEALED = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed-1"}
PROMPT = {"role": "system", "content": "Be brief."}
LOW = (100, 0, 10, 0)
FULL = (15_500, 0, 500, 0)  # above 20,000 - 1,000 - 4,000
FEATURE = "x-codex-beta-features"
Body = dict[str, Any]


@pytest.fixture(autouse=True)
def small_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "20")
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__RESERVETOKENS", "1000")
    monkeypatch.setenv("SUB_API_API_KEY", KEY)


async def _look(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
    return ToolResult(f"found {arguments.get('at')} " + "x" * 200)


LOOK = Tool(name="look", description="Looks.", parameters={"type": "object"}, handler=_look)


class Live:
    """An open host and what it told."""

    def __init__(self, host: Host, notes: list[Notified]) -> None:
        self.host = host
        self.notes = notes

    @property
    def warnings(self) -> list[str]:
        return [note.message for note in self.notes if note.level != "info"]

    async def ask(self, text: str) -> None:
        prompted = await self.host.prompt(text)
        answer = await prompted.answer()
        assert answer is None or answer["stopReason"] == "stop", answer


@asynccontextmanager
async def live(server: ModelServer, path: Path | None = None, **model: Any) -> AsyncIterator[Live]:
    notes: list[Notified] = []
    answerer = ResponsesModel(sub_api(server.base_url, **model), Transport(api_key=KEY))
    host = Host.open(
        path,
        model=answerer,
        plugins=[contexthost_codex_native],
        tools=[LOOK],
        system_prompt="Be brief.",
        installed_plugins=False,
    )
    host.watch(lambda event: notes.append(event) if isinstance(event, Notified) else None)
    async with host:
        yield Live(host, notes)
    await answerer.aclose()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await work()

    asyncio.run(bounded())


def said(text: str) -> Body:
    return {"role": "user", "content": [{"type": "input_text", "text": text}]}


def kinds(body: Body) -> list[str]:
    return [item.get("type") or item["role"] for item in body["input"]]


def long(text: str) -> str:
    return f"{text} " + "because " * 20


def test_a_compaction_by_hand_and_the_request_after_it(tmp_path: Path) -> None:
    script = by_kind(
        compactions=[compacted()], answers=[say("A." * 40, usage=LOW), say("B." * 40, usage=LOW), say("C.", usage=LOW)]
    )

    async def work() -> None:
        async with live(server, tmp_path / "s.jsonl") as it:
            await it.ask(long("one"))
            await it.ask(long("two"))
            entry = await it.host.compact()
            await it.ask("three")
        assert it.warnings == []
        assert entry.data["fromHook"] is True
        assert entry.data["details"]["modelKey"] == "sub-api:openai-responses:gpt-5"
        assert entry.data["details"]["replacementHistory"] == [said(long("one")), said(long("two")), SEALED]
        assert entry.data["summary"].startswith("The provider compacted the conversation")
        usage = {key: entry.data["usage"][key] for key in ("input", "cacheRead", "output", "totalTokens")}
        assert usage == {"input": 7_000, "cacheRead": 2_000, "output": 300, "totalTokens": 9_300}

    with ModelServer(script) as server:
        run(work)
    assert server.problems == []
    _, second, compaction, after = [one.body for one in server.requests]
    shared = {key: value for key, value in second.items() if key != "input"}
    assert compaction == {
        **shared,
        "instructions": "Be brief.",
        "input": [*second["input"][1:], *compaction["input"][-2:-1], TRIGGER],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "include": ["reasoning.encrypted_content"],
        "text": {"verbosity": "low"},
    }
    assert compaction["input"][-2]["content"][0]["text"] == "B." * 40
    assert after["input"] == [PROMPT, said(long("one")), said(long("two")), SEALED, said("three")]
    assert [one.headers.get(FEATURE) for one in server.requests] == ["remote_compaction_v2"] * 4
    assert [one.headers["authorization"] for one in server.requests] == [f"Bearer {KEY}"] * 4
    text = (tmp_path / "s.jsonl").read_text()
    assert "compaction_trigger" not in text
    assert KEY not in text


def test_within_a_run_the_results_are_compacted_and_the_run_goes_on(tmp_path: Path) -> None:
    script = by_kind(
        compactions=[compacted()],
        answers=[
            call("look", {"at": 1}, "call_1", text="I look.", usage=LOW),
            call("look", {"at": 2}, "call_2", text="Again.", usage=FULL),
            call("look", {"at": 3}, "call_3", usage=LOW),
            say("Done.", usage=LOW),
        ],
    )

    async def work() -> None:
        async with live(server, tmp_path / "s.jsonl") as it:
            await it.ask(long("find it"))
            entries = [entry.role or entry.type for entry in it.host.session.entries]
        assert it.warnings == []
        calls = ["assistant", "toolResult"]
        assert [kind for kind in entries if kind in ("assistant", "toolResult", "compaction")] == [
            *calls, *calls, "compaction", *calls, "assistant",
        ]  # fmt: skip

    with ModelServer(script) as server:
        run(work)
    assert server.problems == []
    _, _, compaction, third, fourth = [one.body for one in server.requests]
    assert kinds(compaction) == [
        "user", "message", "function_call", "function_call_output", "message", "function_call", "function_call_output",
        "compaction_trigger",
    ]  # fmt: skip
    assert compaction["input"][-2]["output"].startswith("found 2")
    assert third["input"] == [PROMPT, said(long("find it")), SEALED]
    assert kinds(fourth) == ["system", "user", "compaction", "function_call", "function_call_output"]


def test_auto_compact_off_leaves_it_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_CODEX_NATIVE__AUTOCOMPACT", "false")
    answers = [call("look", {}, "call_1", usage=FULL), say("Done.", usage=LOW)]

    async def work() -> None:
        async with live(server) as it:
            await it.ask(long("find it"))

    with ModelServer(answers) as server:
        run(work)
    assert not any(is_compaction(one) for one in server.requests)


def test_a_compaction_that_freed_too_little_is_not_made_again_after_every_turn() -> None:
    script = by_kind(
        compactions=[compacted()],
        answers=[*(call("look", {"at": n}, f"call_{n}", usage=FULL) for n in range(4)), say("Done.", usage=FULL)],
    )

    async def work() -> None:
        async with live(server) as it:
            await it.ask(long("find it"))

    with ModelServer(script) as server:
        run(work)
    assert sum(is_compaction(one) for one in server.requests) == 1


def test_another_model_gets_the_portable_summary_and_the_first_one_its_checkpoint_again(tmp_path: Path) -> None:
    script = by_kind(compactions=[compacted()], answers=[say(f"{name}." * 40, usage=LOW) for name in "ABCD"])

    async def work() -> None:
        async with live(server, tmp_path / "s.jsonl") as it:
            first = it.host.model
            assert first is not None
            await it.ask(long("one"))
            await it.host.compact()
            other = ResponsesModel(sub_api(server.base_url, id="gpt-6"), Transport(api_key=KEY))
            await it.host.set_model(other)
            await it.ask("two")
            await it.ask("three")
            await it.host.set_model(first)
            await it.ask("four")
            await other.aclose()
        told = [note.message for note in it.notes if "native checkpoint" in note.message]
        assert len(told) == 1
        assert told[0].endswith("is for sub-api:openai-responses:gpt-5 alone; its portable summary stands in")

    with ModelServer(script) as server:
        run(work)
    assert server.problems == []
    _, _, two, three, four = [one.body for one in server.requests]
    assert [one["model"] for one in (two, three, four)] == ["gpt-6", "gpt-6", "gpt-5"]
    for body in (two, three):
        assert "sealed-1" not in json.dumps(body)
        assert "The provider compacted the conversation" in json.dumps(body)
    assert four["input"][1:3] == [said(long("one")), SEALED]
    assert kinds(four) == ["system", "user", "compaction", "user", "message", "user", "message", "user"]


def test_a_second_compaction_starts_from_the_checkpoint_and_resuming_finds_it(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    script = by_kind(
        compactions=[compacted("sealed-1"), compacted("sealed-2")],
        answers=[say(f"{name}." * 40, usage=LOW) for name in "ABC"],
    )

    async def work() -> None:
        async with live(server, path) as it:
            await it.ask(long("one"))
            await it.host.compact()
        async with live(server, path) as it:
            await it.ask(long("two"))
            await it.host.compact()
        async with live(server, path) as it:
            await it.ask("three")

    with ModelServer(script) as server:
        run(work)
    assert server.problems == []
    _, _, two, second, three = [one.body for one in server.requests]
    assert two["input"] == [PROMPT, said(long("one")), SEALED, said(long("two"))]
    assert second["input"][:3] == [said(long("one")), SEALED, said(long("two"))]
    assert second["input"][4:] == [TRIGGER]
    newer = {**SEALED, "encrypted_content": "sealed-2"}
    assert three["input"] == [PROMPT, said(long("one")), said(long("two")), newer, said("three")]


def test_a_move_in_the_tree_goes_by_the_newest_compaction_of_that_branch(tmp_path: Path) -> None:
    script = by_kind(
        compactions=[compacted("sealed-1"), compacted("sealed-2")],
        answers=[say(f"{name}." * 40, usage=LOW) for name in "ABCDE"],
    )

    async def work() -> None:
        async with live(server, tmp_path / "s.jsonl") as it:
            await it.ask(long("one"))
            before = it.host.session.leaf_id
            assert before is not None
            await it.host.compact()
            await it.ask(long("two"))
            middle = it.host.session.leaf_id
            assert middle is not None
            await it.host.compact()
            await it.host.navigate(middle)
            await it.ask("three")
            await it.host.navigate(before)
            await it.ask("four")

    with ModelServer(script) as server:
        run(work)
    assert server.problems == []
    *_, three, four = [one.body for one in server.requests]
    assert three["input"][1:4] == [said(long("one")), SEALED, said(long("two"))]
    assert "sealed" not in json.dumps(four)


def test_a_gateway_without_support_is_told_once_and_not_asked_again(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    script = by_kind(
        compactions=[say("I cannot do that.")],
        answers=[
            say("A." * 40, usage=LOW), say("B." * 40, usage=LOW),
            call("look", {}, "call_1", usage=FULL), say("D.", usage=LOW),
            say("E." * 40, usage=LOW),
        ],
    )  # fmt: skip

    async def work() -> None:
        async with live(server, path) as it:
            await it.ask(long("one"))
            first = await it.host.compact()
            await it.ask(long("two"))
            await it.host.compact()
            await it.ask(long("three"))  # ends above the threshold: not asked within the run either
        assert "## Goal" in first.data["summary"]
        assert "details" not in first.data or "replacementHistory" not in first.data["details"]
        [told] = it.warnings
        assert told == (
            "native compaction with sub-api/gpt-5 failed: 127.0.0.1 does not support native compaction: it answered "
            "with an ordinary message and no compaction item. It is not asked again in this session; the conversation "
            "is summarised in the usual way instead"
        )
        assert contexthost_codex_native._memories == {}  # as in another process: in Pi, a resume or a reload is one
        async with live(server, path) as it:
            await it.ask(long("four"))
            with pytest.raises(CompactionFailed, match="does not support native compaction"):
                await it.host.compact(to=PLUGIN)
            await it.host.compact()

    with ModelServer(script) as server:
        run(work)
    assert [is_compaction(one) for one in server.requests].count(True) == 1
    assert server.problems == []


FAULTS: dict[str, tuple[Answer, str]] = {
    "a refusal": (refuse(400, "no room"), "status 400"),
    "two items": (Answer(events=[*(compacted().events or [])[:2], *(compacted().events or [])[1:]]), "2 compaction"),
    "nonsense": (Answer(events=["{"]), "not JSON"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_failure_leaves_the_session_alone_and_the_next_compactor_takes_over(tmp_path: Path, fault: str) -> None:
    path = tmp_path / "s.jsonl"
    answer, says = FAULTS[fault]
    script = by_kind(
        compactions=[answer, answer],
        answers=[say("A." * 40, usage=LOW), say("B." * 40, usage=LOW)],
    )

    async def work() -> None:
        async with live(server, path) as it:
            await it.ask(long("one"))
            before = path.read_bytes()
            with pytest.raises(CompactionFailed, match=says):
                await it.host.compact(to=PLUGIN)
            assert path.read_bytes() == before
            it.notes.clear()
            entry = await it.host.compact()
            assert "## Goal" in entry.data["summary"]
            assert path.read_bytes().startswith(before)
        [told] = it.warnings
        assert told.startswith("native compaction with sub-api/gpt-5 failed: 127.0.0.1 ")
        assert says in told

    with ModelServer(script) as server:
        run(work)


def test_an_abort_ends_the_compaction_at_once_and_leaves_the_session_alone(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    script = by_kind(compactions=[compacted(hold_after=1)], answers=[say("A." * 40, usage=LOW)])

    async def work() -> None:
        async with live(server, path) as it:
            await it.ask(long("one"))
            before = path.read_bytes()
            compaction = asyncio.ensure_future(it.host.compact())
            await asyncio.to_thread(server.reached.wait, 10)
            it.host.abort()
            with pytest.raises(CompactionCancelled):
                await asyncio.wait_for(compaction, 5)
            assert path.read_bytes() == before
        assert it.warnings == []

    with ModelServer(script) as server:
        run(work)


def test_a_failure_within_a_run_is_not_repeated_after_every_turn() -> None:
    script = by_kind(
        compactions=[refuse(400, "no room")],
        answers=[*(call("look", {"at": n}, f"call_{n}", usage=FULL) for n in range(3)), say("Done.", usage=LOW)],
    )

    async def work() -> None:
        async with live(server) as it:
            await it.ask(long("find it"))
        assert len(it.warnings) == 1

    with ModelServer(script) as server:
        run(work)


def test_a_missing_credential_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUB_API_API_KEY", "   ")
    script = by_kind(
        compactions=[],
        answers=[
            say("A." * 40, usage=LOW),
        ],
    )

    async def work() -> None:
        async with live(server) as it:
            await it.ask(long("one"))
            await it.host.compact()
        [told] = it.warnings
        assert "SubAPI has no credential" in told

    with ModelServer(script) as server:
        run(work)
    assert not any(is_compaction(one) for one in server.requests)


def test_a_header_of_the_models_own_is_credential_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUB_API_API_KEY")
    script = by_kind(compactions=[compacted()], answers=[say("A." * 40, usage=LOW)])

    async def work() -> None:
        async with live(server, headers={"AUTHORIZATION": "Bearer own"}) as it:
            await it.ask(long("one"))
            await it.host.compact()

    with ModelServer(script) as server:
        run(work)
    assert server.requests[1].headers["authorization"] == "Bearer own"


def test_a_damaged_checkpoint_is_told_once_and_never_sent(tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    script = by_kind(compactions=[compacted()], answers=[say(f"{name}." * 40, usage=LOW) for name in "ABC"])

    async def work() -> None:
        async with live(server, path) as it:
            await it.ask(long("one"))
            await it.host.compact()
        path.write_text(path.read_text().replace('"version":1,"modelKey"', '"version":9,"modelKey"'))
        async with live(server, path) as it:
            await it.ask("two")
            await it.ask("three")
        [told] = it.warnings
        assert "cannot be used: its version is not 1; its portable summary stands in" in told

    with ModelServer(script) as server:
        run(work)
    assert server.problems == []
    assert "sealed-1" not in json.dumps([one.body for one in server.requests[2:]])


def test_the_whole_way_native_masked_relayed_forked_resumed(tmp_path: Path) -> None:
    path, fork = tmp_path / "s.jsonl", tmp_path / "fork.jsonl"
    script = by_kind(
        compactions=[compacted("sealed-1"), compacted("sealed-2")],
        answers=[
            call("look", {"at": 1}, "call_1", usage=LOW), say("A." * 40, usage=LOW),
            call("look", {"at": 2}, "call_2", usage=LOW), say("B." * 40, usage=LOW),
            *(say(f"{name}." * 40, usage=LOW) for name in "CDEFG"),
        ],
    )  # fmt: skip
    mask = "[pi-compaction] Earlier look result masked"

    async def work() -> None:
        async with live(server, path) as it:
            await it.ask(long("one"))
            await it.host.compact()  # natively
            await it.ask(long("two"))
            results = [entry for entry in it.host.session.entries if entry.role == "toolResult"]
            edits = [ContextEditDraft(target_id=one.id, replacement={"content": mask}) for one in results]
            it.host.runtime.authority.commit(edits)  # masked: one before the checkpoint, one after it
            await it.ask("three")
        forked_at = path.read_text().count("\n")
        async with live(server, path, id="gpt-6") as it:  # relayed, with another model
            leaf = it.host.session.leaf_id
            it.host.runtime.authority.commit([CompactionDraft(summary="THE NOTE", first_kept_entry_id=leaf)])
            await it.ask("four")
        async with live(server, path) as it:  # the first model again: its checkpoint lies behind the note
            await it.ask("five")
        fork.write_text("".join(path.read_text().splitlines(keepends=True)[:forked_at]))
        async with live(server, fork) as it:  # forked before the note: the checkpoint counts again
            await it.ask("six")
            await it.host.compact()
        async with live(server, fork) as it:  # resumed
            await it.ask("seven")
        assert it.warnings == []

    with ModelServer(script) as server:
        run(work)
    assert server.problems == []
    ordinary = [one.body for one in server.requests if not is_compaction(one)]
    three, four, five, six, seven = ordinary[4:]
    assert kinds(three) == [
        "system", "user", "compaction", "user", "function_call", "function_call_output", "message", "user",
    ]  # fmt: skip
    assert three["input"][5]["output"] == mask
    assert "sealed" not in json.dumps([four, five])
    assert "THE NOTE" in json.dumps(four)
    assert "THE NOTE" in json.dumps(five)
    assert six["input"][:3] == three["input"][:3]
    assert seven["input"][1:] == [
        said(long("one")),
        said(long("two")),
        said("three"),
        said("six"),
        {**SEALED, "encrypted_content": "sealed-2"},
        said("seven"),
    ]
    wrong = [one.body["model"] for one in server.requests if "sealed" in json.dumps(one.body)]
    assert set(wrong) == {"gpt-5"}


def test_a_session_file_is_compacted_by_the_command_that_names_the_model(tmp_path: Path) -> None:
    from click.testing import CliRunner

    from contexthost.cli.compact import command
    from support.builder import SessionBuilder

    build = SessionBuilder()
    build.user(long("one"))
    build.assistant("A." * 40)
    build.user(long("two"))
    path = build.write(tmp_path / "s.jsonl")
    with ModelServer([compacted()]) as server:
        named = ["--base-url", server.base_url, "--model", "gpt-5", "--api", "responses", "--provider", "sub-api"]
        result = CliRunner().invoke(command, [str(path), "--with", "codex_native", *named])
    assert result.exit_code == 0, result.output
    assert "Compacted by codex_native" in result.stdout
    with Session.open(path) as session:
        assert session.entries[-1].data["details"]["replacementHistory"][-1] == SEALED
    [request] = server.requests
    assert request.problems == []
    assert kinds(request.body) == ["user", "message", "user", "compaction_trigger"]
