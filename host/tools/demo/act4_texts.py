# ruff: noqa: E501  (texts are quoted as they stand in the session)
"""Texts that act 4 of the demo session quotes: files of the invented project, and outputs."""

PLAN_BEFORE = """                                                                 QUERY PLAN
---------------------------------------------------------------------------------------------------------------------------------------------
 Limit  (cost=2871.44..2871.57 rows=50 width=311) (actual time=412.806..412.841 rows=50 loops=1)
   Buffers: shared hit=1204 read=3877, temp read=411 written=643
   ->  Sort  (cost=2850.44..2871.48 rows=8417 width=311) (actual time=404.117..411.902 rows=8400 loops=1)
         Sort Key: bookings.created_at DESC
         Sort Method: external merge  Disk: 3288kB
         Buffers: shared hit=1204 read=3877, temp read=411 written=643
         ->  Hash Join  (cost=41.37..1187.92 rows=8417 width=311) (actual time=2.913..371.260 rows=8417 loops=1)
               Hash Cond: (bookings.vessel_id = vessels.id)
               Buffers: shared hit=1204 read=3877
               ->  Hash Join  (cost=9.12..1033.46 rows=8417 width=252) (actual time=1.144..351.718 rows=8417 loops=1)
                     Hash Cond: (bookings.berth_id = berths.id)
                     Buffers: shared hit=1190 read=3877
                     ->  Seq Scan on bookings  (cost=0.00..911.40 rows=41240 width=214) (actual time=0.021..318.444 rows=41240 loops=1)
                           Buffers: shared hit=1184 read=3877
                     ->  Hash  (cost=7.02..7.02 rows=168 width=38) (actual time=0.297..0.298 rows=168 loops=1)
                           Buckets: 1024  Batches: 1  Memory Usage: 20kB
                           ->  Seq Scan on berths  (cost=0.00..7.02 rows=168 width=38) (actual time=0.016..0.188 rows=168 loops=1)
                                 Filter: (harbour_id = 2)
                                 Rows Removed by Filter: 254
               ->  Hash  (cost=22.00..22.00 rows=820 width=59) (actual time=1.733..1.734 rows=820 loops=1)
                     Buckets: 1024  Batches: 1  Memory Usage: 86kB
                     ->  Seq Scan on vessels  (cost=0.00..22.00 rows=820 width=59) (actual time=0.011..0.804 rows=820 loops=1)
 Planning:
   Buffers: shared hit=31
 Planning Time: 0.911 ms
 Execution Time: 414.370 ms
(26 rows)

                                                         QUERY PLAN
----------------------------------------------------------------------------------------------------------------------------
 Aggregate  (cost=1054.51..1054.52 rows=1 width=8) (actual time=338.214..338.216 rows=1 loops=1)
   ->  Hash Join  (cost=9.12..1033.46 rows=8417 width=0) (actual time=0.902..336.740 rows=8417 loops=1)
         Hash Cond: (bookings.berth_id = berths.id)
         ->  Seq Scan on bookings  (cost=0.00..911.40 rows=41240 width=4) (actual time=0.018..312.086 rows=41240 loops=1)
         ->  Hash  (cost=7.02..7.02 rows=168 width=4) (actual time=0.271..0.272 rows=168 loops=1)
               ->  Seq Scan on berths  (cost=0.00..7.02 rows=168 width=4) (actual time=0.013..0.166 rows=168 loops=1)
                     Filter: (harbour_id = 2)
                     Rows Removed by Filter: 254
 Planning Time: 0.344 ms
 Execution Time: 338.301 ms
(10 rows)
"""

