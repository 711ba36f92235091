"""The picture of a session's life: stacked areas as inline SVG, marks and places to point at as HTML above it.

The SVG is stretched to the width that there is, so it holds no text; labels are HTML, at percentages.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from contexthost.cli.report.markup import CATEGORIES, css, day, number, text
from contexthost.projection.timeline import Change, Point, Timeline

__all__ = ["MARKS", "changes_shown", "chart", "told"]

MARKS: Final = 40
"""Compactions and batches that are marked, at most: those that changed the most."""
_SIDE: Final = 1000
_HEADROOM: Final = 1.06


def chart(life: Timeline, window: int) -> str:
    """The picture; empty for a session without anything in it."""
    if not life.peak:
        return '<p class="quiet">Nothing has been in the context yet.</p>'
    # The window's line is shown where it does not squeeze everything else.
    top = (max(life.peak, window) if window <= 2.2 * life.peak else life.peak) * _HEADROOM
    return (
        '<div class="chart">'
        f'<div class="y" aria-hidden="true">{"".join(_y_labels(top))}</div>'
        '<div class="plot" role="group" aria-roledescription="chart" id="plot" aria-label="Context over the session’s '
        'life, by category. Left and right arrow keys go from point to point, Home and End to the first and last.">'
        f'<svg viewBox="0 0 {_SIDE} {_SIDE}" preserveAspectRatio="none" aria-hidden="true" focusable="false">'
        f"{''.join(_grid(top))}{''.join(_areas(life, top))}{_window_line(window, top)}</svg>"
        f"{''.join(_marks(life))}{''.join(_points(life, top))}"
        f'{_window_label(window, top)}<div id="tip" hidden></div></div>'
        f'<div class="x" aria-hidden="true">{"".join(_x_labels(life))}</div></div>'
    )


def changes_shown(life: Timeline) -> list[Change]:
    """The changes that are marked and listed, in order."""
    if len(life.changes) <= MARKS:
        return list(life.changes)
    largest = sorted(life.changes, key=lambda change: -abs(change.before - change.after))[:MARKS]
    return sorted(largest, key=lambda change: change.position)


def told(change: Change) -> str:
    """A change in a few words."""
    what = {
        "compaction": "compaction",
        "masks": "1 result masked" if change.count == 1 else f"{number(change.count)} results masked",
        "edits": "1 context edit" if change.count == 1 else f"{number(change.count)} context edits",
    }[change.kind]
    return f"{what}, {number(change.before)} → {number(change.after)} tokens"


def _steps(top: float) -> list[int]:
    """Three to six round figures from 0 up."""
    magnitude = 10 ** (len(str(int(top))) - 1)
    for factor in (0.1, 0.2, 0.5, 1, 2, 5):
        step = max(1, int(magnitude * factor))
        if top / step <= 5:
            break
    return list(range(0, int(top) + 1, step))


def _y(tokens: float, top: float) -> float:
    return round(_SIDE * (1 - tokens / top), 1)


def _percent(value: float) -> str:
    return f"{value:.3f}".rstrip("0").rstrip(".") + "%"


def _y_labels(top: float) -> Iterator[str]:
    for tokens in _steps(top):
        shown = f"{tokens // 1000}k" if tokens % 1000 == 0 and tokens else number(tokens)
        yield f'<span style="top:{_percent(_y(tokens, top) / 10)}">{shown}</span>'


def _grid(top: float) -> Iterator[str]:
    for tokens in _steps(top):
        y = _y(tokens, top)
        yield f'<line class="grid" x1="0" x2="{_SIDE}" y1="{y}" y2="{y}"/>'


def _areas(life: Timeline, top: float) -> Iterator[str]:
    width = max(life.steps, 1)
    xs = [0.0, *(round(_SIDE * point.step / width, 1) for point in life.points)]
    below = [0] * len(xs)
    for category in CATEGORIES:
        sizes = [0, *(point.tokens.get(category, 0) for point in life.points)]
        if not any(sizes):
            continue
        above = [low + size for low, size in zip(below, sizes, strict=True)]
        there = " ".join(f"{x},{_y(tokens, top)}" for x, tokens in zip(xs, above, strict=True))
        back = " ".join(
            f"{x},{_y(tokens, top)}" for x, tokens in zip(reversed(xs), reversed(below), strict=True)
        )
        yield f'<polygon class="area {css(category)}" points="{there} {back}"/>'
        below = above


def _window_line(window: int, top: float) -> str:
    if window > top:
        return ""
    y = _y(window, top)
    return f'<line class="window" x1="0" x2="{_SIDE}" y1="{y}" y2="{y}"/>'


def _window_label(window: int, top: float) -> str:
    if window > top:
        return ""
    return f'<span class="window-label" style="top:{_percent(_y(window, top) / 10)}">window {number(window)}</span>'


def _marks(life: Timeline) -> Iterator[str]:
    for change in changes_shown(life):
        left = _percent(100 * change.step / max(life.steps, 1))
        kind = change.kind
        yield f'<span class="mark {kind}" style="left:{left}" data-kind="{kind}" aria-hidden="true"></span>'


def _points(life: Timeline, top: float) -> Iterator[str]:
    """Bands that can be pointed at and reached by key; together they cover the plot."""
    points: Sequence[Point] = life.points
    width = max(life.steps, 1)
    changes = {change.position: change for change in life.changes}
    left = 0.0
    for at, point in enumerate(points):
        x = 100 * point.step / width
        following = 100 * points[at + 1].step / width if at + 1 < len(points) else 100.0
        right = (x + following) / 2 if at + 1 < len(points) else 100.0
        parts = [(name, point.tokens[name]) for name in CATEGORIES if point.tokens.get(name)]
        what = f"turn {number(point.turn)}, entry {number(point.position)}"
        if point.position in changes:
            what += f", {told(changes[point.position])}"
        spoken = ", ".join(f"{name} {number(tokens)}" for name, tokens in parts)
        label = f"{what}: {number(point.total)} tokens; {spoken}"
        stop = 0 if at + 1 == len(points) else -1  # one stop of the tab key; the arrow keys do the rest
        yield (
            f'<span class="point" role="img" tabindex="{stop}" aria-label="{text(label)}" '
            f'style="left:{_percent(left)};width:{_percent(right - left)}" data-x="{x:.3f}" '
            f'data-y="{_y(point.total, top) / 10:.2f}" data-what="{text(what)}" data-when="{day(point.timestamp)}" '
            f'data-total="{point.total}" data-parts="{text("|".join(f"{name}={tokens}" for name, tokens in parts))}">'
            "</span>"
        )
        left = right


def _x_labels(life: Timeline) -> Iterator[str]:
    """Up to six turns, at the first point of each."""
    first: dict[int, int] = {}
    for point in life.points:
        first.setdefault(point.turn, point.step)
    turns = [turn for turn in first if turn]
    every = max(1, -(-len(turns) // 6))
    width = max(life.steps, 1)
    taken = -100.0
    for turn in turns[::every]:
        x = 100 * first[turn] / width
        if x - taken >= 19 and x <= 86:
            yield f'<span style="left:{_percent(x)}">turn {number(turn)}</span>'
            taken = x
