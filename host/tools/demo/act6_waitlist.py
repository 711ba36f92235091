# ruff: noqa: E501  (texts are quoted as they stand in the session)
"""The waiting list: work that is half done when the session ends."""

from __future__ import annotations

from demo import suite
from demo.desk import Desk

WAITLIST, NOTIFY, JOB = "src/quayside/services/waitlist.py", "src/quayside/notify.py", "src/quayside/jobs/expiry.py"
SERVICE, MODELS, ERRORS = "src/quayside/services/bookings.py", "src/quayside/models.py", "src/quayside/errors.py"
TESTS, MIGRATION = "tests/test_offers.py", "migrations/versions/0015_waitlist_offers.py"

OFFER_MODEL = '''class WaitlistOffer(Base):
    """A berth offered to an entry of the waiting list, good until ``expires_at``. At most one open offer per entry."""

    __tablename__ = "waitlist_offers"
    __table_args__ = (
        Index("waitlist_offers_open", "entry_id", unique=True, postgresql_where=text("settled_at IS NULL")),
        Index("waitlist_offers_by_end", "expires_at", postgresql_where=text("settled_at IS NULL")),
    )

    id: Mapped[UUID] = mapped_column(PgUUID(as_uuid=True), primary_key=True, default=uuid4)
    entry_id: Mapped[UUID] = mapped_column(ForeignKey("waitlist_entries.id"))
    booking_id: Mapped[UUID] = mapped_column(ForeignKey("bookings.id"))
    expires_at: Mapped[datetime] = mapped_column(DateTime(timezone=True))
    settled_at: Mapped[datetime | None] = mapped_column(DateTime(timezone=True))
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


class IdempotencyKey(Base):'''

MIGRATION_TEXT = '''"""Offers to the waiting list.

Revision ID: 0015
Revises: 0014
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

OPEN = sa.text("settled_at IS NULL")


def upgrade() -> None:
    op.create_table(
        "waitlist_offers",
        sa.Column("id", postgresql.UUID(as_uuid=True), primary_key=True),
        sa.Column("entry_id", postgresql.UUID(as_uuid=True), sa.ForeignKey("waitlist_entries.id"), nullable=False),
        sa.Column("booking_id", postgresql.UUID(as_uuid=True), sa.ForeignKey("bookings.id"), nullable=False),
        sa.Column("expires_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("settled_at", sa.DateTime(timezone=True)),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
    )
    op.create_index("waitlist_offers_open", "waitlist_offers", ["entry_id"], unique=True, postgresql_where=OPEN)
    op.create_index("waitlist_offers_by_end", "waitlist_offers", ["expires_at"], postgresql_where=OPEN)


def downgrade() -> None:
    op.drop_table("waitlist_offers")
'''

TESTS_TEXT = '''"""A berth that becomes free is offered to the first fitting entry of the waiting list."""

from __future__ import annotations

from datetime import timedelta

import pytest

from conftest import NOON, OTHER_OWNER, days
from quayside.jobs import expiry
from quayside.models import BookingState

pytestmark = pytest.mark.db


async def test_a_cancelled_booking_is_offered_to_the_first_who_fits(service, request_for, waiting, offers):
    booking = await service.hold(request_for())
    first = await waiting("2026-06-02", "2026-06-04")
    await waiting("2026-06-01", "2026-06-05")
    await service.cancel(booking.id)
    [offer] = await offers()
    assert (offer.entry_id, offer.expires_at) == (first.id, NOON + timedelta(hours=2))


async def test_the_offered_berth_is_held_for_the_length_of_the_offer(service, request_for, waiting, offers, booking_of):
    booking = await service.hold(request_for())
    await waiting("2026-06-02", "2026-06-04")
    await service.cancel(booking.id)
    held = await booking_of((await offers())[0])
    assert (held.state, held.owner_id) == (BookingState.HELD, OTHER_OWNER)
    assert (held.arrival, held.departure) == days("2026-06-02", "2026-06-04")


async def test_an_entry_that_does_not_fit_gets_no_offer(service, request_for, waiting, offers):
    booking = await service.hold(request_for())
    await waiting("2026-06-02", "2026-06-04", length_cm=1350)
    await service.cancel(booking.id)
    assert await offers() == []


async def test_an_expired_hold_is_offered_too(service, request_for, waiting, offers, sessions, settings):
    await service.hold(request_for())
    await waiting("2026-06-02", "2026-06-04")
    await expiry.run(sessions, settings)
    assert len(await offers()) == 1


async def test_an_offer_that_runs_out_goes_to_the_next(service, request_for, waiting, offers, sessions, settings):
    booking = await service.hold(request_for())
    await waiting("2026-06-02", "2026-06-04")
    second = await waiting("2026-06-01", "2026-06-05")
    await service.cancel(booking.id)
    await expiry.run(sessions, settings)
    assert [offer.entry_id for offer in await offers()] == [second.id]
'''

