# ruff: noqa: E501  (texts are quoted as they stand in the session)
"""Before the compaction: getting to know the project, and deposits in whole euros."""

from __future__ import annotations

from demo import history, suite
from demo.desk import Desk
from demo.prompt import system_message
from demo.writer import MODEL, PROVIDER, priced

SERVICE, TARIFFS = "src/quayside/services/bookings.py", "src/quayside/services/tariffs.py"
TESTS = "tests/test_bookings.py"

SUMMARY = """## Goal
Work through the developer's list on Quayside (berth bookings for small harbours, FastAPI + SQLAlchemy + Postgres): deposits in \
whole euros (done), then idempotent booking creation, double bookings, a list that stays fast, and the waiting list.

## Constraints & Preferences
- Rules belong in `services/`, HTTP in `api/`, SQL in `repositories/`; `tests/test_layers.py` enforces it
- Money is integer cents; dates of a stay are harbour-local and half-open; only `tariffs.local_date` converts instants
- Every client-visible error needs a stable `code`, a row in `api/errors.py` and one in `docs/API.md`
- Test names are sentences; no mocks of our own code; migrations follow the `db-migration` skill
- The developer wants small commits and to be shown real output, not a paraphrase

## Progress
### Done
- [x] Read README, ARCHITECTURE, the booking and tariff services and their tests
- [x] Deposits are rounded up to whole euros: `tariffs.deposit_cents(total_cents, percent)`, used by `BookingService.hold`
- [x] Tests adapted (2560 became 2600 cents); whole suite green
- [x] Committed as "Deposits: whole euros, rounded up"

### In Progress
- [ ] Idempotency-Key on `POST /v1/bookings`: just requested, nothing written yet

### Blocked
- (none)

## Key Decisions
- **Rounding lives in tariffs**: the service asks for a deposit and does not know how it is rounded
- **Refunds unchanged**: half a deposit may still be an odd number of cents; the office accepts that

## Next Steps
1. Idempotency keys for booking creation (see the request that follows)
2. Look into the double bookings that the office reports since the season opened
3. The office's list is slow on late pages

## Critical Context
- Baseline: all tests pass, about 15 s; `make migrate-check` works locally
- ARCHITECTURE.md admits a window between the conflict check and the insert in `BookingService.hold`
- Last migration is `0011_waitlist.py`

<read-files>
README.md
docs/ARCHITECTURE.md
</read-files>

<modified-files>
src/quayside/services/bookings.py
src/quayside/services/tariffs.py
tests/test_bookings.py
</modified-files>"""

DEPOSIT = '''def deposit_cents(total_cents: int, percent: int) -> int:
    """The deposit for a stay, rounded up to whole units of the currency: the office's card terminal takes no cents."""
    return -(-total_cents * percent // 10_000) * 100


def refund_cents(booking: Booking, today: date) -> int:'''


