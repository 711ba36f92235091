# ruff: noqa: E501  (texts are quoted as they stand in the session)
"""Double bookings: the log, a probe, an attempt with row locks that is abandoned, and an exclusion constraint."""

from __future__ import annotations

from demo import outputs, suite
from demo.act3_texts import (
    BRANCH_SUMMARY,
    CHECK_FAILS,
    CHECK_PASSES,
    CLOSE_DUPLICATES,
    COMMITTED,
    COMMITTED_TEXT,
    EXCLUDE,
    INSERT_NEW,
    INSERT_OLD,
    LOCK,
    MIGRATION_TEXT,
    MOVE_NEW,
    MOVE_OLD,
    RACES_TEXT,
    TAKEN_OR,
    TAKEN_OR_TEXT,
)
from demo.desk import Desk
from demo.writer import priced

SERVICE, REPO, MODELS = (
    "src/quayside/services/bookings.py",
    "src/quayside/repositories/bookings.py",
    "src/quayside/models.py",
)
PROBE, MIGRATION, RACES = (
    "scripts/race_probe.py",
    "migrations/versions/0013_no_double_bookings.py",
    "tests/test_races.py",
)


def play(desk: Desk) -> None:
    writer, tree, rng = desk.writer, desk.tree, desk.rng
    desk.user(
        "Fine, the cleanup can wait. Now the ugly one: on Saturday two boats turned up for C14. Here is what I found:",
        after=(1500, 2100),
    )
    writer.now -= 1000
    desk.shell(
        "grep -c 'booking held' var/log/quayside-0228.jsonl; grep '\"C14\"' var/log/quayside-0228.jsonl | tail -4",
        "1873\n"
        + "\n".join(outputs.service_log(rng, 4, start_ms=1_772_270_000_000, doubles=True).split("\n")[-2:])
        + "\n",
    )
    full_log = outputs.service_log(rng, 110, start_ms=1_772_269_942_000, doubles=True)
    overflow = "ovf-" + writer.random_text("0123456789abcdefghjkmnpqrstvwxyz", 12)
    desk.turn(
        "Two holds for C14 a few milliseconds apart. I'll look at what surrounds them, and at the code path.",
        desk.bash(
            "awk '/09:1[2-4]:/' var/log/quayside-0228.jsonl",
            full_log + f"\n\n[110 of 2,731 lines shown. The full output is kept as overflow {overflow}.]",
            details={"overflow": {"id": overflow, "lines": 2731, "bytes": 498_112}},
        ),
        desk.read(SERVICE),
    )
    desk.turn(
        "",
        desk.read(REPO),
        desk.read(PROBE),
        desk.grep("FOR UPDATE|with_for_update|isolation", "src/quayside", context=3),
    )
    desk.turn(
        "The check and the insert are two statements at READ COMMITTED, as the architecture notes say. There is a probe script "
        "already, so I can reproduce it.",
        desk.bash("python scripts/race_probe.py --rounds 20", outputs.probe(rng, 20, allowed=True), seconds=11.4),
        thinking="Three candidates: SERIALIZABLE with retries, a row lock on the berth, an exclusion constraint. The constraint "
        "is the only one that holds for code that is not written yet.",
    )
    back = desk.turn(
        "Reproduced: in about half of the rounds more than one of sixteen identical requests gets a 201. Ways out, simplest "
        "first:\n\n1. lock the berth's row before checking: no schema change, but every writer must remember to do it;\n"
        "2. an exclusion constraint on (berth, nights) for active bookings: the database refuses, whoever writes;\n"
        "3. SERIALIZABLE with retries: touches every transaction.\n\nI would take the second. Which one do you want?"
    )
    writer.append("label", targetId=back, label="before the lock attempt")
    _row_locks(desk)
    writer.leaf = back
    writer.wait(40, 60)
    left = desk.marks["lock leaf"]
    writer.append(
        "branch_summary",
        fromId=left,
        summary=BRANCH_SUMMARY,
        details={"readFiles": [REPO], "modifiedFiles": [SERVICE]},
        usage=priced({"input": 9_312, "output": 318, "cacheRead": 0, "cacheWrite": 0}),
    )
    tree.files.update(tree.base)
    writer.forget_cache()
    desk.shell("git checkout . && git status --short", "Updated 2 paths from the index\n")
    desk.user(
        "OK, you were right, row locks are a mess: I threw the edits away. Do the exclusion constraint. Keep the check before it, "
        "the error message for the normal case is nicer that way. And I want a test with real connections.",
        after=(20, 60),
    )
    desk.turn(
        "Constraint, migration and a test that uses connections of its own. First the files as they are after your checkout.",
        desk.read(MODELS),
        desk.read("tests/conftest.py"),
        desk.read("migrations/versions/0012_idempotency_keys.py"),
    )
    desk.turn(
        "",
        desk.write(RACES, RACES_TEXT),
        desk.edit(
            "tests/conftest.py",
            (COMMITTED, COMMITTED_TEXT),
            ("from datetime import UTC", "from dataclasses import dataclass\nfrom datetime import UTC"),
            (
                "from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine\n",
                (
                    "from seeding import seeded\nfrom sqlalchemy import func, select\n"
                    "from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, AsyncSession, create_async_engine\n"
                ),
            ),
            ("import Base, Berth, Harbour, Vessel\n", "import Base, Berth, Booking, Harbour, OutboxEvent, Vessel\n"),
            (
                "from quayside.settings",
                "from quayside.services.bookings import BookingRequest, BookingService\nfrom quayside.settings",
            ),
        ),
    )
    desk.turn(
        "",
        desk.edit(
            MODELS,
            ('        CheckConstraint("departure > arrival", name="bookings_stay_not_empty"),\n', EXCLUDE),
            (
                "ForeignKey, Index, Integer, String, Text, func\n",
                "ForeignKey, Index, Integer, String, Text, func, text\n",
            ),
            (
                "from sqlalchemy.dialects.postgresql import JSONB\n",
                "from sqlalchemy.dialects.postgresql import JSONB, ExcludeConstraint\n",
            ),
        ),
        desk.write(MIGRATION, MIGRATION_TEXT),
    )
    error = (
        "sqlalchemy.exc.IntegrityError: (psycopg.errors.ExclusionViolation) conflicting key value violates exclusion constraint "
        "\"bookings_no_overlap\"\nDETAIL:  Key (berth_id, daterange(arrival, departure, '[)'::text))=(1, [2026-06-01,2026-06-05)) "
        "conflicts with existing key (berth_id, daterange(arrival, departure, '[)'::text))=(1, [2026-06-01,2026-06-05)).\n"
        "[SQL: INSERT INTO bookings (id, berth_id, vessel_id, owner_id, arrival, departure, state, hold_expires_at, price_cents, "
        "deposit_cents, note) VALUES ($1::UUID, $2::INTEGER, $3::INTEGER, $4::UUID, $5::DATE, $6::DATE, $7::booking_state, ...)]"
    ).replace("psycopg.errors.ExclusionViolation", "asyncpg.exceptions.ExclusionViolationError")
    failures = [
        suite.Failure(
            f"{RACES}::test_of_many_equal_requests_one_wins",
            [
                suite.Frame(
                    RACES,
                    "test_of_many_equal_requests_one_wins",
                    "isinstance(result, BerthTaken)",
                    {
                        "results": "[<Booking held B07>, IntegrityError(...), IntegrityError(...), IntegrityError(...), ...]"
                    },
                )
            ],
            "AssertionError: assert 0 == (8 - 1)\n +  where 0 = sum(<generator object test_of_many_equal_requests_one_wins.<locals>.<genexpr>>)",
        ),
        suite.Failure(
            f"{RACES}::test_moving_onto_a_berth_that_is_being_booked_is_refused_cleanly",
            [
                suite.Frame(
                    RACES, "test_moving_onto_a_berth_that_is_being_booked_is_refused_cleanly", "assert sorted(type"
                ),
                suite.Frame(
                    SERVICE,
                    "move",
                    "await self._db.flush()",
                    {"berth": "<Berth B07>", "booking": "<Booking held B08>", "taken": "[]"},
                ),
            ],
            error,
        ),
    ]
    desk.turn(
        "Before I touch the service: what do the tests say with the constraint alone?",
        desk.bash(
            f"uv run pytest {RACES} --tb=long --showlocals 2>&1 | tail -190",
            suite.run(tree, rng, under=RACES, failures=failures, durations=5),
            seconds=5.5,
        ),
    )
    desk.turn(
        "As expected: no double booking any more, but the losers see an IntegrityError. The service should say BerthTaken, and "
        "undo only its own insert.",
        desk.edit(
            SERVICE,
            (INSERT_OLD, INSERT_NEW),
            (MOVE_OLD, MOVE_NEW),
            (TAKEN_OR, TAKEN_OR_TEXT),
            ("import structlog\n", "import structlog\nfrom sqlalchemy.exc import IntegrityError\n"),
        ),
        thinking="A savepoint around the insert: the outer transaction (with the idempotency claim) must survive, or the answer "
        "to the refusal could not be written by a caller that wants to.",
    )
    desk.turn(
        "",
        desk.bash("uv run pytest -v 2>&1 | tail -260", suite.run(tree, rng, verbose=True), seconds=18),
        desk.bash("python scripts/race_probe.py --rounds 30", outputs.probe(rng, 30, allowed=False), seconds=14),
        desk.bash("make migrate-check", CHECK_FAILS, seconds=39),
    )
    desk.turn(
        "The code is right, but the migration cannot run on the dump: there are overlaps in it already. Which ones?",
        desk.bash("psql -X quayside_check -f scripts/overlaps.sql", _overlaps(desk), seconds=0.9),
    )
    desk.turn(
        "Eleven pairs, all from the last two seasons, seven of them with identical owner and dates: the app's retries. Those are "
        "safe to close (the younger hold becomes `cancelled`, nothing was paid). The other four are real double bookings that "
        "somebody must decide. I can write a script that cancels the seven and lists the four. Shall I?"
    )
    desk.user("Yes, but not in the migration. The four I'll sort out with the office today. Commit the rest.")
    desk.turn("", desk.write("scripts/close_duplicates.py", CLOSE_DUPLICATES))
    desk.turn(
        "",
        desk.bash(
            "python scripts/close_duplicates.py --dsn quayside_check && make migrate-check", CHECK_PASSES, seconds=44
        ),
        desk.bash(
            "git add -A && git diff --cached --stat && git diff --cached -- src tests",
            outputs.stat(tree) + "\n" + tree.git_diff("src") + tree.git_diff("tests"),
        ),
        desk.bash(
            'git commit -qm "Bookings: the database refuses overlapping stays" && git log --oneline -1',
            "b1f52ac Bookings: the database refuses overlapping stays\n",
        ),
    )
    tree.commit("b1f52ac", "Bookings: the database refuses overlapping stays", desk.writer.now)
    desk.turn(
        "Committed as b1f52ac. With the seven duplicates closed (and the four others cancelled in the check database only) the "
        "migration holds its lock for 212 ms. Thirty rounds of the probe: exactly one 201 each. Remember that the deployment "
        "needs `close_duplicates.py` and your four decisions before `0013`."
    )


