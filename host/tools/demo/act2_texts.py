# ruff: noqa: E501  (texts are quoted as they stand in the session)
"""Texts that act 2 of the demo session quotes: files of the invented project, and outputs."""

KEY_MODEL = '''class IdempotencyKey(Base):
    """An answer that was already given. One row per owner and key; the nightly job drops rows older than a day."""

    __tablename__ = "idempotency_keys"

    owner_id: Mapped[UUID] = mapped_column(PgUUID(as_uuid=True), primary_key=True)
    key: Mapped[str] = mapped_column(String(80), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64))
    status: Mapped[int | None] = mapped_column(Integer)
    body: Mapped[dict[str, object] | None] = mapped_column(JSONB)
    created_at: Mapped[datetime] = mapped_column(DateTime(timezone=True), server_default=func.now())


class OutboxEvent(Base):'''

MIGRATION_TEXT = '''"""Answers already given, so that a retried request gets the same one.

Revision ID: 0012
Revises: 0011
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # A new table: nothing that the running release reads or writes is locked.
    op.create_table(
        "idempotency_keys",
        sa.Column("owner_id", postgresql.UUID(as_uuid=True), nullable=False),
        sa.Column("key", sa.String(80), nullable=False),
        sa.Column("fingerprint", sa.String(64), nullable=False),
        sa.Column("status", sa.Integer()),
        sa.Column("body", postgresql.JSONB()),
        sa.Column("created_at", sa.DateTime(timezone=True), nullable=False, server_default=sa.func.now()),
        sa.PrimaryKeyConstraint("owner_id", "key"),
    )
    op.create_index("idempotency_keys_by_age", "idempotency_keys", ["created_at"])


def downgrade() -> None:
    op.drop_index("idempotency_keys_by_age", table_name="idempotency_keys")
    op.drop_table("idempotency_keys")
'''

REPO_TEXT = '''"""SQL for idempotency keys."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import delete, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncSession

from quayside.models import IdempotencyKey


async def claim(db: AsyncSession, owner_id: UUID, key: str, fingerprint: str) -> bool:
    """Insert the key; False when it exists already. Waits for a concurrent transaction that holds the same key."""
    statement = (
        insert(IdempotencyKey)
        .values(owner_id=owner_id, key=key, fingerprint=fingerprint)
        .on_conflict_do_nothing(index_elements=["owner_id", "key"])
        .returning(IdempotencyKey.key)
    )
    return (await db.execute(statement)).scalar_one_or_none() is not None


async def get(db: AsyncSession, owner_id: UUID, key: str) -> IdempotencyKey | None:
    statement = select(IdempotencyKey).where(IdempotencyKey.owner_id == owner_id).where(IdempotencyKey.key == key)
    return (await db.execute(statement)).scalar_one_or_none()


async def forget_before(db: AsyncSession, instant: datetime) -> int:
    """Drop keys that are older than an instant, and say how many."""
    result = await db.execute(delete(IdempotencyKey).where(IdempotencyKey.created_at < instant))
    return result.rowcount
'''

KEYS_TEXT = '''"""Giving the same answer to the same request twice."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncSession

from quayside.errors import IdempotencyMismatch
from quayside.repositories import idempotency as key_repo

log = structlog.get_logger(__name__)

LIFETIME = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class Replay:
    """An answer from before."""

    status: int
    body: dict[str, Any]


def fingerprint(body: BaseModel) -> str:
    """SHA-256 over what the client sent, independent of the order of its fields."""
    return hashlib.sha256(body.model_dump_json().encode()).hexdigest()


class Idempotency:
    """One key of one owner. Use: ``begin``; if it returns nothing, do the work and ``finish``; then commit."""

    def __init__(self, db: AsyncSession, owner_id: UUID, key: str, *, now: datetime | None = None) -> None:
        self._db = db
        self._owner_id = owner_id
        self._key = key
        self._now = now or datetime.now(UTC)

    async def begin(self, body: BaseModel) -> Replay | None:
        """Claim the key, or give back the answer it led to. Raises IdempotencyMismatch for another body."""
        mark = fingerprint(body)
        if await key_repo.claim(self._db, self._owner_id, self._key, mark):
            return None
        row = await key_repo.get(self._db, self._owner_id, self._key)
        if row is None or row.created_at < self._now - LIFETIME:
            return None
        if row.fingerprint != mark:
            raise IdempotencyMismatch(self._key)
        log.info("answer replayed", key=self._key)
        return Replay(row.status, row.body)

    async def finish(self, status: int, body: dict[str, Any]) -> None:
        """Remember the answer, in the same transaction as the work itself."""
        row = await key_repo.get(self._db, self._owner_id, self._key)
        assert row is not None
        row.status, row.body = status, body
        await self._db.flush()
'''

MISMATCH = """class WrongState(QuaysideError):
    code = "wrong_state"


class IdempotencyMismatch(QuaysideError):
    code = "idempotency_mismatch"

    def __init__(self, key: str) -> None:
        super().__init__(f"The idempotency key {key!r} was used for a different request.")
        self.key = key
"""

CREATE_OLD = '''async def create_booking(body: BookingIn, db: Database, config: Config, owner: Owner, response: Response) -> BookingOut:
    """Hold a berth. The hold expires unless the deposit is paid in time."""
    service = BookingService(db, config)
'''