OFFER = '''    async def offer(self, free: FreeStay, hold: Hold) -> WaitlistOffer | None:
        """Offer a berth that became free to the first who fits, and hold it for as long as the offer is good.

        ``hold`` places the hold, so that prices, checks and the database's own refusal are those of any booking.
        None when nobody fits, or when somebody was faster than we are.
        """
        for entry in await self.candidates(free):
            if await waitlist_repo.open_offer(self._db, entry.id) is not None:
                continue
            try:
                booking = await hold(entry, OFFER_LIFETIME)
            except BerthTaken:
                return None
            offer = WaitlistOffer(
                entry_id=entry.id, booking_id=booking.id, expires_at=self._now + OFFER_LIFETIME
            )
            self._db.add(offer)
            await self._db.flush()
            await notify.enqueue(self._db, "waitlist.offered", entry_id=entry.id, booking_id=booking.id)
            log.info("berth offered", entry=str(entry.id), berth=free.berth.label)
            return offer
        return None


def fits('''


def play(desk: Desk) -> None:
    writer, tree, rng = desk.writer, desk.tree, desk.rng
    writer.append("thinking_level_change", thinkingLevel="high")
    desk.user(
        "Great. Last thing on my list, and the one the harbours ask for most: the waiting list should work by itself. When a booking "
        "is cancelled or a hold expires, the first entry that fits gets an offer good for two hours, and the berth is held for them "
        "meanwhile. When the offer runs out, the next one gets it. See ARCHITECTURE.md. Please get as far as you can, I'm off at five.",
        after=(22_000, 23_000),
    )
    desk.turn(
        "What there is: the list, the outbox, and the two places where a berth becomes free.",
        desk.read(WAITLIST),
        desk.read(NOTIFY),
        desk.read(JOB),
        thinking="Two triggers: BookingService.cancel and the expiry job. The offer needs a hold in the name of the waiting skipper, "
        "priced like any hold. waitlist must not import bookings if bookings is to call waitlist: pass a callable.",
    )
    desk.turn(
        "", desk.grep("candidates|FreeStay|waitlist", "src/quayside", context=2), desk.ls("src/quayside/repositories")
    )
    desk.turn(
        "Five tests that say what you asked for, and the table.",
        desk.write(TESTS, TESTS_TEXT),
        desk.edit(MODELS, ("class IdempotencyKey(Base):", OFFER_MODEL)),
        desk.write(MIGRATION, MIGRATION_TEXT),
    )
    desk.turn(
        "Now the service: choosing whom to offer to, with the hold placed by a callable so that the layers stay as they are.",
        desk.edit(
            WAITLIST,
            ("def fits(", OFFER),
            (
                "MAX_OPEN_ENTRIES_PER_OWNER = 5\n",
                (
                    "MAX_OPEN_ENTRIES_PER_OWNER = 5\nOFFER_LIFETIME = timedelta(hours=2)\n\n"
                    "Hold = Callable[[WaitlistEntry, timedelta], Awaitable[Booking]]\n"
                ),
            ),
            ("from collections.abc import Sequence\n", "from collections.abc import Awaitable, Callable, Sequence\n"),
            ("from datetime import UTC, date, datetime\n", "from datetime import UTC, date, datetime, timedelta\n"),
            ("import QuaysideError, StayNotAllowed\n", "import BerthTaken, QuaysideError, StayNotAllowed\n"),
            ("import Berth, Vessel, WaitlistEntry\n", "import Berth, Booking, Vessel, WaitlistEntry, WaitlistOffer\n"),
        ),
        desk.edit(
            NOTIFY, ('        "waitlist.joined",\n', '        "waitlist.joined",\n        "waitlist.offered",\n')
        ),
    )
    desk.turn("", desk.read(SERVICE, offset=118, limit=62))
    desk.turn(
        "Cancelling is the first trigger.",
        desk.edit(
            SERVICE,
            (
                '        log.info("booking cancelled", booking=str(booking.id), refund_cents=refund, by_office=by_office)\n        return booking\n',
                (
                    '        log.info("booking cancelled", booking=str(booking.id), refund_cents=refund, by_office=by_office)\n'
                    "        free = waitlist.FreeStay(berth, max(booking.arrival, today), booking.departure)\n"
                    "        await waitlist.WaitlistService(self._db, now=self._now).offer(free, self._hold_for(berth))\n"
                    "        return booking\n"
                ),
            ),
            (
                "    async def _get(self, booking_id",
                (
                    "    def _hold_for(self, berth: Berth) -> waitlist.Hold:\n"
                    '        """Places holds on a berth for entries of the waiting list."""\n\n'
                    "        async def place(entry: WaitlistEntry, lifetime: timedelta) -> Booking:\n"
                    "            wish = BookingRequest(berth.id, entry.vessel_id, entry.owner_id, entry.arrival, entry.departure)\n"
                    "            return await self.hold(wish, lifetime=lifetime)\n\n"
                    "        return place\n\n"
                    "    async def _get(self, booking_id"
                ),
            ),
            (
                "    async def hold(self, request: BookingRequest) -> Booking:\n",
                "    async def hold(self, request: BookingRequest, *, lifetime: timedelta | None = None) -> Booking:\n",
            ),
            (
                "hold_expires_at=self._now + timedelta(minutes=self._settings.hold_minutes),",
                "hold_expires_at=self._now + (lifetime or timedelta(minutes=self._settings.hold_minutes)),",
            ),
            ("from quayside.services import tariffs\n", "from quayside.services import tariffs, waitlist\n"),
            (
                "import ACTIVE_STATES, Berth, Booking, BookingState, Vessel\n",
                "import ACTIVE_STATES, Berth, Booking, BookingState, Vessel, WaitlistEntry\n",
            ),
        ),
    )
    names = ("test_an_expired_hold_is_offered_too", "test_an_offer_that_runs_out_goes_to_the_next")
    failures = [
        suite.Failure(
            f"{TESTS}::{names[0]}",
            [suite.Frame(TESTS, names[0], "assert len(await offers()) == 1")],
            "AssertionError: assert 0 == 1\n +  where 0 = len([])",
        ),
        suite.Failure(
            f"{TESTS}::{names[1]}",
            [suite.Frame(TESTS, names[1], "== [second.id]", {"second": "<WaitlistEntry 2026-06-01/2026-06-05>"})],
            "AssertionError: assert [] == [UUID('0e6f9a5c-...')]\n  Right contains one more item: UUID('0e6f9a5c-7f0e-4f7c-bb0a-5f1d2f6c9d10')",
        ),
    ]
    desk.turn(
        "",
        desk.bash(
            f"uv run pytest {TESTS} 2>&1 | tail -70", suite.run(tree, rng, under=TESTS, failures=failures), seconds=5
        ),
    )
    desk.turn(
        "",
        desk.bash(
            "git add -A && git commit -qm 'WIP: offers to the waiting list (cancelling works, expiry does not)' && git status -sb | head -3",
            "## waiting-list-offers\n",
        ),
    )
    tree.commit("c48e1b9", "WIP: offers to the waiting list (cancelling works, expiry does not)", desk.writer.now)
    desk.turn(
        "It is nearly five, so here is where it stands, on the branch `waiting-list-offers`:\n\n"
        "**Works** (3 of 5 tests): a cancelled booking is offered to the first entry that fits; the berth is held in that skipper's "
        "name for two hours at the normal price; nobody gets two open offers.\n\n"
        "**Missing**:\n"
        "1. `jobs/expiry.py`: `release_expired` only returns ids. It has to return berth and dates too, and the job must call "
        "`WaitlistService.offer` for each, in the same transaction.\n"
        "2. An offer that runs out: when the released booking belongs to an offer, set `settled_at`, skip that entry, and offer to the next.\n"
        "3. Confirming an offered booking must close the entry (`closed_at`) and settle the offer; there is no test for it yet.\n"
        "4. `docs/API.md` and `docs/ARCHITECTURE.md` still say that the office phones people; migration 0015 has not been through "
        "`make migrate-check`.\n\n"
        "One question for tomorrow: if a skipper lets an offer run out, do they keep their place in the list, or go to the end?"
    )
