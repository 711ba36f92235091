"""``contexthost doctor SESSION``: what is wrong with a session, and mending it."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import click

from contexthost.cli.output import count, echo_json, in_shell
from contexthost.config import HostSettings, load_settings
from contexthost.diagnosis import Diagnosis, Finding, examine, plan_rescue, preview_rescue, repair, write_rescue
from contexthost.errors import ParentCycle, SessionFormatError, SessionWriteError
from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from contexthost.session.find import find_session
from contexthost.text import one_line, shorten
from contexthost.tokens import default_counter

__all__ = ["check_session", "rescue_session"]

_OWNER: Final = "contexthost doctor"
_TAKEN: Final = "exists already, and is left as it is: give another name"
_SHOWN: Final = 10
"""Findings of one kind that are printed; ``--json`` has all."""
_LENGTH: Final = 500
"""Characters of a line of a finding that are printed: some name hundreds of entries."""


def check_session(reference: str, *, repairs: bool, agreed: bool, dry_run: bool, as_json: bool) -> int:
    """Prints what is wrong with a session and, when asked and agreed to, repairs it; the exit status.

    Raises:
        SessionNotFound, AmbiguousSession: no such session.
        SessionLocked, SessionChanged, SessionWriteError: it could not be repaired; nothing was appended.
    """
    path = find_session(reference)
    try:
        authority = _project(Session.open(path, owner=_OWNER))
    except SessionFormatError as error:
        return _cannot_open(path, error, as_json)
    diagnosis = examine(authority)
    before = _tokens(authority)
    after = _tokens_after(authority, diagnosis)
    if not as_json:
        _print_findings(diagnosis)
    repaired = 0
    refused = False
    if repairs and diagnosis.drafts and not dry_run:
        if not as_json:
            click.echo(_plan(authority, diagnosis, before, after))
        if agreed or _agrees(as_json):
            repaired = len(diagnosis.drafts)
            diagnosis = repair(authority, diagnosis)
            after = _tokens(authority)
        else:
            refused = True
    if as_json:
        report = _report(path, authority.session, diagnosis)
        echo_json({**report, "repaired": repaired, "tokensBefore": before, "tokensAfter": after if repaired else before,
                   "tokensRepaired": after})  # fmt: skip
    elif repaired:
        now = _number(after or 0, "token")
        click.echo(f"Repaired: {_entries(repaired)} appended, {_number(before or 0, 'token')} before, {now} now.")
        _print_rest(path, diagnosis)
    elif refused:
        click.echo("Nothing was appended.")
    else:
        if repairs and dry_run and diagnosis.drafts:
            click.echo(_plan(authority, diagnosis, before, after))
            click.echo("Dry run: nothing was appended.")
        _print_summary(path, diagnosis, repairs=repairs)
    return 1 if diagnosis.problems or refused else 0


def rescue_session(reference: str, target: Path, *, dry_run: bool, as_json: bool) -> int:
    """Writes what can be saved of a session to a new file and prints what it was; the exit status.

    Raises:
        SessionNotFound, AmbiguousSession: no such session.
        SessionFormatError: nothing in it can be saved.
        SessionWriteError: the new file exists already or cannot be written.
    """
    path = find_session(reference)
    taken = os.path.lexists(target)
    if taken and not dry_run:  # asked again when the file is made; this only saves the work
        raise SessionWriteError(f"{target} {_TAKEN}")
    rescue = plan_rescue(path)
    authority, diagnosis = preview_rescue(rescue, _project) if dry_run else write_rescue(rescue, target, _project)
    shown = len(authority.snapshot().messages)
    tokens = _tokens(authority)
    if as_json:
        echo_json(
            {
                "file": str(path),
                "newFile": None if dry_run else str(target),
                "newFileExists": taken,
                "sessionId": rescue.header["id"],
                "saved": rescue.saved,
                "fromBrokenLines": rescue.from_broken_lines,
                "newIds": rescue.renamed,
                "newParents": rescue.rehung,
                "lostLines": list(rescue.lost_lines),
                "repaired": len(authority.session.entries) - rescue.saved,
                "contextMessages": shown,
                "tokens": tokens,
                "findings": [_finding(finding) for finding in diagnosis.findings],
            }
        )
        return 1 if diagnosis.problems or taken else 0
    details = [
        (rescue.from_broken_lines, "found whole inside lines that are not JSON"),
        (rescue.renamed, "under a new id"),
        (rescue.rehung, "hung on the entry before, their parent being lost"),
        (len(authority.session.entries) - rescue.saved, "added to repair calls, results and compactions"),
    ]
    rows = [f"  {count(number)} {what}" for number, what in details if number]
    rows += [f"  lost: what stood in {_listed(rescue.lost_lines)}"] if rescue.lost_lines else []
    saved = f"{'Would save' if dry_run else 'Saved'} {_entries(rescue.saved)} of {path}"
    click.echo("\n".join([f"{saved}{':' if rows else '.'}", *rows]))
    click.echo(f"The model sees {_number(shown, 'message')} of it, {_number(tokens or 0, 'token')}.")
    _print_findings(diagnosis)
    if dry_run:
        click.echo("Dry run: nothing was written.")
        if taken:
            click.echo(f"{target} {_TAKEN}.")
    else:
        click.echo(f"The old file is as it was. Go on with: pi --session {target}")
    return 1 if diagnosis.problems or taken else 0


def _project(session: Session) -> ProjectionAuthority:
    settings = load_settings(HostSettings, "host").values
    return ProjectionAuthority(session, counter=default_counter(settings.encoding), window=settings.contextWindow)


def _tokens(authority: ProjectionAuthority) -> int | None:
    """The context's size; None when the parents lead in a circle and there is no context."""
    try:
        return authority.snapshot().tokens
    except ParentCycle:
        return None


