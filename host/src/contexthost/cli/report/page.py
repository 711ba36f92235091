"""The page as a whole: one HTML file with its style and script inside, which loads nothing."""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.resources import files
from typing import Final

from contexthost.cli.output import file_name
from contexthost.cli.report.chart import MARKS, changes_shown, chart, told
from contexthost.cli.report.figures import Figures, WhatIf
from contexthost.cli.report.markup import (
    CATEGORIES,
    chip,
    command,
    css,
    day,
    dollars,
    number,
    share,
    text,
)

__all__ = ["page"]

_LISTED: Final = 8
"""Changes that are listed in the open; more are folded away."""


def page(figures: Figures) -> str:
    """The HTML. Its policy lets the browser run that one script and load nothing from anywhere."""
    style, script = _asset("page.css"), _asset("page.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; "
        "base-uri 'none'; form-action 'none'"
    )
    title = text(figures.session.name or figures.session.id, 80)
    body = "\n".join(
        (
            _head(figures),
            _life(figures),
            _now(figures),
            _largest(figures),
            _what_if(figures),
            _recoverable(figures),
            _foot(),
        )
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n'
        f"<title>{title}: context</title>\n<style>{style}</style>\n</head>\n<body>\n<main>\n"
        f"{body}\n</main>\n<script>{script}</script>\n</body>\n</html>\n"
    )


def _asset(name: str) -> str:
    return (files("contexthost.cli.report") / name).read_text(encoding="utf-8")


def _section(identity: str, title: str, about: str, content: str) -> str:
    lead = f"<p>{about}</p>" if about else ""
    return f'<section id="{identity}"><h2>{title}</h2>{lead}{content}</section>'


