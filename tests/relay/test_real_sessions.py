"""Two recorded sessions of real work: what a relay leaves of them, and that it is always the same."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from contexthost.drivers.file import open_file
from contexthost.runtime import compaction_draft
from contexthost_relay.relay import Relay
from support.relay import of_runtime, with_repository

SESSIONS = Path(__file__).parents[3] / "shared" / "sessions"

pytestmark = pytest.mark.skipif(not SESSIONS.is_dir(), reason="the recorded sessions are not beside this checkout")


@pytest.mark.parametrize(
    ("name", "tokens", "share"), [("large-session.jsonl", 177_657, 0.06), ("before-compaction.jsonl", 168_018, 0.20)]
)
def test_what_is_left(tmp_path: Path, name: str, tokens: int, share: float) -> None:
    copy = with_repository(SESSIONS / name, tmp_path)

    async def scenario() -> tuple[Relay, int]:
        async with open_file(copy, window=200_000) as runtime:
            relay = await of_runtime(runtime, keep=20_000)
            runtime.authority.commit([compaction_draft(relay.result)])
            return relay, runtime.authority.snapshot().tokens

    relay, left = asyncio.run(scenario())
    assert left < share * tokens
    assert "## Commits since the session began" in relay.note
    assert len(relay.note) <= 9_500


@pytest.mark.parametrize("name", ["large-session.jsonl", "before-compaction.jsonl"])
def test_relayed_twice_the_notes_are_equal_but_for_times(tmp_path: Path, name: str) -> None:
    copy = with_repository(SESSIONS / name, tmp_path)

    async def once() -> str:
        async with open_file(copy, window=200_000) as runtime:
            return (await of_runtime(runtime, keep=20_000)).note

    first, second = asyncio.run(once()), asyncio.run(once())
    assert re.sub(r"Made .*", "", first) == re.sub(r"Made .*", "", second)


def test_the_long_tail_stays_whole_where_pi_cuts_earlier(tmp_path: Path) -> None:
    copy = with_repository(SESSIONS / "before-compaction.jsonl", tmp_path)

    async def scenario() -> str | None:
        async with open_file(copy, window=200_000) as runtime:
            relay = await of_runtime(runtime, keep=20_000)
            kept = runtime.session.get(relay.result.first_kept_entry_id)
            users = [entry for entry in runtime.session.branch() if entry.role == "user"]
            assert kept is users[-1]
            return kept.role if kept is not None else None

    assert asyncio.run(scenario()) == "user"
