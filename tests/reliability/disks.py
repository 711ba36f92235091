"""Filling a small file system (`support.durability.mounted`) up."""

from __future__ import annotations

from pathlib import Path

__all__ = ["PAGE", "fill", "take_all_names"]

PAGE = 4096
"""Bytes by which a file system in memory gives room."""


def fill(disk: Path, room: int) -> Path:
    """Fills a file system up to so many bytes; the file to be removed."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(PAGE))
        except OSError:
            size = file.tell()
        file.truncate(size - room)
    return filler


def take_all_names(disk: Path) -> list[Path]:
    """Makes files until the file system has no more; what is to be removed."""
    made = []
    try:
        for number in range(10_000):
            path = disk / f"taken-{number}"
            path.touch()
            made.append(path)
    except OSError:
        return made
    raise AssertionError("the file system takes any number of files")
