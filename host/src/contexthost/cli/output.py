"""How commands print: JSON without loss, tables for people, bars, file names for the shell."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from contexthost.messages import js_json
from contexthost.text import one_line

__all__ = ["bar", "console", "count", "echo_json", "file_name", "in_shell", "print_table"]

_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


def console() -> Console:
    """A console on standard output; plain and 100 columns wide where that is no terminal."""
    made = Console(highlight=False, soft_wrap=False)
    if not made.is_terminal:
        made.width = 100
    return made


def echo_json(value: Any, *, indent: int | None = 2) -> None:
    """Prints JSON in ASCII, so that any text, lone surrogates included, comes through any pipe unchanged."""
    try:
        text = json.dumps(value, ensure_ascii=True, indent=indent, allow_nan=False)
    except (RecursionError, ValueError):
        # What a session holds may be nested more deeply than Python prints, or be too large a number for JSON.
        text = _NOT_ASCII.sub(lambda found: json.dumps(found.group())[1:-1], js_json(value))
    click.echo(text)


def count(number: int) -> str:
    """A number for people: ``12,345``."""
    return f"{number:,}"


def bar(share: float, width: int = 24) -> str:
    """A bar for a share of 0 to 1; anything above 0 shows at least a sliver."""
    eighths = round(max(0.0, min(share, 1.0)) * width * 8)
    if share > 0 and eighths == 0:
        eighths = 1
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def print_table(
    columns: Sequence[tuple[str, str]],
    rows: Iterable[Sequence[str]],
    *,
    title: str | None = None,
    wrap: bool = True,
) -> None:
    """Prints a table; a column is (heading, ``left`` or ``right``). Cells are made fit for a terminal; with ``wrap``
    texts that are too long for a line go on in the next."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for heading, justify in columns:
        right = justify == "right"
        table.add_column(heading, justify="right" if right else "left", no_wrap=right or not wrap, overflow="ellipsis")
    for row in rows:
        table.add_row(*(Text(one_line(cell)) for cell in row))
    console().print(table)


def file_name(path: Path) -> str:
    """A file's name for people, with a mark for bytes that are no text; `in_shell` is the one to copy."""
    return one_line(os.fsencode(path).decode("utf-8", "replace"))


def in_shell(path: Path) -> str:
    """A file's name for a command line that is shown and pasted: absolute, so that it is no option, no ``latest`` and
    right in every directory; quoted, and of one line even where the name has bytes that cannot be shown."""
    name = str(path.absolute())
    if name.isprintable() and " ".join(name.split()) == name:
        return shlex.quote(name)
    return "$'" + "".join(_escaped(character) for character in name) + "'"


def _escaped(character: str) -> str:
    if character in "'\\":
        return "\\" + character
    if character.isprintable() and not character.isspace():
        return character
    return "".join(f"\\{byte:03o}" for byte in os.fsencode(character))
