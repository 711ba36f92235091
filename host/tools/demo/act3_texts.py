# ruff: noqa: E501  (texts are quoted as they stand in the session)
"""Texts that act 3 of the demo session quotes: files of the invented project, and outputs."""

BRANCH_SUMMARY = """The user explored a different conversation branch before returning here.
Summary of that exploration:

## Goal
Stop double bookings by locking the berth's row before checking for a conflict.

## Constraints & Preferences
- No change to the schema in this attempt

## Progress
### Done
- [x] `booking_repo.lock_berth` (SELECT ... FOR UPDATE on the berth) called from `BookingService.hold` before the check
- [x] Race probe: no double bookings in 20 rounds
### In Progress
- [ ] `move` locks two berths and deadlocked against `hold` in 2 of 20 rounds
### Blocked
- The office's availability query takes FOR SHARE on the same rows and now waits for every hold

## Key Decisions
- **Given up**: correct, but every writer of a berth queues behind the slowest, and lock order has to be kept by hand

## Next Steps
1. Undo the edits (`git checkout .`)
2. Let the database refuse overlaps instead

<read-files>
src/quayside/repositories/bookings.py
</read-files>

<modified-files>
src/quayside/services/bookings.py
</modified-files>"""

LOCK = '''async def lock_berth(db: AsyncSession, berth_id: int) -> None:
    """Wait until no other transaction books this berth."""
    await db.execute(select(Berth.id).where(Berth.id == berth_id).with_for_update())


async def find_overlapping('''

MIGRATION_TEXT = '''"""No two active bookings of a berth share a night.

Revision ID: 0013
Revises: 0012
"""

from __future__ import annotations

from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE EXTENSION IF NOT EXISTS btree_gist")
    # Exclusion constraints cannot be NOT VALID: the table is locked while the index is built (0.2 s on a full dump).
    op.execute(
        """
        ALTER TABLE bookings ADD CONSTRAINT bookings_no_overlap
        EXCLUDE USING gist (berth_id WITH =, daterange(arrival, departure, '[)') WITH &&)
        WHERE (state IN ('held', 'confirmed'))
        """
    )


def downgrade() -> None:
    op.execute("ALTER TABLE bookings DROP CONSTRAINT bookings_no_overlap")
'''

EXCLUDE = """        CheckConstraint("departure > arrival", name="bookings_stay_not_empty"),
        ExcludeConstraint(
            ("berth_id", "="),
            (func.daterange(text("arrival"), text("departure"), text("'[)'")), "&&"),
            where=text("state IN ('held', 'confirmed')"),
            using="gist",
            name="bookings_no_overlap",
        ),
"""

RACES_TEXT = '''"""What happens when two requests want the same berth at the same moment: real connections, real commits."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy.ext.asyncio import async_sessionmaker

from conftest import NOON, OWNER, days
from quayside.errors import BerthTaken
from quayside.models import Booking
from quayside.services.bookings import BookingRequest, BookingService

pytestmark = [pytest.mark.db, pytest.mark.slow]


@pytest.fixture
async def contenders(committed, settings):
    """Eight services, each with a connection of its own, and the request that all of them send."""
    sessions = async_sessionmaker(committed.engine, expire_on_commit=False)
    arrival, departure = days("2026-06-01", "2026-06-05")
    request = BookingRequest(committed.berth_id, committed.vessel_id, OWNER, arrival, departure)

    async def attempt():
        async with sessions() as db:
            booking = await BookingService(db, settings, now=NOON).hold(request)
            await db.commit()
            return booking

    return [attempt] * 8


async def test_of_many_equal_requests_one_wins(contenders):
    results = await asyncio.gather(*(attempt() for attempt in contenders), return_exceptions=True)
    assert sum(isinstance(result, Booking) for result in results) == 1
    assert sum(isinstance(result, BerthTaken) for result in results) == len(contenders) - 1


async def test_the_losers_leave_no_event_behind(contenders, committed):
    await asyncio.gather(*(attempt() for attempt in contenders), return_exceptions=True)
    assert await committed.count_events("booking.held") == 1


async def test_moving_onto_a_berth_that_is_being_booked_is_refused_cleanly(contenders, committed, settings):
    mover = committed.mover(settings)
    results = await asyncio.gather(contenders[0](), mover(), return_exceptions=True)
    assert sorted(type(result).__name__ for result in results) == ["BerthTaken", "Booking"]
'''

COMMITTED = """@pytest.fixture
async def office(client"""

COMMITTED_TEXT = '''@dataclass
class Committed:
    """Rows that other connections can see; the fixture removes them again."""

    engine: AsyncEngine
    berth_id: int
    spare_berth_id: int
    vessel_id: int

    async def count_events(self, kind: str) -> int:
        async with AsyncSession(self.engine) as db:
            statement = select(func.count()).select_from(OutboxEvent).where(OutboxEvent.kind == kind)
            return await db.scalar(statement) or 0

    def mover(self, settings: Settings) -> Callable[[], Awaitable[Booking]]:
        """Moves a booking for the same nights from the spare berth to the contested one."""

        async def move() -> Booking:
            async with AsyncSession(self.engine, expire_on_commit=False) as db:
                arrival, departure = days("2026-06-01", "2026-06-05")
                service = BookingService(db, settings, now=NOON)
                wish = BookingRequest(self.spare_berth_id, self.vessel_id, OWNER, arrival, departure)
                booking = await service.hold(wish)
                await db.commit()
                moved = await service.move(booking.id, berth_id=self.berth_id)
                await db.commit()
                return moved

        return move


@pytest.fixture
async def committed(settings: Settings) -> AsyncIterator[Committed]:
    engine = create_async_engine(str(settings.database_url), pool_size=10)
    async with seeded(engine) as ids:
        yield Committed(engine, **ids)
    await engine.dispose()


@pytest.fixture
async def office(client'''

