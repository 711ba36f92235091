"""Small parts of the page. Whatever comes from a session goes through `text`."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Final

from contexthost.cli.output import in_shell
from contexthost.projection.breakdown import ORDER
from contexthost.text import one_line, printable, shorten

__all__ = ["CATEGORIES", "chip", "command", "css", "day", "dollars", "number", "share", "text"]

CATEGORIES: Final = ORDER
"""From the bottom of the picture to its top."""


def text(value: object, length: int = 300) -> str:
    """Text from anywhere made safe for HTML, in content and in quoted attributes: one line, at most so many characters,
    no control characters, no marks that reorder text, nothing that is markup."""
    raw = printable(str(value)[: 4 * length])
    return escape(shorten(one_line(raw), length), quote=True)


def command(template: str, session: Path | None) -> str:
    """A command line to copy, with the session's file for ``SESSION``: whole, however long its name is."""
    name = "SESSION" if session is None else escape(in_shell(session), quote=True)
    return text(template, 400).replace("SESSION", name)


def css(category: str) -> str:
    """The class of a category's colour."""
    return "c-" + category.replace(" ", "-")


def chip(category: str) -> str:
    """A square in a category's colour."""
    return f'<span class="chip {css(category)}" aria-hidden="true"></span>'


def number(value: float) -> str:
    """``12,345``."""
    return f"{value:,.0f}"


def share(part: float, whole: float) -> str:
    """``12.3 %``."""
    return f"{part / whole * 100:,.1f} %" if whole else "0.0 %"


def dollars(value: float | None) -> str:
    """``$0.0123``, with two digits from one dollar on."""
    if value is None:
        return "not known"
    return f"${value:,.2f}" if value >= 1 else f"${value:.4f}"


def day(stamp: str) -> str:
    """An ISO time without its seconds: ``2026-11-30 10:22``; what is no such time stays as it is, shortened."""
    if len(stamp) >= 16 and stamp[4:5] == "-" and stamp[10:11] == "T":
        stamp = f"{stamp[:10]} {stamp[11:16]}"
    return text(stamp, 24)
