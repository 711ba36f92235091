"""The bridge's log: on a disk that is full Pi's screen stays as it is, and the log goes on when there is room; what is
tried again and again does not fill it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from contexthost.pi import bridge
from contexthost.pi.server import _PrivateLog
from support.durability import size_limit


def test_a_full_disk_is_not_told_on_pis_screen(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("bridge")
    handler = _PrivateLog(tmp_path / "pi-bridge.log", encoding="utf-8")
    log.addHandler(handler)
    log.info("one")
    with size_limit(5):
        log.info("two")
    assert capsys.readouterr().err == ""
    log.info("three")
    handler.close()
    assert (tmp_path / "pi-bridge.log").read_text().splitlines()[0::2] == ["one", "three"]


def test_what_is_wrong_with_a_message_is_still_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = logging.Logger("bridge")
    handler = _PrivateLog(tmp_path / "pi-bridge.log", encoding="utf-8")
    log.addHandler(handler)
    log.info("%d", "not a number")
    handler.close()
    assert "TypeError" in capsys.readouterr().err


def test_a_session_that_another_has_locked_does_not_fill_the_log(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked for every two seconds while two Pis have one session: a day's lines would be the whole log."""
    tried: list[int] = []
    told: list[tuple[str, str]] = []
    over = asyncio.Event()

    class Locked:
        def hold(self) -> str | None:
            tried.append(1)
            if len(tried) < 20:
                return "locked by another"
            over.set()
            return None

    class Pi:
        def notify(self, method: str, event: Any) -> None:
            told.append((method, event["message"]))

    async def keep() -> None:
        serving: Any = bridge.Bridge(Pi())  # type: ignore[arg-type]
        serving._mirror = Locked()
        serving._keep_lock()
        await over.wait()

    monkeypatch.setattr(bridge, "_LOCK_RETRY_SECONDS", 0)
    asyncio.run(keep())
    text = "contexthost: locked by another. Until then others can write to this session too."
    assert told == [("ui/notify", text)]
    assert [record.getMessage() for record in caplog.records] == ["locked by another"] * 3
