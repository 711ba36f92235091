"""Files that are written under another name first: what killed writers left is cleared away by the next writer of the
same file, once nobody can be at work on it any more, and nothing else is."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from contexthost.cli.report import write_report
from contexthost.errors import SessionWriteError
from contexthost.paths import temporary_beside, write_private
from contexthost.session.durable import write_new_file
from contexthost.session.file import SessionFile
from support.durability import size_limit

HOUR = 3600
LEFT = ".host.json.contexthost-abcd_123.tmp"


def made_before(path: Path, seconds: float) -> Path:
    path.write_bytes(b"half")
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
    return path


def write_report_over(path: Path, content: bytes) -> None:
    write_report(path, content, None, force=True)


@pytest.mark.parametrize("write", [write_private, write_new_file, write_report_over])
def test_what_killed_writers_left_goes_with_the_next_write(tmp_path: Path, write: object) -> None:
    assert callable(write)
    made_before(tmp_path / LEFT, HOUR + 1)
    write(tmp_path / "host.json", b"{}")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"host.json": b"{}"}


def test_what_may_be_somebodys_stays(tmp_path: Path) -> None:
    kept = [
        made_before(tmp_path / LEFT, HOUR - 10),  # being written, perhaps
        made_before(tmp_path / ".host.json.contexthost-abcd_123.tmp.mine", 2 * HOUR),
        made_before(tmp_path / ".host.json.contexthost-ab.tmp", 2 * HOUR),
        made_before(tmp_path / ".host.json.disabled", 2 * HOUR),
        made_before(tmp_path / ".jev.json.contexthost-abcd_123.tmp", 2 * HOUR),
        made_before(tmp_path / "host.json.contexthost-abcd_123.tmp", 2 * HOUR),
    ]
    write_private(tmp_path / "host.json", b"{}")
    assert {path.name for path in tmp_path.iterdir()} == {"host.json", *(path.name for path in kept)}


def test_a_temporary_file_is_private_and_its_name_fits_however_long_the_files_own_is(tmp_path: Path) -> None:
    path = tmp_path / ("€" * 80 + ".json")  # 245 bytes of 255
    descriptor, made = temporary_beside(path)
    os.close(descriptor)
    assert re.fullmatch(r"\.€{50}\.contexthost-[a-z0-9_]{8}\.tmp", Path(made).name)
    assert Path(made).stat().st_mode & 0o777 == 0o600
    write_private(path, b"{}")
    assert path.read_bytes() == b"{}"


def test_a_new_session_that_cannot_be_written_leaves_nothing_and_is_made_the_next_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path, header = tmp_path / "s.jsonl", b'{"type":"session","version":3,"id":"s","timestamp":"t","cwd":"/"}'
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(
            SessionWriteError, match=r"s\.jsonl cannot be made: No space left on device; nothing is left"
        ):
            SessionFile.create(path, [header])
    assert list(tmp_path.iterdir()) == []
    SessionFile.create(path, [header])
    with pytest.raises(SessionWriteError, match="exists already"):
        SessionFile.create(path, [header])
    assert path.read_bytes() == header + b"\n"


@pytest.mark.parametrize("write", [write_private, write_new_file, write_report_over])
def test_an_error_names_the_file_that_was_meant(tmp_path: Path, write: object) -> None:
    assert callable(write)
    path = tmp_path / "host.json"
    with size_limit(3), pytest.raises(OSError, match="File too large") as cut:
        write(path, b"{    }")
    assert cut.value.filename == str(path)
    assert list(tmp_path.iterdir()) == []
