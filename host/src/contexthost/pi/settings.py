"""Pi's own settings files, as far as extensions go. They are read, and never written."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

__all__ = ["PiSettings", "read_json"]

_MOST_BYTES: Final = 8_000_000


@dataclass(frozen=True, slots=True)
class PiSettings:
    """What matters of a settings file. ``base`` is its directory, which relative paths start from."""

    file: Path
    extensions: list[str] = field(default_factory=list)
    packages: list[tuple[str, dict[str, Any] | None]] = field(default_factory=list)
    """The source and, for an object, the object."""
    problems: list[str] = field(default_factory=list)

    @property
    def base(self) -> Path:
        return self.file.parent

    @classmethod
    def read(cls, file: Path) -> PiSettings:
        made = cls(file)
        try:
            found = read_json(file)
        except ValueError as error:
            made.problems.append(f"{file} {error}: which extensions it names is not known")
            return made
        if found is None:
            return made
        if not isinstance(found, dict):
            made.problems.append(f"{file} holds no JSON object: which extensions it names is not known")
            return made
        for entry in made._list(found, "extensions"):
            if isinstance(entry, str):
                made.extensions.append(entry)
            else:
                made.problems.append(f"{file}: an entry of `extensions` is no text and was passed over")
        for entry in made._list(found, "packages"):
            source = entry.get("source") if isinstance(entry, dict) else entry
            if isinstance(source, str):
                made.packages.append((source, entry if isinstance(entry, dict) else None))
            else:
                made.problems.append(f"{file}: an entry of `packages` names no source and was passed over")
        return made

    def _list(self, found: dict[str, Any], key: str) -> list[Any]:
        value = found.get(key)
        if value is None or isinstance(value, list):
            return value or []
        self.problems.append(f"{self.file}: `{key}` is no list and was passed over")
        return []


def read_json(file: Path) -> Any:
    """What a JSON file holds, as Pi reads it; None where there is none, or nothing in it.

    Raises:
        ValueError: it cannot be used; the message goes on from the file's name.
    """
    try:
        if not file.is_file():
            if os.path.lexists(file):
                raise ValueError("is no file")
            return None
        if file.stat().st_size > _MOST_BYTES:
            raise ValueError("is too large")
        content = file.read_bytes().decode("utf-8", "replace").removeprefix("\ufeff")
        return json.loads(content, parse_constant=_refuse) if content else None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON (line {error.lineno}, column {error.colno})") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    except OSError as error:
        raise ValueError(f"cannot be read ({error.strerror})") from None


def _refuse(constant: str) -> None:
    raise ValueError(f"is not JSON ({constant} is no number there)")