INSERT_OLD = """        self._db.add(booking)
        await self._db.flush()
        await notify.enqueue(self._db, "booking.held", booking_id=booking.id, berth=berth.label)
"""

INSERT_NEW = """        try:
            async with self._db.begin_nested():
                self._db.add(booking)
        except IntegrityError as error:
            raise _taken_or(error, request.berth_id, request.arrival, request.departure) from error
        await notify.enqueue(self._db, "booking.held", booking_id=booking.id, berth=berth.label)
"""

MOVE_OLD = """        booking.berth_id = berth.id
        await self._db.flush()
"""

MOVE_NEW = """        arrival, departure = booking.arrival, booking.departure
        try:
            async with self._db.begin_nested():
                booking.berth_id = berth.id
        except IntegrityError as error:
            raise _taken_or(error, berth_id, arrival, departure) from error
"""

TAKEN_OR = """@dataclass(frozen=True, slots=True)
class BookingRequest:"""

TAKEN_OR_TEXT = '''def _taken_or(error: IntegrityError, berth_id: int, arrival: date, departure: date) -> Exception:
    """BerthTaken when the database refused an overlap, else the error itself."""
    if "bookings_no_overlap" in str(error.orig):
        return BerthTaken(berth_id, arrival, departure)
    return error


@dataclass(frozen=True, slots=True)
class BookingRequest:'''

CHECK_FAILS = """restoring dumps/anonymised-2026-03-01.pgc into quayside_check ... 30.8 s
current revision: 0011
upgrade 0011 -> 0012  Answers already given, so that a retried request gets the same one.       4 ms
upgrade 0012 -> 0013  No two active bookings of a berth share a night.
  CREATE EXTENSION btree_gist                         lock: none                                 11 ms
  ALTER TABLE bookings ADD CONSTRAINT ...             lock: AccessExclusiveLock bookings         failed
asyncpg.exceptions.ExclusionViolationError: could not create exclusion constraint "bookings_no_overlap"
DETAIL:  Key (berth_id, daterange(arrival, departure, '[)'::text))=(37, [2025-07-12,2025-07-19)) conflicts with key
(berth_id, daterange(arrival, departure, '[)'::text))=(37, [2025-07-14,2025-07-16)).
failed: quayside_check left at revision 0012
"""

CHECK_PASSES = """closed 7 younger duplicates (no payment, same owner, same nights)
left alone, to be decided by the office: 4 pairs
  B11 2025-07-12/2025-07-19 with 2025-07-14/2025-07-16
  C14 2026-02-28/2026-03-03 with 2026-02-28/2026-03-02
  D02 2025-08-01/2025-08-09 with 2025-08-08/2025-08-10
  F21 2025-06-20/2025-06-22 with 2025-06-21/2025-06-24
check database only: cancelled the younger of these 4 pairs
current revision: 0012
upgrade 0012 -> 0013  No two active bookings of a berth share a night.
  CREATE EXTENSION btree_gist                         lock: none                                 10 ms
  ALTER TABLE bookings ADD CONSTRAINT ...             lock: AccessExclusiveLock bookings        212 ms
downgrade 0013 -> 0012                                                                            3 ms
upgrade 0012 -> 0013                                                                            219 ms
ok: longest lock on a table in use 219 ms
"""

CLOSE_DUPLICATES = '''"""Cancels the younger of two holds with the same berth, owner and nights, and lists every other overlap.

Run once before migration 0013. Prints what it does; --dry-run only prints.
"""

from __future__ import annotations

import argparse
import asyncio

import asyncpg

PAIRS = """
    SELECT b.pontoon || lpad(b.number::text, 2, '0') AS berth, old.id AS old_id, new.id AS new_id, old.arrival, old.departure,
           new.arrival AS new_arrival, new.departure AS new_departure,
           old.owner_id = new.owner_id AND old.arrival = new.arrival AND old.departure = new.departure AS duplicate
    FROM bookings old
    JOIN bookings new ON new.berth_id = old.berth_id AND new.created_at > old.created_at
     AND daterange(new.arrival, new.departure) && daterange(old.arrival, old.departure)
    JOIN berths b ON b.id = old.berth_id
    WHERE old.state IN ('held', 'confirmed') AND new.state IN ('held', 'confirmed')
    ORDER BY berth, old.arrival
"""


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dsn", required=True)
    parser.add_argument("--dry-run", action="store_true")
    options = parser.parse_args()
    connection = await asyncpg.connect(database=options.dsn)
    async with connection.transaction():
        pairs = await connection.fetch(PAIRS)
        younger = [pair["new_id"] for pair in pairs if pair["duplicate"]]
        if not options.dry_run:
            await connection.execute("UPDATE bookings SET state = 'cancelled' WHERE id = ANY($1)", younger)
        print(f"closed {len(younger)} younger duplicates (no payment, same owner, same nights)")
        others = [pair for pair in pairs if not pair["duplicate"]]
        print(f"left alone, to be decided by the office: {len(others)} pairs")
        for pair in others:
            print(f"  {pair['berth']} {pair['arrival']}/{pair['departure']} with {pair['new_arrival']}/{pair['new_departure']}")


asyncio.run(main())
'''
