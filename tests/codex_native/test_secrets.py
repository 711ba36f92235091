"""No credential comes out: after every path, the session, the log, what was printed, the notifications and the
exceptions are searched for it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

import contexthost_codex_native
from contexthost.errors import ContexthostError
from contexthost.host import Host
from contexthost.models import ResponsesModel, Transport
from contexthost.watch import Notified
from support.codex import KEY, by_kind, compacted, sealed, sub_api
from support.model_server import Answer, ModelServer, refuse, say

HEADER_SECRET = "hdr-secret-0123456789"
BOTH = f"key {KEY} and Bearer {KEY} and {HEADER_SECRET}"  # a provider that repeats what it was sent

PATHS: dict[str, Answer] = {
    "success": compacted(),
    "a refusal": refuse(401, BOTH),
    "a refusal as plain text": Answer(status=400, body=BOTH, headers={"content-type": "text/plain"}),
    "a failed response": Answer(events=[{"type": "response.failed", "response": {"error": {"message": BOTH}}}]),
    "an error event": Answer(events=[{"type": "error", "message": BOTH}]),
    "nonsense": Answer(events=["{" + BOTH]),
    "two items": Answer(events=[sealed(), sealed(), {"type": "response.completed", "response": {}}]),
    "no support": say(BOTH),
    "an unknown trigger": refuse(400, "compaction_trigger? " + BOTH),
    "no stream": Answer(body=BOTH, headers={"content-type": "text/plain"}),
}


@pytest.mark.parametrize("addressed", [False, True], ids=["to anybody", "addressed"])
@pytest.mark.parametrize("path", PATHS)
def test_nothing_that_a_compaction_leaves_behind_holds_the_credential(
    path: str,
    addressed: bool,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SUB_API_API_KEY", KEY)
    monkeypatch.setenv("CONTEXTHOST_HOST__COMPACTION__KEEPRECENTTOKENS", "20")
    caplog.set_level(logging.DEBUG)
    file = tmp_path / "s.jsonl"
    told: list[Any] = []

    async def work(server: ModelServer) -> None:
        info = sub_api(server.base_url, headers={"X-Tenant-Secret": HEADER_SECRET})
        model = ResponsesModel(info, Transport(api_key=KEY))
        host = Host.open(file, model=model, plugins=[contexthost_codex_native], installed_plugins=False)
        host.watch(lambda event: told.append(event) if isinstance(event, Notified) else None)
        async with host:
            await host.prompt("one " * 30)
            try:
                await host.compact(to="codex_native" if addressed else None)
            except ContexthostError as error:
                told.append([repr(link) for link in _chain(error)])
            told.append((await host.prompt("/codex-status")).text)
            if path == "success":
                await host.prompt("two")
        await model.aclose()

    answers = [say("A." * 40), say("B.")]
    with ModelServer(by_kind(compactions=[PATHS[path]], answers=answers)) as server:
        asyncio.run(work(server))
    printed = capfd.readouterr()
    files = [found.read_text(errors="replace") for found in [*tmp_path.rglob("*")] if found.is_file()]
    logged = caplog.text + "".join(str(record.exc_info) for record in caplog.records)
    for secret in (KEY, HEADER_SECRET):
        assert secret in str([one.headers for one in server.requests])  # it was sent
        assert secret not in str(told)
        assert secret not in logged
        assert secret not in printed.out + printed.err
        assert not [text for text in files if secret in text]
    assert told


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found
