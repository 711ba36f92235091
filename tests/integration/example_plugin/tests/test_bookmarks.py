import asyncio
import json
from pathlib import Path

import pytest

import contexthost_bookmarks
from contexthost.host import Host
from contexthost.models import Reply, ScriptedCall, ScriptedModel


@pytest.fixture(autouse=True)
def no_settings_of_mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))


def session(path: Path, *script: Reply | str) -> Host:
    model = ScriptedModel(script)
    return Host.open(path, model=model, plugins=[contexthost_bookmarks], installed_plugins=False)


def test_the_user_sets_bookmarks_and_the_model_reads_them(tmp_path: Path) -> None:
    async def work() -> None:
        script = ["Friday it is.", Reply(calls=[ScriptedCall("list_bookmarks")]), "You marked one."]
        async with session(tmp_path / "s.jsonl", *script) as host:
            assert (await host.prompt("/bookmark early")).text == "there is no message yet to put a bookmark on"
            await host.prompt("When do we deploy?")
            assert (await host.prompt("/bookmark the deploy day")).text.endswith(" is bookmarked as the deploy day")
            await host.prompt("What did I mark?")
            (result,) = [entry.message for entry in host.session.entries if entry.role == "toolResult"]
            text = result["content"][0]["text"]
            assert text.startswith("- the deploy day [")
            assert text.endswith("], in context: Friday it is.")

    asyncio.run(work())


def test_a_message_with_the_prefix_is_bookmarked_once_by_itself(tmp_path: Path) -> None:
    async def work() -> None:
        async with session(tmp_path / "s.jsonl", "Noted.", "Hello.") as host:
            await host.prompt("remember: never deploy on a Friday, whatever they say")
            await host.prompt("Hello.")
            listed = (await host.prompt("/bookmark")).text
            assert listed.split(" ", 1)[1] == "never deploy on a Friday, whatever"

    asyncio.run(work())
    entries = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert len([entry for entry in entries if entry.get("customType") == "bookmarks:bookmark"]) == 1