def _tokens_after(authority: ProjectionAuthority, diagnosis: Diagnosis) -> int | None:
    return authority.preview(diagnosis.drafts).tokens if diagnosis.drafts else _tokens(authority)


def _is_terminal() -> bool:
    return sys.stdin.isatty()


def _agrees(as_json: bool) -> bool:
    if as_json or not _is_terminal():
        click.echo("Not a terminal, so nobody can be asked: --yes repairs without asking.", err=True)
        return False
    return click.confirm("Repair it?", default=False)


def _cannot_open(path: Path, error: SessionFormatError, as_json: bool) -> int:
    """A file that is not a session to Pi either, but holds entries that a rescue can save."""
    rescue = plan_rescue(path)
    finding = Finding(
        kind="no-header",
        mend="rescue",
        entry_id=None,
        line=1,
        problem=one_line(str(error)),
        model_sees="Nothing at all: Pi does not take the file for a session.",
        repair=f"Appending cannot mend this. --rescue NEWFILE writes a new session with the {_entries(rescue.saved)} "
        "in it.",
    )
    diagnosis = Diagnosis((finding,), ())
    if as_json:
        echo_json({**_report(path, None, diagnosis), "repaired": 0, "tokensBefore": None, "tokensAfter": None,
                   "tokensRepaired": None})  # fmt: skip
    else:
        _print_findings(diagnosis)
        _print_summary(path, diagnosis, repairs=False)
    return 1


def _report(path: Path, session: Session | None, diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "file": str(path),
        "sessionId": None if session is None else session.id,
        "leafId": None if session is None else session.leaf_id,
        "healthy": not diagnosis.problems,
        "findings": [_finding(finding) for finding in diagnosis.findings],
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "kind": finding.kind,
        "severity": finding.severity,
        "mend": finding.mend,
        "entryId": finding.entry_id,
        "line": finding.line or None,
        "problem": finding.problem,
        "modelSees": finding.model_sees,
        "repair": finding.repair,
    }


