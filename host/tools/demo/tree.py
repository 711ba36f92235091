"""A virtual file tree: what the invented project's files hold at each moment of the demo session."""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ROOT = "/home/dev/quayside"

# Files that exist in the project but are never opened; `ls`, coverage and pytest mention them.
UNOPENED = [
    ".env.example",
    ".gitignore",
    "Makefile",
    "alembic.ini",
    "compose.yaml",
    ".github/workflows/ci.yaml",
    ".github/workflows/nightly.yaml",
    "docs/API.md",
    "docs/POSTMORTEM-2025-10-26.md",
    "docs/img/latency-p95.png",
    "docs/img/rooms.svg",
    "migrations/env.py",
    "migrations/script.py.mako",
    "migrations/versions/0001_harbours.py",
    "migrations/versions/0002_vessels.py",
    "migrations/versions/0003_bookings.py",
    "migrations/versions/0004_tariffs.py",
    "migrations/versions/0005_outbox.py",
    "migrations/versions/0006_invoices.py",
    "migrations/versions/0007_meters.py",
    "migrations/versions/0008_booking_notes.py",
    "migrations/versions/0009_berth_out_of_service.py",
    "migrations/versions/0010_invoice_numbers.py",
    "scripts/anonymise_dump.py",
    "scripts/explain_list.sql",
    "scripts/overlaps.sql",
    "scripts/seed_dev.py",
    "src/quayside/__init__.py",
    "src/quayside/py.typed",
    "src/quayside/api/__init__.py",
    "src/quayside/api/berths.py",
    "src/quayside/api/health.py",
    "src/quayside/api/invoices.py",
    "src/quayside/api/meters.py",
    "src/quayside/api/waitlist.py",
    "src/quayside/api/webhooks.py",
    "src/quayside/jobs/__init__.py",
    "src/quayside/jobs/invoicing.py",
    "src/quayside/jobs/outbox.py",
    "src/quayside/jobs/runner.py",
    "src/quayside/repositories/__init__.py",
    "src/quayside/repositories/berths.py",
    "src/quayside/repositories/invoices.py",
    "src/quayside/repositories/meters.py",
    "src/quayside/repositories/tariffs.py",
    "src/quayside/repositories/waitlist.py",
    "src/quayside/services/__init__.py",
    "src/quayside/services/invoices.py",
    "src/quayside/services/meters.py",
    "src/quayside/services/payments.py",
    "tests/seeding.py",
    "tests/test_api_berths.py",
    "tests/test_api_invoices.py",
    "tests/test_api_waitlist.py",
    "tests/test_expiry.py",
    "tests/test_invoices.py",
    "tests/test_layers.py",
    "tests/test_meters.py",
    "tests/test_notify.py",
    "tests/test_tariffs.py",
    "tests/test_waitlist.py",
    "tests/test_webhooks.py",
]


class EditRefused(Exception):
    """An edit whose old text does not occur exactly once; the file is left as it was."""


@dataclass(frozen=True)
class Commit:
    """A commit made during the session: seven hex digits, subject, time, and (path, lines added, lines removed)."""

    short: str
    subject: str
    at_ms: int
    rows: list[tuple[str, int, int]]