PLAN_AFTER = """                                                                        QUERY PLAN
----------------------------------------------------------------------------------------------------------------------------------------------------------
 Limit  (cost=0.87..61.22 rows=51 width=311) (actual time=0.094..1.377 rows=51 loops=1)
   Buffers: shared hit=377
   ->  Nested Loop  (cost=0.87..9961.03 rows=8417 width=311) (actual time=0.093..1.363 rows=51 loops=1)
         ->  Nested Loop  (cost=0.58..7283.30 rows=8417 width=252) (actual time=0.071..1.106 rows=51 loops=1)
               ->  Index Scan Backward using bookings_by_creation on bookings  (cost=0.29..3817.20 rows=41240 width=214) (actual time=0.044..0.548 rows=233 loops=1)
                     Index Cond: (ROW(created_at, id) < ROW('2025-07-30 11:20:04.118+00'::timestamptz, 'b74f3c60-96f0-4d0c-8a8e-52d8b2f0f1aa'::uuid))
               ->  Memoize  (cost=0.28..0.30 rows=1 width=38) (actual time=0.002..0.002 rows=0 loops=233)
                     Cache Key: bookings.berth_id
                     Hits: 171  Misses: 62  Evictions: 0  Overflows: 0  Memory Usage: 9kB
                     ->  Index Scan using berths_pkey on berths  (cost=0.27..0.29 rows=1 width=38) (actual time=0.003..0.003 rows=0 loops=62)
                           Index Cond: (id = bookings.berth_id)
                           Filter: (harbour_id = 2)
         ->  Index Scan using vessels_pkey on vessels  (cost=0.28..0.32 rows=1 width=59) (actual time=0.004..0.004 rows=1 loops=51)
               Index Cond: (id = bookings.vessel_id)
 Planning Time: 0.702 ms
 Execution Time: 1.448 ms
(16 rows)
"""

CURSOR_TEXT = '''"""Opaque cursors: where a page ended, in a form that clients cannot be tempted to build themselves."""

from __future__ import annotations

import base64
import binascii
import json
from datetime import datetime
from uuid import UUID

from quayside.errors import BadCursor
from quayside.repositories.bookings import Position


def encode(position: Position) -> str:
    raw = json.dumps([position.created_at.isoformat(), str(position.id)], separators=(",", ":"))
    return base64.urlsafe_b64encode(raw.encode()).decode().rstrip("=")


def decode(text: str) -> Position:
    """Raises BadCursor for anything that ``encode`` did not make."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        created_at, booking_id = json.loads(raw)
        return Position(datetime.fromisoformat(created_at), UUID(booking_id))
    except (binascii.Error, json.JSONDecodeError, TypeError) as error:
        raise BadCursor("The cursor is not one of ours.") from error
'''

LIST_OLD = '''    offset: int = 0,
    limit: int = 50,
) -> tuple[Sequence[Booking], int]:
    """A page of a harbour's bookings, newest first, and how many there are in all."""
    conditions = [Berth.harbour_id == harbour_id]
    if state is not None:
        conditions.append(Booking.state == state)
    total = await db.scalar(select(func.count()).select_from(Booking).join(Berth).where(*conditions))
    statement = ('''

LIST_NEW = '''    after: Position | None = None,
    limit: int = 50,
) -> Sequence[Booking]:
    """A page of a harbour's bookings, newest first, strictly after a position."""
    conditions: list[ColumnElement[bool]] = [Berth.harbour_id == harbour_id]
    if state is not None:
        conditions.append(Booking.state == state)
    if after is not None:
        conditions.append(tuple_(Booking.created_at, Booking.id) < (after.created_at, after.id))
    statement = ('''

TAIL_OLD = """        .order_by(Booking.created_at.desc())
        .offset(offset)
        .limit(limit)
    )
    return (await db.execute(statement)).scalars().all(), total or 0
"""

TAIL_NEW = """        .order_by(Booking.created_at.desc(), Booking.id.desc())
        .limit(limit)
    )
    return (await db.execute(statement)).scalars().all()
"""

POSITION = '''class Position(NamedTuple):
    """A place in the list, newest first. The id decides between bookings of the same instant."""

    created_at: datetime
    id: UUID


async def get(db: AsyncSession'''