def _print_findings(diagnosis: Diagnosis) -> None:
    left = Counter(finding.kind for finding in diagnosis.findings)
    printed: Counter[str] = Counter()
    for finding in diagnosis.findings:
        kind = finding.kind
        if printed[kind] == _SHOWN:
            continue
        printed[kind] += 1
        left[kind] -= 1
        where = [f"line {finding.line}"] if finding.line else []
        where += [f"entry {finding.entry_id}"] if finding.entry_id is not None else []
        colour = "red" if finding.severity == "problem" else "yellow"
        click.echo(f"{click.style(finding.kind, fg=colour, bold=True)}  {one_line(', '.join(where))}")
        click.echo(f"  wrong   {shorten(one_line(finding.problem), _LENGTH)}")
        click.echo(f"  seen    {shorten(one_line(finding.model_sees), _LENGTH)}")
        click.echo(f"  repair  {shorten(one_line(finding.repair), _LENGTH)}")
        click.echo()
        if printed[kind] == _SHOWN and left[kind]:
            click.echo(f"… and {count(left[kind])} more of this kind (--json lists all)\n")


def _print_summary(path: Path, diagnosis: Diagnosis, *, repairs: bool) -> None:
    problems = diagnosis.problems
    notices = len(diagnosis.findings) - len(problems)
    noted = "" if notices == 0 else f" {_number(notices, 'notice')}: harmless."
    if not problems:
        click.echo(f"Healthy.{noted}")
        return
    by_appending = sum(finding.mend == "append" for finding in problems)
    click.echo(f"{_number(len(problems), 'problem')}{_mended(by_appending, len(problems))}.{noted}")
    if by_appending < len(problems):
        first = " Do that rather than --repair: it repairs the new file too." if by_appending else ""
        click.echo(f"contexthost doctor {in_shell(path)} --rescue NEWFILE saves the session in a new file.{first}")
    elif not repairs:
        click.echo(f"contexthost doctor {in_shell(path)} --repair mends it.")


def _mended(by_appending: int, problems: int) -> str:
    if by_appending == problems:
        return ", which appending mends"
    return f", {count(by_appending)} of which appending mends" if by_appending else ", which appending cannot mend"


def _print_rest(path: Path, diagnosis: Diagnosis) -> None:
    left = [finding for finding in diagnosis.problems if finding.mend != "append"]
    if left:
        kinds = ", ".join(dict.fromkeys(finding.kind for finding in left))
        click.echo(f"{_number(len(left), 'problem')} that appending cannot mend: {kinds}.")
        click.echo(f"contexthost doctor {in_shell(path)} --rescue NEWFILE saves the session in a new file.")
    else:
        click.echo("The session is whole.")


def _plan(authority: ProjectionAuthority, diagnosis: Diagnosis, before: int | None, after: int | None) -> str:
    kinds = [type(draft).__name__ for draft in diagnosis.drafts]
    names = {"ContextEditDraft": "context edit", "CompactionDraft": "compaction", "CustomDraft": "record"}
    parts = [_number(kinds.count(kind), word) for kind, word in names.items() if kind in kinds]
    version = authority.session.header.version
    migrated = "" if version >= 3 else f" The version {version} file becomes version 3; the original stays beside it."
    return (
        f"Repair appends {' and '.join(parts)}; nothing in the file changes.{migrated} "
        f"Tokens: {count(before or 0)} now, {count(after or 0)} then. Close Pi first if it has this session open."
    )


def _number(number: int, what: str) -> str:
    return f"{count(number)} {what}{'' if number == 1 else 's'}"


def _entries(number: int) -> str:
    return f"{count(number)} {'entry' if number == 1 else 'entries'}"


def _listed(lines: tuple[int, ...], most: int = 10) -> str:
    named = ", ".join(map(str, lines[:most]))
    more = f" and {count(len(lines) - most)} more" if len(lines) > most else ""
    return f"line{'' if len(lines) == 1 else 's'} {named}{more}"
