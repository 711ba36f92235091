"""Pi's own settings files, and package.json, as far as extensions go. They are read, and never written."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from pydantic import BaseModel, ValidationError

from contexthost.session.entries import decode_json

__all__ = ["Package", "PiSettings", "read_file", "read_json", "read_settings"]

_MOST_BYTES: Final = 16_000_000


class Package(BaseModel):
    """An entry of ``packages`` that is an object."""

    source: str
    autoload: Any = True
    extensions: list[str] | None = None


class PiSettings(BaseModel):
    """What matters of a settings file; with other values in these places Pi does not start."""

    extensions: list[str] | None = None
    packages: list[str | Package] | None = None


def read_settings(file: Path) -> PiSettings:
    """What a settings file says; nothing, where there is none.

    Raises:
        ValueError: it cannot be used; the message goes on from the file's name.
    """
    found = read_json(file)
    try:
        return PiSettings.model_validate({} if found is None else found)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"][:2]))
        raise ValueError(f"is not as Pi's settings are, at {where}" if where else "holds no JSON object") from None


def read_json(file: Path) -> Any:
    """What a JSON file holds, as Pi reads it; None where there is none, or nothing in it.

    Raises:
        ValueError: as `read_file`, or it is not JSON.
    """
    content = read_file(file).removeprefix(b"\xef\xbb\xbf")
    try:
        return decode_json(content) if content else None
    except ValueError as error:
        raise ValueError(f"is not JSON ({error})") from None


def read_file(file: Path) -> bytes:
    """What a file holds; nothing, where there is none.

    Raises:
        ValueError: it cannot be used; the message goes on from the file's name.
    """
    try:
        if not file.is_file():
            if os.path.lexists(file):
                raise ValueError("is no file")  # a pipe, for one, would be waited for
            return b""
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError("is too large")
        return file.read_bytes()
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from None
