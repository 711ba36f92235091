"""The two tables of ``contexthost context``, one line a row however narrow the terminal is: what is needed least is
left out or shortened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

from contexthost.cli.output import bar, console, count, print_table
from contexthost.projection.breakdown import Breakdown, LargeEntry
from contexthost.text import one_line

__all__ = ["print_categories", "print_largest"]

_GAP: Final = 2  # between two columns
_BAR: Final = 24
_LEAST_BAR: Final = 6  # a shorter one tells nothing
_LEAST_LABEL: Final = 28  # the rest of a tool's name may go before whole columns do
_LEAST_TEXT: Final = 8
_ID: Final = 40  # Pi's have 8 characters, a UUID has 36
_WHAT: Final = 24
_ARGUMENT: Final = 50


def print_categories(parts: Breakdown, window: int) -> None:
    """Tokens by category, with bars. A narrow terminal shortens long names of tools, then takes away the pieces, then
    the bars."""
    names = [
        one_line(found.name if found.tool is None else f"{found.name}: {found.tool or '(no name)'}")
        for found in parts.categories
    ]
    labels = [*names, "all, as counted here"]
    pieces = [*(count(found.count) for found in parts.categories), ""]
    sizes = [*(found.tokens for found in parts.categories), parts.tokens]
    tokens = [count(size) for size in sizes]
    shares = [f"{size / window * 100:.1f} %" for size in sizes]

    room = console().width - _width("tokens", *tokens) - _width("window", *shares) - 2 * _GAP
    for_pieces = _width("pieces", *pieces) + _GAP
    for_label = min(_width(*labels), max(_LEAST_LABEL, room - for_pieces - _GAP - _LEAST_BAR), room)
    for_bar = min(room - for_label - for_pieces - _GAP, _BAR)
    with_pieces = for_bar >= _LEAST_BAR
    if not with_pieces:
        for_bar = min(room - for_label - _GAP, _BAR)
        with_pieces = for_bar < _LEAST_BAR and room - for_label >= for_pieces  # there is room for them, if not for bars
    columns = [("", "left"), ("tokens", "right"), ("window", "right")]
    rows = [[_beginning(label, for_label), *figures] for label, *figures in zip(labels, tokens, shares, strict=True)]
    if with_pieces:
        columns.insert(1, ("pieces", "right"))
        for row, number in zip(rows, pieces, strict=True):
            row.insert(1, number)
    if for_bar >= _LEAST_BAR:
        columns.append(("", "left"))
        for row, size in zip(rows, sizes, strict=True):
            row.append(bar(size / window, for_bar))
    print_table(columns, rows, wrap=False)


def print_largest(entries: Sequence[LargeEntry]) -> None:
    """The largest entries. A narrow terminal shortens what they are, and last their ids, which commands take."""
    width = console().width
    tokens = [count(entry.tokens) for entry in entries]
    for_id = max(_LEAST_TEXT, min(_ID, width - _width("tokens", *tokens) - 2 * _GAP - _LEAST_TEXT))
    ids = [_beginning(one_line(entry.entry_id), for_id) for entry in entries]
    whats = [_beginning(one_line(entry.what), _WHAT) for entry in entries]
    arguments = [_argument(entry, _ARGUMENT) for entry in entries]

    heading = "largest entries"
    others = _width("tokens", *tokens) + 3 * _GAP
    if _width(heading, *ids) + others + _width(*whats) + _width(*arguments) > width:
        heading = "largest"
    room = width - _width(heading, *ids) - others
    if _width(*whats) + _width(*arguments) > room:
        # An arrow and the tool say as much; a path or command says more than the tool.
        whats = [_beginning(one_line(entry.what).replace("assistant →", "→", 1), _WHAT) for entry in entries]
        for_what = min(_width(*whats), max(_LEAST_TEXT, room * 2 // 5, room - _width(*arguments)))
        if room - for_what < _LEAST_TEXT:  # nothing of a path would be left
            for_what, arguments = room + _GAP, []
        whats = [_beginning(what, for_what) for what in whats]
        arguments = [_argument(entry, min(room - for_what, _ARGUMENT)) for entry in entries] if arguments else []
    columns = [(heading, "left"), ("tokens", "right"), ("", "left")]
    rows = [list(row) for row in zip(ids, tokens, whats, strict=True)]
    if arguments:
        columns.append(("", "left"))
        for row, argument in zip(rows, arguments, strict=True):
            row.append(argument)
    print_table(columns, rows, wrap=False)


def _width(*cells: str) -> int:
    return max(map(cell_len, cells), default=0)


def _beginning(text: str, width: int) -> str:
    """As much of it as fits, ``…`` behind it if something is missing."""
    return text if cell_len(text) <= width else set_cell_size(text, max(width - 1, 0)).rstrip() + "…"


def _argument(entry: LargeEntry, width: int) -> str:
    """A call's argument: of a path the end, which tells it from others, of anything else the beginning."""
    text = one_line(entry.argument)
    if cell_len(text) <= width or "/" not in text or " " in text:
        return _beginning(text, width)
    return "…" + set_cell_size(text[::-1], max(width - 1, 0)).rstrip()[::-1]