HANDLER_OLD = '''    page: Annotated[int, Query(ge=1)] = 1,
    page_size: Annotated[int | None, Query(ge=1)] = None,
) -> BookingPage:
    """The harbour office's list, newest first."""
    size = min(page_size or config.list_page_size, config.list_page_size_max)
    bookings, total = await booking_repo.list_for_harbour(
        db, harbour_id, state=state, offset=(page - 1) * size, limit=size
    )
    return BookingPage(
        items=[BookingOut.from_model(booking) for booking in bookings],
        page=page,
        page_size=size,
        total=total,
    )
'''

HANDLER_NEW = '''    after: str = None,
    page_size: Annotated[int | None, Query(ge=1)] = None,
) -> BookingPage:
    """The harbour office's list, newest first. Pass ``next_cursor`` of a page as ``after`` to get the next one."""
    size = min(page_size or config.list_page_size, config.list_page_size_max)
    start = cursor.decode(after) if after else None
    bookings = await booking_repo.list_for_harbour(db, harbour_id, state=state, after=start, limit=size + 1)
    shown, more = bookings[:size], len(bookings) > size
    next_cursor = cursor.encode(Position(shown[-1].created_at, shown[-1].id)) if more else None
    return BookingPage(items=[BookingOut.from_model(booking) for booking in shown], next_cursor=next_cursor)
'''

PAGED_OLD = """    first = (await office.get(f"/v1/harbours/{harbour.id}/bookings")).json()
    second = (await office.get(f"/v1/harbours/{harbour.id}/bookings", params={"page": 2})).json()
    assert (len(first["items"]), len(second["items"]), first["total"]) == (3, 2, 5)
"""

PAGED_NEW = """    url = f"/v1/harbours/{harbour.id}/bookings"
    first = (await office.get(url)).json()
    second = (await office.get(url, params={"after": first["next_cursor"]})).json()
    assert (len(first["items"]), len(second["items"]), second["next_cursor"]) == (3, 2, None)
    assert not {item["id"] for item in first["items"]} & {item["id"] for item in second["items"]}


async def test_a_booking_made_meanwhile_does_not_shift_the_pages(office, client, harbour, body):
    for day in range(1, 5):
        stay = {"arrival": f"2027-07-{day:02d}", "departure": f"2027-07-{day + 1:02d}"}
        await client.post("/v1/bookings", json=body | stay)
    url = f"/v1/harbours/{harbour.id}/bookings"
    first = (await office.get(url)).json()
    await client.post("/v1/bookings", json=body | {"arrival": "2027-08-01", "departure": "2027-08-02"})
    second = (await office.get(url, params={"after": first["next_cursor"]})).json()
    assert [item["arrival"] for item in second["items"]] == ["2027-07-01"]


@pytest.mark.parametrize("broken", ["", "%%%", "WzEsMl0"])
async def test_a_cursor_that_is_not_ours_answers_400(office, harbour, broken):
    response = await office.get(f"/v1/harbours/{harbour.id}/bookings", params={"after": f"x{broken}"})
    assert (response.status_code, response.json()["code"]) == (400, "bad_cursor")
"""

INDEX = '''"""An index in the order of the office's list.

Revision ID: 0014
Revises: 0013
"""

from __future__ import annotations

from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    with op.get_context().autocommit_block():
        op.create_index("bookings_by_creation", "bookings", ["created_at", "id"], postgresql_concurrently=True)


def downgrade() -> None:
    with op.get_context().autocommit_block():
        op.drop_index("bookings_by_creation", table_name="bookings", postgresql_concurrently=True)
'''

MYPY = """
src/quayside/api/bookings.py:LINE: error: Incompatible default for argument "after" (default has type "None", argument has type "str")  [assignment]
src/quayside/api/bookings.py:LINE: note: PEP 484 prohibits implicit Optional. Accordingly, mypy has changed its default to no_implicit_optional=True
Found 1 error in 1 file (checked 61 source files)
"""
