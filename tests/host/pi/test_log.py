"""The bridge's log on a disk that is full: Pi's screen stays as it is, and the log goes on when there is room."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

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
