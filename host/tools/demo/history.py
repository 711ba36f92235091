"""The invented project's history, as `git log --stat` prints it."""

from __future__ import annotations

import random

from demo.tree import Tree
from demo.writer import iso

# Subject, body, and the modules that the commit touched, each with its tests; newest first.
OLDER = [
    (
        "Outbox: give up after eight attempts",
        "An address that bounced kept its event at the head of the queue for days.",
        ["notify.py", "jobs/outbox.py"],
    ),
    (
        "Office list: show the vessel's name",
        "The office knows boats, not numbers. One join, no further query.",
        ["repositories/bookings.py"],
    ),
    (
        "Invoices: a refund becomes a credit note",
        "The accountant asked for it; a negative line is not allowed here.",
        ["services/invoices.py", "repositories/invoices.py"],
    ),
    (
        "Expiry: SKIP LOCKED, so that two workers can run",
        "The second worker used to wait for the first and then found nothing.",
        ["jobs/expiry.py", "repositories/bookings.py"],
    ),
    ("Tariffs: multihulls pay half more", "Decision of the harbour board for the season.", ["services/tariffs.py"]),
    (
        "Meters: a meter may roll over",
        "Five-digit meters on pontoon D start again at zero.",
        ["services/meters.py", "repositories/meters.py"],
    ),
    ("Tests: one database per session", "The suite took four minutes, most of it CREATE TABLE. Now forty seconds.", []),
    (
        "Berths: out of service",
        "Pontoon E loses six berths while the dredger is here.",
        ["api/berths.py", "models.py", "repositories/berths.py"],
    ),
    (
        "Bookings: a note for the office",
        "Free text, 500 characters, never shown to other skippers.",
        ["api/bookings.py", "models.py", "schemas.py", "services/bookings.py"],
    ),
    (
        "Settings: a statement timeout",
        "One forgotten report query held up every booking on a Saturday.",
        ["app.py", "settings.py"],
    ),
    (
        "Waiting list: join and leave",
        "Promotion is still done by phone.",
        ["api/waitlist.py", "models.py", "repositories/waitlist.py", "services/waitlist.py"],
    ),
    (
        "Webhooks: refuse old timestamps",
        "Replays of a captured request were possible for as long as the secret lived.",
        ["api/webhooks.py", "services/payments.py"],
    ),
    ("Layers: a test that nothing imports upwards", "Reviews kept finding it; now the build does.", ["jobs/runner.py"]),
    (
        "Only tariffs turns an instant into a date",
        "Follows from the post-mortem of the autumn clock change.",
        ["jobs/invoicing.py", "services/invoices.py", "services/meters.py", "services/tariffs.py"],
    ),
    (
        "Invoice numbers without gaps",
        "A sequence leaves gaps on rollback; the tax office does not like gaps.",
        ["repositories/invoices.py", "services/invoices.py"],
    ),
    (
        "Move a booking to another berth",
        "Same dates, same price, office only.",
        ["api/bookings.py", "services/bookings.py"],
    ),
]
AUTHORS = ("Marit Osk <marit@quayside.test>", "Teo Varga <teo@quayside.test>", "Ines Dorn <ines@quayside.test>")


def git_log(tree: Tree, count: int) -> str:
    """The last commits with the files they touched; those made during the session come from the tree itself."""
    rng = random.Random(17)  # its own numbers, so that a later call shows the same past
    out: list[str] = []
    for commit in reversed(tree.commits):
        hash_tail = random.Random(commit.short).getrandbits(132)
        out += _entry(f"{commit.short}{hash_tail:033x}", AUTHORS[1], commit.at_ms, commit.subject, "", commit.rows)
    moment = 1_772_300_000_000
    for subject, body, modules in OLDER[: count - len(tree.commits)]:
        moment -= rng.randint(20_000, 260_000) * 1000
        rows = []
        for path in [f"src/quayside/{module}" for module in modules] + _tests(tree, modules):
            rows.append((path, rng.randint(3, 48), rng.randint(0, 16)))
        out += _entry(f"{rng.getrandbits(160):040x}", rng.choice(AUTHORS), moment, subject, body, rows)
    return "\n".join(out)


def _tests(tree: Tree, modules: list[str]) -> list[str]:
    names = {module.rpartition("/")[2] for module in modules}
    found = [
        path for path in tree.paths() if path.startswith("tests/test_") and path.removeprefix("tests/test_") in names
    ]
    return found or ["tests/conftest.py"]


def _entry(sha: str, author: str, at_ms: int, subject: str, body: str, rows: list[tuple[str, int, int]]) -> list[str]:
    date = f"{iso(at_ms)[:19].replace('T', ' ')} +0000"
    out = [f"commit {sha}", f"Author: {author}", f"Date:   {date}", "", f"    {subject}", ""]
    if body:
        out += [f"    {body}", ""]
    for path, added, removed in rows:
        scale = max(1, (added + removed) // 40 + 1)
        out.append(f" {path:<48} | {added + removed:3d} {'+' * (-(-added // scale))}{'-' * (removed // scale)}")
    totals = f"{sum(row[1] for row in rows)} insertions(+), {sum(row[2] for row in rows)} deletions(-)"
    return [*out, f" {len(rows)} files changed, {totals}", ""]