CREATE_NEW = '''async def create_booking(
    body: BookingIn, db: Database, config: Config, owner: Owner, response: Response, key: RetryKey = None
) -> BookingOut:
    """Hold a berth. The hold expires unless the deposit is paid in time. A retry with the same key holds nothing new."""
    guard = Idempotency(db, owner, key) if key else None
    replay = await guard.begin(body) if guard else None
    if replay is not None:
        response.status_code = replay.status
        response.headers["Location"] = f"/v1/bookings/{replay.body['id']}"
        return BookingOut.model_validate(replay.body)
    service = BookingService(db, config)
'''

COMMIT_OLD = """    await db.commit()
    response.headers["Location"] = f"/v1/bookings/{booking.id}"
    return BookingOut.from_model(booking)
"""

COMMIT_NEW = """    answer = BookingOut.from_model(booking)
    if guard is not None:
        await guard.finish(status.HTTP_201_CREATED, answer.model_dump(mode="json"))
    await db.commit()
    response.headers["Location"] = f"/v1/bookings/{booking.id}"
    return answer
"""

NEW_TESTS_TEXT = """async def test_a_retry_with_the_same_key_gets_the_same_answer(client, body):
    headers = {"Idempotency-Key": "3f1d-try"}
    first = await client.post("/v1/bookings", json=body, headers=headers)
    second = await client.post("/v1/bookings", json=body, headers=headers)
    assert (second.status_code, second.json()) == (201, first.json())
    assert second.headers["Location"] == first.headers["Location"]


async def test_the_same_key_with_another_body_answers_422(client, body):
    headers = {"Idempotency-Key": "3f1d-try"}
    await client.post("/v1/bookings", json=body, headers=headers)
    response = await client.post("/v1/bookings", json=body | {"departure": "2027-06-06"}, headers=headers)
    assert (response.status_code, response.json()["code"]) == (422, "idempotency_mismatch")


async def test_keys_of_different_owners_do_not_meet(client, body):
    headers = {"Idempotency-Key": "3f1d-try"}
    await client.post("/v1/bookings", json=body, headers=headers)
    response = await client.post("/v1/bookings", json=body, headers=headers | {"X-Owner": str(OTHER_OWNER)})
    assert response.json()["code"] == "vessel_does_not_fit"


async def test_a_refused_request_does_not_use_up_its_key(client, body):
    headers = {"Idempotency-Key": "3f1d-try"}
    refused = await client.post("/v1/bookings", json=body | {"vessel_id": 999_999}, headers=headers)
    assert refused.status_code == 422
    assert (await client.post("/v1/bookings", json=body, headers=headers)).status_code == 201


async def test_moving_is_for_the_office(client, body):"""

PSQL_BOOKINGS = """                                        Table "public.bookings"
     Column      |           Type           | Collation | Nullable |      Default      | Storage  | Stats target
-----------------+--------------------------+-----------+----------+-------------------+----------+--------------
 id              | uuid                     |           | not null |                   | plain    |
 berth_id        | integer                  |           | not null |                   | plain    |
 vessel_id       | integer                  |           | not null |                   | plain    |
 owner_id        | uuid                     |           | not null |                   | plain    |
 arrival         | date                     |           | not null |                   | plain    |
 departure       | date                     |           | not null |                   | plain    |
 state           | booking_state            |           | not null |                   | plain    |
 hold_expires_at | timestamp with time zone |           |          |                   | plain    |
 price_cents     | integer                  |           | not null |                   | plain    |
 deposit_cents   | integer                  |           | not null |                   | plain    |
 note            | text                     |           |          |                   | extended |
 created_at      | timestamp with time zone |           | not null | CURRENT_TIMESTAMP | plain    |
 updated_at      | timestamp with time zone |           | not null | CURRENT_TIMESTAMP | plain    |
Indexes:
    "bookings_pkey" PRIMARY KEY, btree (id)
    "bookings_by_berth" btree (berth_id, arrival)
    "bookings_by_owner" btree (owner_id, created_at)
Check constraints:
    "bookings_stay_not_empty" CHECK (departure > arrival)
Foreign-key constraints:
    "bookings_berth_id_fkey" FOREIGN KEY (berth_id) REFERENCES berths(id)
    "bookings_vessel_id_fkey" FOREIGN KEY (vessel_id) REFERENCES vessels(id)
Referenced by:
    TABLE "invoices" CONSTRAINT "invoices_booking_id_fkey" FOREIGN KEY (booking_id) REFERENCES bookings(id)
    TABLE "payments" CONSTRAINT "payments_booking_id_fkey" FOREIGN KEY (booking_id) REFERENCES bookings(id)
Access method: heap
"""

MIGRATE_CHECK_12 = """restoring dumps/anonymised-2026-03-01.pgc into quayside_check ... 31.4 s
current revision: 0011
upgrade 0011 -> 0012  Answers already given, so that a retried request gets the same one.
  CREATE TABLE idempotency_keys                       lock: none on existing tables      3 ms
  CREATE INDEX idempotency_keys_by_age                lock: ShareLock idempotency_keys   1 ms
downgrade 0012 -> 0011
  DROP INDEX idempotency_keys_by_age                  lock: AccessExclusive (new table)  1 ms
  DROP TABLE idempotency_keys                         lock: AccessExclusive (new table)  2 ms
upgrade 0011 -> 0012                                                                     4 ms
ok: longest lock on a table in use 0 ms
"""
