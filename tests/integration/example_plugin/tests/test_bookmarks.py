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


async def told(host: Host, text: str) -> str:
    return (await host.prompt(text)).text or ""


def test_the_user_sets_bookmarks_and_the_model_reads_them(tmp_path: Path) -> None:
    async def work() -> None:
        calls = Reply(calls=[ScriptedCall("list_bookmarks")])
        async with session(tmp_path / "s.jsonl", "Friday it is.", calls, "You marked one.") as host:
            assert await told(host, "/bookmark early") == "there is no message yet to put a bookmark on"
            await host.prompt("When do we deploy?")
            assert (await told(host, "/bookmark the deploy day")).endswith(" is bookmarked as the deploy day")
            await host.prompt("What did I mark?")
            (result,) = [entry.message for entry in host.session.entries if entry.role == "toolResult"]
            assert result is not None
            assert result["content"][0]["text"].startswith("- the deploy day [")
            assert result["content"][0]["text"].endswith("], in context: Friday it is.")

    asyncio.run(work())


def test_a_message_with_the_prefix_is_bookmarked_once_by_itself(tmp_path: Path) -> None:
    async def work() -> None:
        async with session(tmp_path / "s.jsonl", "Noted.", "Hello.") as host:
            await host.prompt("remember: never deploy on a Friday, whatever they say")
            await host.prompt("Hello.")
            assert (await told(host, "/bookmark")).endswith(" never deploy on a Friday, whatever")

    asyncio.run(work())
    entries = [json.loads(line) for line in (tmp_path / "s.jsonl").read_text().splitlines()]
    assert len([entry for entry in entries if entry.get("customType") == "bookmarks:bookmark"]) == 1