def _row_locks(desk: Desk) -> None:
    """The side path: ten entries that the final branch does not contain."""
    tree, rng = desk.tree, desk.rng
    desk.user("Try the first one, I'd rather not touch the schema in the season.")
    desk.turn("A lock on the berth's row, taken before the check.", desk.read(REPO))
    desk.turn(
        "",
        desk.edit(REPO, ("async def find_overlapping(", LOCK)),
        desk.edit(
            SERVICE,
            (
                "        self._check_fit(berth, vessel)\n\n        taken",
                "        self._check_fit(berth, vessel)\n\n        await booking_repo.lock_berth(self._db, berth.id)\n        taken",
            ),
        ),
    )
    desk.turn(
        "", desk.bash("python scripts/race_probe.py --rounds 20", outputs.probe(rng, 20, allowed=False), seconds=19)
    )
    deadlock = (
        "round  6 move/hold: DeadlockDetectedError: deadlock detected\nDETAIL:  Process 4411 waits for ShareLock on transaction "
        "90177; blocked by process 4409.\nProcess 4409 waits for ShareLock on transaction 90178; blocked by process 4411.\n"
        "HINT:  See server log for query details.\nround 13 move/hold: DeadlockDetectedError: deadlock detected\n18 of 20 rounds ok\n"
    )
    desk.turn(
        "No doubles. `move` needs the same lock, on two berths:",
        desk.bash("python scripts/race_probe.py --with-moves", deadlock, seconds=23),
    )
    desk.marks["lock leaf"] = desk.turn(
        "Holding is safe now, but moves deadlock against holds in 2 of 20 rounds, and the availability query of the office waits "
        "behind every hold. I could order the locks, but each new writer would have to know. I'd stop here."
    )
    assert tree.files != tree.base


def _overlaps(desk: Desk) -> str:
    rng = desk.rng
    head = " berth | first                                | second                               | nights in common | same owner | state"
    rows = [head, "-" * 8 + "+" + "-" * 38 + "+" + "-" * 38 + "+" + "-" * 18 + "+" + "-" * 12 + "+" + "-" * 22]
    for number in range(11):
        label = f"{rng.choice(outputs.PONTOONS)}{rng.randint(1, 28):02d}"
        same = "t" if number < 7 else "f"
        states = "held / held" if number < 7 else "confirmed / held"
        first, second = outputs.an_id(rng), outputs.an_id(rng)
        rows.append(f" {label:<5} | {first} | {second} | {rng.randint(1, 6):16d} | {same:<10} | {states}")
    return "\n".join([*rows, "(11 rows)\n"])
