"""How commands tell what is wrong with settings; apart from `contexthost.cli.output`, which imports slow things."""

from __future__ import annotations

from collections.abc import Iterable

import click

from contexthost.text import one_line

__all__ = ["tell_warnings"]


def tell_warnings(warnings: Iterable[object]) -> None:
    """One line each on standard error."""
    for warning in warnings:
        click.echo(f"warning: {one_line(str(warning))}", err=True)
