"""Which compactions the plugin answers, and what its registrations are."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from contexthost.compaction import Preparation
from contexthost.context import AbortSignal
from contexthost.drivers.file import open_file
from contexthost.errors import CompactionFailed
from contexthost.events import Cancel, CompactionResult, SessionBeforeCompactEvent, SessionCompactFailedEvent
from contexthost_relay import relays
from contexthost_relay.relay import MARKER
from contexthost_relay.relays import Relays, thousands
from contexthost_relay.settings import RelaySettings
from support.relay import prepared
from support.relay_live import history_file, log_lines


def answer(
    path: Path, *, addressed_to: str | None = None, instructions: str | None = None
) -> Cancel | CompactionResult | None:
    async def scenario() -> Cancel | CompactionResult | None:
        async with open_file(history_file(path / "s.jsonl")) as runtime:
            runtime.driver.mode = "rpc"  # type: ignore[misc]  # a file's driver, taken for a live one
            preparation: Preparation = prepared(runtime.authority.snapshot(), 50)
            event = SessionBeforeCompactEvent(
                preparation=preparation,
                branch_entries=runtime.session.branch(),
                reason="manual",
                signal=AbortSignal(),
                addressed_to=addressed_to,
                custom_instructions=instructions,
            )
            return await Relays(runtime.context("relay"), RelaySettings()).before_compact(event)

    return asyncio.run(scenario())


def test_only_marked_or_addressed_compactions_are_answered(tmp_path: Path) -> None:
    assert answer(tmp_path) is None
    assert answer(tmp_path, instructions="focus on relay") is None
    assert isinstance(answer(tmp_path, instructions=MARKER), CompactionResult)
    assert isinstance(answer(tmp_path, addressed_to="relay"), CompactionResult)


def test_an_outcome_that_is_told_from_two_sides_is_logged_once_in_either_order(tmp_path: Path, home: Path) -> None:
    async def scenario(*, hook_first: bool) -> None:
        async with open_file(history_file(tmp_path / f"{hook_first}.jsonl")) as runtime:
            runtime.driver.mode = "rpc"  # type: ignore[misc]  # as above
            ctx = runtime.context("relay")
            one = Relays(ctx, RelaySettings())
            failed = SessionCompactFailedEvent(
                reason="manual", aborted=False, from_extension=False, error_message="full", plugin="relay"
            )

            async def compact() -> None:
                if hook_first:
                    one.on_failed(failed)
                raise CompactionFailed("full")

            ctx.compact = lambda **options: compact()  # type: ignore[method-assign,assignment]  # it fails
            await one.by_hand()
            if not hook_first:
                one.on_failed(failed)

    for hook_first in (True, False):
        asyncio.run(scenario(hook_first=hook_first))
    assert [(line["trigger"], line["error"]) for line in log_lines(home)] == [("manual", "full")] * 2


def test_a_marked_one_that_fails_is_cancelled_so_that_nobody_else_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(relays, "write_note_file", full)
    found = answer(tmp_path, instructions=MARKER)
    assert isinstance(found, Cancel)
    assert "No space left" in found.reason
    with pytest.raises(OSError, match="No space left"):
        answer(tmp_path, addressed_to="relay")


@pytest.mark.parametrize(
    ("tokens", "text"), [(850, "850"), (1_000, "1k"), (8_600, "9k"), (152_400, "152k"), (None, "?"), ("x", "?")]
)
def test_tokens_for_people(tokens: object, text: str) -> None:
    assert thousands(tokens) == text