def _table(caption: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Cells are HTML; all columns but the first hold figures."""
    top = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = []
    for row in rows:
        first, *others = row
        lines.append(f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in others)}</tr>')
    return (
        f"<table><caption>{caption}</caption><thead><tr>{top}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
    )


def _details(summary: str, label: str, content: str) -> str:
    return (
        f'<details><summary>{summary}</summary><div class="wide" tabindex="0" role="region" aria-label="{label}">'
        f"{content}</div></details>"
    )


def _head(figures: Figures) -> str:
    session, snapshot, life = figures.session, figures.snapshot, figures.life
    usage = snapshot.usage
    model = snapshot.model or {}
    facts = [
        " / ".join(text(model[key], 60) for key in ("provider", "modelId") if model.get(key)),
        f"{number(life.turns)} {'turn' if life.turns == 1 else 'turns'}, {number(life.entries)} entries",
        day(life.points[-1].timestamp) if life.points else "",
        f"<code>{text(session.id if session.path is None else file_name(session.path), 200)}</code>",
    ]
    counted = (
        f"as the provider last counted; {number(figures.parts.tokens)} by our count, which this page uses"
        if usage.source == "provider"
        else f"estimated: between {number(usage.lower)} and {number(usage.upper)}"
    )
    full = min(100.0, 100 * usage.tokens / usage.window)
    compactions = sum(change.kind == "compaction" for change in life.changes)
    tiles = [
        ("at its fullest", number(life.peak), "tokens"),
        ("compactions", number(compactions), "on this branch"),
        ("masks save", number(figures.hidden.masked_tokens), f"tokens, {number(figures.hidden.masked)} results"),
        ("compacted away", number(life.away_tokens), f"tokens, {number(life.away_entries)} entries"),
    ]
    shown = "".join(f"<div><dt>{name}</dt><dd>{value} <span>{unit}</span></dd></div>" for name, value, unit in tiles)
    return (
        f'<header><p class="eyebrow">contexthost · context report</p><h1>{text(session.name or session.id, 120)}</h1>'
        f'<p class="facts">{" · ".join(fact for fact in facts if fact)}</p>'
        f'<div class="gauge"><p><strong data-figure="usage" data-value="{usage.tokens}">{number(usage.tokens)}</strong>'
        f" of {number(usage.window)} tokens, {share(usage.tokens, usage.window)} of the window</p>"
        f'<div class="meter{" hot" if full >= 80 else ""}" role="img" aria-label="{full:.0f} percent full">'
        f'<span style="width:{full:.2f}%"></span></div><p class="quiet">{counted}</p></div>'
        f'<dl class="tiles">{shown}</dl></header>'
    )


def _life(figures: Figures) -> str:
    life = figures.life
    used = [name for name in CATEGORIES if any(point.tokens.get(name) for point in life.points)]
    legend = "".join(f"<li>{chip(name)}{name}</li>" for name in used)
    kinds = {change.kind for change in life.changes}
    words = {"compaction": "compaction", "masks": "results masked", "edits": "other context edits"}
    legend += "".join(
        f'<li><span class="sign {kind}" aria-hidden="true"></span>{word}</li>'
        for kind, word in words.items()
        if kind in kinds
    )
    points = _table(
        "Tokens in the context at each point of the picture",
        ["turn", "entry", "time", "all", *used],
        (
            [
                number(point.turn),
                number(point.position),
                day(point.timestamp),
                number(point.total),
                *(number(point.tokens.get(name, 0)) for name in used),
            ]
            for point in life.points
        ),
    )
    about = "Every point counts what the model saw then, after all masks, edits and compactions so far."
    if not life.complete:
        about = "This session has too many compactions to follow; only its end is shown."
    return _section(
        "life",
        "The context over the session’s life",
        about,
        f'{chart(life, figures.snapshot.window)}<ul class="legend">{legend}</ul>{_changes(figures)}'
        + _details(f"The same in figures: {number(len(life.points))} points", "Figures of the picture", points),
    )


def _changes(figures: Figures) -> str:
    shown = changes_shown(figures.life)
    if not shown:
        return ""
    left_out = len(figures.life.changes) - len(shown)
    more = f'<p class="quiet">The {MARKS} largest; {number(left_out)} more are not listed.</p>' if left_out else ""
    lines = "".join(
        f'<li data-kind="{change.kind}"><span class="sign {change.kind}" aria-hidden="true"></span>'
        f"<span>turn {number(change.turn)}: {told(change)} "
        f'<span class="quiet">{day(change.timestamp)} <code>{text(change.entry_id, 40)}</code></span></span></li>'
        for change in shown
    )
    listed = f'<ul class="changes">{lines}</ul>{more}'
    if len(shown) <= _LISTED:
        return listed
    return f"<details><summary>{number(len(shown))} compactions, masks and edits</summary>{listed}</details>"


def _now(figures: Figures) -> str:
    parts, window = figures.parts, figures.snapshot.window
    sums = {name: sum(one.tokens for one in parts.categories if one.name == name) for name in CATEGORIES}
    strip = "".join(
        f'<span class="{css(name)}" style="flex-grow:{tokens}"></span>' for name, tokens in sums.items() if tokens
    )
    rows = []
    for one in parts.categories:
        label = text(one.name if one.tool is None else f"{one.name}: {one.tool or '(no name)'}", 60)
        figure = f'<span data-figure="category" data-value="{one.tokens}">{number(one.tokens)}</span>'
        rows.append([f"{chip(one.name)}{label}", number(one.count), figure, share(one.tokens, window)])
    total = f'<span data-figure="total" data-value="{parts.tokens}">{number(parts.tokens)}</span>'
    rows.append(["all, as counted here", "", total, share(parts.tokens, window)])
    table = _table("Tokens by category", ["", "pieces", "tokens", "of the window"], rows)
    return _section("now", "What is in it now", "", f'<div class="strip" aria-hidden="true">{strip}</div>{table}')


def _largest(figures: Figures) -> str:
    largest = figures.parts.largest
    if not largest:
        return ""
    most = largest[0].tokens
    lines = "".join(
        f'<li data-figure="largest" data-entry="{text(one.entry_id, 60)}" data-value="{one.tokens}">'
        f'<span class="row"><span><b>{text(one.what, 60)}</b> <span class="argument">{text(one.argument, 120)}</span> '
        f'<code class="quiet">{text(one.entry_id, 40)}</code></span>'
        f"<span><b>{number(one.tokens)}</b> {share(one.tokens, figures.parts.tokens)}</span></span>"
        f'<span class="bar {css(one.category)}" title="{one.category}" style="width:{100 * one.tokens / most:.1f}%">'
        "</span></li>"
        for one in largest
    )
    kinds = {one.category for one in largest}
    legend = "".join(f"<li>{chip(name)}{name}</li>" for name in CATEGORIES if name in kinds)
    about = "Tokens, and their share of the context; the colour is that of the kind that most of them are."
    return _section(
        "largest", "The largest entries", about, f'<ul class="legend">{legend}</ul><ol class="largest">{lines}</ol>'
    )


def _what_if(figures: Figures) -> str:
    now = figures.snapshot.tokens
    prices = figures.prices
    money = (
        f"With a warm prompt cache; ${prices.read:,.2f} per million tokens read, ${prices.write:,.2f} written anew."
        if prices is not None
        else "What it costs is not known: neither this session nor the settings name prices."
    )
    cards = "".join(_card(figures, row, now) for row in figures.what_if)
    about = f"What each way to make room would leave, counted alike; nothing has been done. {money}"
    return _section("what-if", "What if", about, f'<ul class="cards">{cards}</ul>')


def _card(figures: Figures, row: WhatIf, now: int) -> str:
    made = row.estimate
    idle = made.tokens_after is None
    by = f'<span class="by">{text(row.by, 40)}</span>' if row.by else ""
    sign = "≥ " if made.at_least and not idle else ""
    change = "" if idle else f' <span class="quiet">−{share(now - row.tokens, now)}</span>' if row.tokens < now else ""
    lines = []
    if row.turn is not None:
        lines.append(f"{sign}{dollars(row.turn)} a turn to read")
        if not idle and row.once:
            pays = "" if row.turns_to_pay is None else f", paid back after {_turns(row.turns_to_pay)}"
            lines.append(f"{dollars(row.once)} once for the cache{pays}")
    money = f'<p class="money">{" · ".join(lines)}</p>' if lines else ""
    note = f"<p>{text(made.note, 400)}</p>" if made.note else ""
    line = command(made.command, figures.session.path)
    return (
        f'<li class="card{" idle" if idle else ""}" data-figure="what-if" data-by="{text(row.by, 40)}" '
        f'data-value="{row.tokens}"><h3>{text(made.what, 80)}{by}</h3>'
        f'<p class="left"><strong>{sign}{number(row.tokens)}</strong> tokens{change}</p>'
        f'<span class="track"><span class="bar" style="width:{min(100.0, 100 * row.tokens / max(now, 1)):.1f}%"></span>'
        f"</span>{money}{note}{f'<pre><code>{line}</code></pre>' if line else ''}</li>"
    )


def _turns(turns: float) -> str:
    shown = f"{turns:,.1f}" if turns < 100 else f"{turns:,.0f}"
    return "1 turn" if shown == "1.0" else f"{shown} turns"


def _recoverable(figures: Figures) -> str:
    hidden, life = figures.hidden, figures.life
    rows = [
        ("masked results", hidden.masked, hidden.masked_tokens, "the original"),
        ("compacted away", life.away_entries, life.away_tokens, "as they last were"),
        ("replaced by an edit", hidden.replaced, hidden.replaced_tokens, "the replacement only"),
        ("left out by an edit", hidden.omitted, hidden.omitted_tokens, "nothing: the model must not see it"),
    ]
    table = _table(
        "What the file holds and the context does not show",
        ["", "entries", "tokens", "what the tools give back"],
        (
            [
                name,
                f'<span data-figure="{name.split()[0]}" data-value="{entries}">{number(entries)}</span>',
                number(tokens),
                back,
            ]
            for name, entries, tokens, back in rows
        ),
    )
    about = "Session files only grow: whatever left the context is still in the file."
    return _section("recoverable", "What can be brought back", about, f"{table}<dl>{''.join(_ways(figures))}</dl>")


def _ways(figures: Figures) -> Iterator[str]:
    ways = (
        (
            "context_tree_query",
            "contexthost-masking",
            "the model reads an entry again by the id in its placeholder, or looks by tool, path, words or turn",
            "contexthost tree-query SESSION --text WORDS",
        ),
        (
            "recall",
            "contexthost-relay",
            "the model searches everything that was recorded, relayed and compacted parts and forks included",
            "contexthost recall SESSION WORDS",
        ),
    )
    for tool, package, what, line in ways:
        how = (
            f"for you: <code>{command(line, figures.session.path)}</code>"
            if tool in figures.tools
            else f"not installed: <code>pip install {package}</code>"
        )
        yield f"<dt><code>{tool}</code></dt><dd>{what}; {how}</dd>"


def _foot() -> str:
    made = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    version = importlib.metadata.version("contexthost")
    return f"<footer>contexthost {version}, {made}. This page holds text of the session and loads nothing.</footer>"