def play(desk: Desk) -> None:
    writer, tree, rng = desk.writer, desk.tree, desk.rng
    writer.append("model_change", provider=PROVIDER, modelId=MODEL)
    writer.append("thinking_level_change", thinkingLevel="medium")
    writer.wait(20, 30)
    writer.message("system", **system_message())
    desk.user(
        "Hi. You're new here: have a look around (README, architecture notes, how bookings and prices work) and tell me in a "
        "few lines what you think this is. After that there's a list of things to do, starting with deposits.",
        after=(0.01, 0.02),
    )
    writer.append(
        "custom",
        customType="tide-clock.state",
        data={"station": "pedra-alta", "highWater": ["05:41", "18:07"], "shown": True},
    )
    desk.turn(
        "I'll start with the documents and the tree.",
        desk.read("README.md"),
        desk.read("docs/ARCHITECTURE.md"),
        desk.bash("ls -RA --ignore=.git --ignore=.venv", tree.recursive_listing()),
    )
    desk.turn(
        "Now the two services that matter most, and the tests around them.",
        desk.read(SERVICE),
        desk.read(TARIFFS),
        desk.read(TESTS),
    )
    desk.turn(
        "",
        desk.bash("uv run pytest -v 2>&1 | tail -250", suite.run(tree, rng, verbose=True), seconds=15.2),
        desk.bash("git log --stat -12", history.git_log(tree, 12)),
    )
    desk.turn(
        "Quayside is the system of record for berth bookings in a few small harbours. A booking starts as a hold, becomes "
        "confirmed when the deposit is paid, and may be cancelled or moved. Prices are per night and metre from a tariff book "
        "per harbour; everything that leaves the system goes through an outbox. The layers are strict and tested.\n\n"
        "Two things I noticed: the architecture notes admit a race between the conflict check and the insert in `hold`, and "
        "the list for the office uses OFFSET. The suite is green. What about the deposits?"
    )
    writer.append("session_info", name="Quayside: deposits, retries, double bookings, waiting list")
    desk.user(
        "Good, that's right. Deposits: the card terminal in the office only takes whole euros, so round the deposit up to the "
        "next euro. Price stays exact. Tests first if you can."
    )
    desk.turn(
        "The arithmetic belongs in `tariffs`. I'll change the expectation first and watch it fail.",
        desk.edit(
            TESTS,
            ("assert booking.deposit_cents == 2560", "assert booking.deposit_cents == 2600"),
            ('match="2560 cents, 2559 were paid"', 'match="2600 cents, 2599 were paid"'),
            ("paid_cents=2559)\n    assert booking.state", "paid_cents=2599)\n    assert booking.state"),
        ),
        thinking="12 800 cents at 20 % is 2 560; rounded up to whole euros 2 600. Two tests name the figure.",
    )
    failing = suite.Failure(
        f"{TESTS}::test_a_hold_has_a_price_a_deposit_and_an_end",
        [suite.Frame(TESTS, "test_a_hold_has_a_price_a_deposit_and_an_end", "deposit_cents == 2600")],
        "AssertionError: assert 2560 == 2600\n +  where 2560 = <quayside.models.Booking object at 0x7f2c41b0d6d0>.deposit_cents",
    )
    desk.turn(
        "",
        desk.bash(
            f"uv run pytest {TESTS} -q 2>&1 | tail -60",
            suite.run(tree, rng, under=TESTS, failures=[failing]),
            seconds=3.1,
        ),
    )
    desk.turn(
        "It fails for the right reason. Now the code.",
        desk.edit(TARIFFS, ("def refund_cents(booking: Booking, today: date) -> int:", DEPOSIT)),
        desk.edit(
            SERVICE,
            (
                "deposit_cents=quote.total_cents * self._settings.deposit_percent // 100,",
                "deposit_cents=tariffs.deposit_cents(quote.total_cents, self._settings.deposit_percent),",
            ),
        ),
    )
    desk.turn(
        "", desk.bash("uv run pytest -v 2>&1 | tail -250", suite.run(tree, rng, verbose=True, durations=10), seconds=15)
    )
    desk.turn(
        "",
        desk.bash("git diff", tree.git_diff()),
        desk.bash(
            'git commit -qam "Deposits: whole euros, rounded up" && git log --oneline -1',
            "7c1e0f3 Deposits: whole euros, rounded up\n",
        ),
    )
    tree.commit("7c1e0f3", "Deposits: whole euros, rounded up", desk.writer.now)
    desk.turn(
        "Deposits are now rounded up to whole euros by `tariffs.deposit_cents`; the service just asks for it. All tests pass, "
        "committed as 7c1e0f3. Refunds are untouched: half of a deposit may still be an odd number of cents. Tell me if the "
        "terminal has a say there as well."
    )
    desk.marks["next request"] = desk.user(
        "No, refunds go by bank transfer. Next: the app retries POST /v1/bookings when the harbour wifi drops, and people end "
        "up with two holds on different berths or a 409 against their own hold. Add support for an Idempotency-Key header: "
        "same key and same body within 24 hours gives the original answer again (same status, same body), same key with a "
        "different body is a 422 with its own code. Keys are per owner. Without the header nothing changes."
    )


def compact_history(desk: Desk) -> None:
    """The developer types /compact: all before the last request becomes a summary."""
    writer = desk.writer
    before = writer.prompt_tokens()
    writer.wait(30, 45)
    usage = priced({"input": before - 2_140, "output": 743, "cacheRead": 0, "cacheWrite": 0})
    writer.append(
        "compaction",
        summary=SUMMARY,
        firstKeptEntryId=desk.marks["next request"],
        tokensBefore=before,
        details={
            "readFiles": ["README.md", "docs/ARCHITECTURE.md"],
            "modifiedFiles": [SERVICE, TARIFFS, TESTS],
        },
        usage=usage,
        systemMessage={"role": "system", **system_message(), "timestamp": writer.now},
    )
    writer.forget_cache()
