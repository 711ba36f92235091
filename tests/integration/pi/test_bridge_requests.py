"""What else plugins answer in the real Pi: requests to the provider, a compaction in the middle of a run, switches and
forks that they refuse."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Sequence
from pathlib import Path

from support.live_pi import change_extension, helper, live_home, texts
from support.model_server import call, say

PLUGIN = """
    import asyncio
    from contexthost import Boundary, Cancel, hookimpl
    from contexthost.projection import CompactionDraft

    @hookimpl
    def before_provider_headers(event, ctx):
        return {"X-Probe": "yes", "USER-agent": "probe"}

    @hookimpl
    def before_provider_request(event, ctx):
        checkpoint = ctx.snapshot.checkpoint  # None: this request should not have come here
        return {**event.payload, "metadata": {"checkpoint": checkpoint and checkpoint.id}}

    @hookimpl
    async def turn_end(event, ctx):
        if not event.tool_results or ctx.snapshot.checkpoint is not None:
            return None
        ctx.compacting()  # from here on the boundary's deadline is that of a compaction
        await asyncio.sleep(4)
        (result,) = event.tool_result_entry_ids
        details = {"replacementHistory": []}
        draft = CompactionDraft(
            summary="a native summary", first_kept_entry_id=event.message_entry_id, details=details
        )
        return Boundary(drafts=(draft,))

    @hookimpl
    def session_before_switch(event, ctx):
        return Cancel("probe: stay here") if event.reason == "new" else None

    @hookimpl
    def session_before_fork(event, ctx):
        return Cancel("probe: no forks")
"""


def test_requests_cross_only_with_a_native_checkpoint_and_a_slow_compaction_keeps_the_results(tmp_path: Path) -> None:
    script = [call("read", {"path": "notes.txt"}), say("It says hello."), say("Yes.")]
    with live_home(tmp_path, script) as home:
        (home.project / "notes.txt").write_text("hello from the file")
        home.host_settings(pi={"answerSeconds": 3})
        home.plugin(PLUGIN)
        home.install()
        with home.rpc() as pi:
            pi.prompt("What do my notes say?")
            first, second = home.server.requests
            assert [request.headers.get("x-probe") for request in (first, second)] == ["yes", "yes"]
            assert [request.headers.get("user-agent") for request in (first, second)] == ["probe", "probe"]
            (compaction,) = [entry for entry in pi.entries() if entry["type"] == "compaction"]
            assert "metadata" not in first.body
            assert second.body["metadata"] == {"checkpoint": compaction["id"]}
            assert "a native summary" in texts(second, "user")[0]
            assert texts(second, "tool") == ["hello from the file"]

            file, users = pi.file, [entry["id"] for entry in pi.entries() if entry["type"] == "message"]
            mark = pi.mark()
            assert pi.ask("new_session")["data"] == {"cancelled": True}
            pi.note("probe: stay here", after=mark)
            assert pi.ask("fork", entryId=users[0])["data"]["cancelled"] is True
            pi.note("probe: no forks", after=mark)
            assert pi.file == file
            pi.prompt("Still here?")
            assert pi.errors() == []
            assert not any("no answer" in note for note in pi.notes())
        assert home.server.problems == []


HEADERS = """
    import asyncio
    from contexthost import hookimpl

    @hookimpl
    def before_provider_headers(event, ctx):
        return {"X-Probe": "yes"}
"""
UNINTERESTED = """
    @hookimpl
    def provider_headers_wanted(event, ctx):
        ctx.ui.notify(f"not with {ctx.model.id}")
        return False
"""
"""Its header shows that the bridge has asked all the same, because another plugin wants to be."""
UNDECIDED = """
    @hookimpl
    async def provider_headers_wanted(event, ctx):
        model = ctx.model.id
        while model == "gpt-5" and not (ctx.data_dir / "decided").exists():
            await asyncio.sleep(0.01)
        ctx.ui.notify(f"not with {model}")
        return False
"""


def probed(root: Path, plugin: str, others: Sequence[str] = ()) -> list[str | None]:
    """The plugin's header in a request to a model that codex_native has nothing to do with, in one right after the
    change to a model of SubAPI, and in one some time after the change back."""
    with live_home(root, lambda _: say("Answer."), plugins=others) as home:
        model = {"id": "gpt-5", "contextWindow": 128_000, "maxTokens": 1000, "input": ["text"]}
        home.provider("sub-api", model, api="openai-responses", apiKey="x")
        home.plugin(plugin)
        home.install()

        def known(after: int) -> None:
            """Pi knows what plugins want with its model: what they said is told, and a command answered after it."""
            if plugin != HEADERS:
                pi.note("not with faux-1", after=after)
            pi.slash("/context")

        with home.rpc() as pi:
            known(0)
            pi.prompt("Hello.")
            assert pi.ask("set_model", provider="sub-api", modelId="gpt-5")["success"]
            pi.prompt("And now?")
            home.probe_data.mkdir(parents=True, exist_ok=True)
            (home.probe_data / "decided").touch()
            mark = pi.mark()
            assert pi.ask("set_model", provider="faux", modelId="faux-1")["success"]
            known(mark)
            pi.prompt("And now?")
            assert pi.errors() == []
        assert [request.body["model"] for request in home.server.requests] == ["faux-1", "gpt-5", "faux-1"]
        assert home.server.problems == []
        return [request.headers.get("x-probe") for request in home.server.requests]


def test_headers_are_asked_for_with_the_models_that_a_plugin_wants_them_of(tmp_path: Path) -> None:
    assert probed(tmp_path, HEADERS + UNINTERESTED, ["codex_native"]) == [None, "yes", None]


def test_headers_are_asked_for_in_any_case_while_a_plugin_does_not_say(tmp_path: Path) -> None:
    assert probed(tmp_path, HEADERS, ["codex_native"]) == ["yes", "yes", "yes"]


def test_headers_are_asked_for_while_nobody_knows_what_another_model_needs(tmp_path: Path) -> None:
    assert probed(tmp_path, HEADERS + UNDECIDED) == [None, "yes", None]


def test_plugins_that_came_after_the_installation_are_told_of(tmp_path: Path) -> None:
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.install()
        home.probe()
        with home.rpc() as pi:
            pi.prompt("Hello.")
            pi.note("plugins have changed; run `contexthost pi install` and /reload.")
            wants = {"boundary_threshold", "provider_headers_wanted"}
            hooks = [one["hook"] for one in home.seen() if one["hook"] not in wants]
            assert hooks[:2] == ["session_start", "input"]


def test_an_upgrade_of_contexthost_is_told_of_until_it_is_installed_again(tmp_path: Path) -> None:
    version = importlib.metadata.version("contexthost")
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.install()
        change_extension(home, f'version: "{version}"', 'version: "0.0.1"')
        with home.rpc(*helper(home)) as pi:
            pi.prompt("Hello.")
            pi.prompt("Again.")
            (note,) = pi.notes()
            upgraded = f"version {version} is installed, and Pi still has 0.0.1"
            assert note == f"contexthost: {upgraded}; run `contexthost pi install` and /reload."
            assert len(home.seen("input")) == 2
            home.contexthost("pi", "install", "--force")  # the test has changed the file
            mark = pi.mark()
            pi.slash("/again")
            assert pi.slash("/probe entries").startswith("probe: ")
            assert len(pi.notes(after=mark)) == 1