class Tree:
    """Paths relative to the project root, with their text now and at the last commit."""

    def __init__(self, source: Path) -> None:
        self.files = {
            str(path.relative_to(source).as_posix()).removesuffix(".txt"): path.read_text(encoding="utf-8")
            for path in sorted(source.rglob("*.txt"))
        }
        self.base = dict(self.files)
        self.commits: list[Commit] = []

    def commit(self, short: str, subject: str, at_ms: int) -> None:
        """Take the files as they are for committed; the seven digits are those that the session shows."""
        self.commits.append(Commit(short, subject, at_ms, self.diff_stat()))
        self.base = dict(self.files)

    def edit(self, path: str, edits: Iterable[tuple[str, str]]) -> tuple[str, str]:
        """Replace texts that each occur exactly once; the old and the new text of the whole file."""
        old = new = self.files[path]
        for before, after in edits:
            if old.count(before) != 1 or new.count(before) != 1:
                raise EditRefused(f"{path}: {before[:60]!r} occurs {old.count(before)} times")
            new = new.replace(before, after)
        self.files[path] = new
        return old, new

    def paths(self) -> list[str]:
        return sorted({*self.files, *UNOPENED})

    def line(self, path: str, needle: str) -> int:
        """The 1-based number of the first line that holds the needle."""
        for number, line in enumerate(self.files[path].split("\n"), 1):
            if needle in line:
                return number
        raise LookupError(f"{path} has no line with {needle!r}")

    def slice(self, path: str, offset: int, limit: int) -> str:
        lines = self.files[path].split("\n")
        shown = "\n".join(lines[offset - 1 : offset - 1 + limit])
        left = len(lines) - (offset - 1 + limit)
        notice = f"\n\n[{left} more lines in file. Use offset={offset + limit} to continue.]" if left > 0 else ""
        return shown + notice

    def grep(self, pattern: str, under: str, *, context: int = 0) -> str:
        """Matches as `path:line: text`, context lines as `path-line- text`."""
        out: list[str] = []
        for path, text in sorted(self.files.items()):
            if not path.startswith(under):
                continue
            name = path.removeprefix(under).lstrip("/") or path
            lines = text.split("\n")
            hits = {number for number, line in enumerate(lines) if re.search(pattern, line)}
            shown = {n for hit in hits for n in range(hit - context, hit + context + 1) if 0 <= n < len(lines)}
            for number in sorted(shown):
                mark = ":" if number in hits else "-"
                out.append(f"{name}{mark}{number + 1}{mark} {lines[number]}")
        return "\n".join(out) or "No matches found"

    def listing(self, under: str) -> str:
        """What `ls` shows of one directory: names, directories with a slash."""
        prefix = f"{under}/" if under not in ("", ".") else ""
        names = set()
        for path in self.paths():
            if path.startswith(prefix):
                head, slash, _ = path.removeprefix(prefix).partition("/")
                names.add(head + slash)
        return "\n".join(sorted(names, key=str.lower))

    def recursive_listing(self) -> str:
        """What `ls -RA` shows."""
        directories = {""}
        for path in self.paths():
            parts = path.split("/")[:-1]
            directories.update("/".join(parts[: n + 1]) for n in range(len(parts)))
        blocks = []
        for directory in sorted(directories):
            inside = self.listing(directory).replace("/", "")
            blocks.append(f"./{directory}:\n{inside}" if directory else f".:\n{inside}")
        return "\n\n".join(blocks) + "\n"

    def git_diff(self, under: str = "") -> str:
        out: list[str] = []
        for path in sorted({*self.files, *self.base}):
            old, new = self.base.get(path, ""), self.files.get(path, "")
            if old == new or not path.startswith(under):
                continue
            out.append(f"diff --git a/{path} b/{path}\n")
            if not old:
                out.append("new file mode 100644\n")
            out.append(f"index {_blob(old)}..{_blob(new)}{' 100644' if old else ''}\n")
            source = f"a/{path}" if old else "/dev/null"
            out.extend(
                difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), source, f"b/{path}")
            )
        return "".join(out)

    def diff_stat(self) -> list[tuple[str, int, int]]:
        """Changed files with the lines added and removed."""
        rows = []
        for path in sorted({*self.files, *self.base}):
            old, new = self.base.get(path, ""), self.files.get(path, "")
            if old != new:
                lines = list(difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm=""))[2:]
                added = sum(line.startswith("+") for line in lines)
                rows.append((path, added, sum(line.startswith("-") for line in lines)))
        return rows

    def function_source(self, path: str, name: str) -> tuple[int, list[str]]:
        """The first line number and the lines of a function, decorators left out."""
        lines = self.files[path].split("\n")
        for start, line in enumerate(lines):
            match = re.match(rf"(\s*)(?:async )?def {name}\(", line)
            if match:
                indent = len(match[1])
                end = start + 1
                while end < len(lines) and (
                    not lines[end].strip()
                    or len(lines[end]) - len(lines[end].lstrip()) > indent
                    or lines[end].lstrip().startswith(")")
                ):
                    end += 1
                return start + 1, lines[start:end]
        raise LookupError(f"{path} has no function {name}")


def edit_details(path: str, old: str, new: str) -> dict[str, object]:
    """The `details` of an edit's result: a numbered diff for people and a unified patch."""
    a, b = old.split("\n"), new.split("\n")
    width = len(str(max(len(a), len(b))))
    shown: list[str] = []
    first: int | None = None
    for group in difflib.SequenceMatcher(None, a, b, autojunk=False).get_grouped_opcodes(4):
        if shown or group[0][1] > 0:
            shown.append(f" {'':>{width}} ...")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                shown.extend(f" {number + 1:>{width}} {a[number]}" for number in range(i1, i2))
                continue
            first = j1 + 1 if first is None else first
            shown.extend(f"-{number + 1:>{width}} {a[number]}" for number in range(i1, i2))
            shown.extend(f"+{number + 1:>{width}} {b[number]}" for number in range(j1, j2))
    patch = "".join(difflib.unified_diff(old.splitlines(keepends=True), new.splitlines(keepends=True), path, path, n=4))
    return {"diff": "\n".join(shown), "patch": patch, "firstChangedLine": first}


def _blob(text: str) -> str:
    if not text:
        return "0000000"
    data = text.encode()
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()[:7]
