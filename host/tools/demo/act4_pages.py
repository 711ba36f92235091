# ruff: noqa: E501  (texts are quoted as they stand in the session)
"""The office's list: from OFFSET pages to a cursor, with query plans, linters and an overloaded provider."""

from __future__ import annotations

from demo import outputs, suite
from demo.act4_texts import (
    CURSOR_TEXT,
    HANDLER_NEW,
    HANDLER_OLD,
    INDEX,
    LIST_NEW,
    LIST_OLD,
    MYPY,
    PAGED_NEW,
    PAGED_OLD,
    PLAN_AFTER,
    PLAN_BEFORE,
    POSITION,
    TAIL_NEW,
    TAIL_OLD,
)
from demo.desk import Desk

API, REPO, SCHEMAS = "src/quayside/api/bookings.py", "src/quayside/repositories/bookings.py", "src/quayside/schemas.py"
CURSOR, TESTS, MODELS = "src/quayside/api/cursor.py", "tests/test_api_bookings.py", "src/quayside/models.py"
MIGRATION = "migrations/versions/0014_list_index.py"


def play(desk: Desk) -> None:
    tree, rng = desk.tree, desk.rng
    desk.user(
        "Thanks. Now the list in the office console: the last pages take half a second and when somebody books while they scroll, "
        "rows appear twice. There's a chart in docs/img/latency-p95.png. Measure first, please; there's a copy of production in "
        "quayside_check and the service runs against it on 8081.",
        after=(5400, 6300),
    )
    desk.turn(
        "",
        desk.read_image("docs/img/latency-p95.png"),
        desk.read(API),
        desk.read(REPO),
        desk.bash("psql -X quayside_check -f scripts/explain_list.sql", PLAN_BEFORE, seconds=1.2),
    )
    desk.turn(
        "The chart climbs with the page number, and the plan says why: it reads every booking of all harbours, sorts 8,417 rows on "
        "disk and throws 8,400 away; the count on top costs another 338 ms. What does a page look like on the wire, and what does "
        "the console ask for?",
        desk.bash(
            "curl -s -H 'X-Role: office' 'localhost:8081/v1/harbours/2/bookings?page=168' | jq .",
            outputs.bookings_json(rng, 46, cursor=False),
            seconds=0.8,
        ),
        desk.bash(
            "jq -c 'select(.path|test(\"/bookings$\"))' var/log/quayside-0228.jsonl | sort -t: -k9 | tail -70",
            outputs.service_log(rng, 70, start_ms=1_772_275_000_000, doubles=False),
        ),
    )
    desk.turn(
        "Who depends on `page` and `total`?",
        desk.grep(r"page|total|list_for_harbour", "src/quayside", context=1),
        desk.read(SCHEMAS),
        desk.read(TESTS),
        desk.bash("curl -s localhost:8081/openapi.json | jq .paths", outputs.openapi(tree)),
    )
    desk.turn(
        "Plan: a keyset cursor on (created_at, id), one row more than the page to know whether there is another, no count, and an "
        "index in that order. That changes the answer: `page` and `total` go, `next_cursor` comes. Is the console the only client?",
        thinking="total is only shown in the console's footer, as far as the grep can tell. Worth asking, it is an API change.",
    )
    desk.user("Yes, only the console, and nobody looks at the total. Ines adapts it today. Go ahead.")
    desk.overloaded()
    desk.turn(
        "Tests first: pages do not overlap, a booking made meanwhile does not shift them, foreign cursors are refused.",
        desk.edit(TESTS, (PAGED_OLD, PAGED_NEW)),
    )
    desk.turn(
        "",
        desk.write(CURSOR, CURSOR_TEXT),
        desk.edit(
            REPO,
            (LIST_OLD, LIST_NEW),
            (TAIL_OLD, TAIL_NEW),
            ("async def get(db: AsyncSession", POSITION),
            (
                "from sqlalchemy import func, select, update\n",
                "from sqlalchemy import ColumnElement, func, select, tuple_, update\n",
            ),
            ("from uuid import UUID\n", "from typing import NamedTuple\nfrom uuid import UUID\n"),
        ),
        desk.edit(
            SCHEMAS,
            (
                "    items: list[BookingOut]\n    page: int\n    page_size: int\n    total: int\n",
                "    items: list[BookingOut]\n    next_cursor: str | None\n",
            ),
        ),
    )
    desk.turn(
        "",
        desk.edit(
            API,
            (HANDLER_OLD, HANDLER_NEW),
            ("from quayside.api.deps import", "from quayside.api import cursor\nfrom quayside.api.deps import"),
            ("from quayside.schemas", "from quayside.repositories.bookings import Position\nfrom quayside.schemas"),
        ),
        desk.edit(
            "src/quayside/errors.py",
            (
                "class StayNotAllowed(QuaysideError):\n",
                'class BadCursor(QuaysideError):\n    code = "bad_cursor"\n\n\nclass StayNotAllowed(QuaysideError):\n',
            ),
        ),
        desk.edit(
            "src/quayside/api/errors.py",
            (
                "    errors.BerthTaken: HTTPStatus.CONFLICT,\n",
                "    errors.BadCursor: HTTPStatus.BAD_REQUEST,\n    errors.BerthTaken: HTTPStatus.CONFLICT,\n",
            ),
        ),
        desk.edit(
            MODELS,
            (
                '        Index("bookings_by_owner", "owner_id", "created_at"),\n',
                '        Index("bookings_by_owner", "owner_id", "created_at"),\n        Index("bookings_by_creation", "created_at", "id"),\n',
            ),
        ),
        desk.write(MIGRATION, INDEX),
    )
    node = f"{TESTS}::test_a_cursor_that_is_not_ours_answers_400[WzEsMl0]"
    broken = suite.Failure(
        node,
        [
            suite.Frame(
                TESTS,
                "test_a_cursor_that_is_not_ours_answers_400",
                "response = await office.get",
                {"broken": "'WzEsMl0'", "harbour": "<quayside.models.Harbour object at 0x7f6be1f3a610>"},
            ),
            suite.Frame(
                API,
                "list_bookings",
                "start = cursor.decode(after)",
                {"after": "'xWzEsMl0'", "size": "3", "state": "None"},
            ),
            suite.Frame(
                CURSOR,
                "decode",
                "created_at, booking_id = json.loads(raw)",
                {"raw": "b'\\xc5l\\xc4\\xb0\\xc9t'", "text": "'xWzEsMl0'"},
            ),
        ],
        "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xc5 in position 0: invalid continuation byte",
    )
    lint = outputs.lint(
        tree,
        [
            (API, "after: str = None", "RUF013", "PEP 484 prohibits implicit `Optional`", "Convert to `T | None`"),
            (
                REPO,
                "func, ",
                "F401",
                "[*] `sqlalchemy.func` imported but unused",
                "Remove unused import: `sqlalchemy.func`",
            ),
            (
                MODELS,
                "ForeignKey, Index, Integer, String, Text, func, text",
                "E501",
                "Line too long (112 > 110)",
                "Break the line",
            ),
            (
                "tests/conftest.py",
                "from seeding import seeded",
                "I001",
                "[*] Import block is un-sorted or un-formatted",
                "Organize imports",
            ),
            (
                "scripts/race_probe.py",
                "async with httpx.AsyncClient(base_url=options.base",
                "E501",
                "Line too long (125 > 110)",
                "Break the line",
            ),
            (
                "scripts/race_probe.py",
                "dt.date.today()",
                "DTZ011",
                "`datetime.date.today()` used",
                "Use `datetime.datetime.now(tz=...).date()` instead",
            ),
        ],
    )
    desk.turn(
        "",
        desk.bash(
            "uv run pytest tests/test_api_bookings.py --showlocals 2>&1 | tail -150",
            suite.run(tree, rng, under=TESTS, failures=[broken]),
            seconds=5,
        ),
        desk.bash(
            "uv run ruff check --output-format=full . ; uv run mypy | tail -20",
            lint + MYPY.replace("LINE", str(tree.line(API, "after: str = None"))),
            seconds=9,
        ),
    )
    desk.turn(
        "The pages are right. One real defect: a cursor that decodes to bytes which are no text leaves `json.loads` as a "
        "UnicodeDecodeError. My `except` names JSONDecodeError, which is only one kind of ValueError. The same hole takes ids that "
        "are no UUID. Let me see the file and who else raises what.",
        desk.read(CURSOR),
        desk.grep("except ", "src/quayside", context=2),
        thinking="json.loads(bytes) detects the encoding and decodes first; that raises UnicodeDecodeError. UUID() and fromisoformat "
        "raise plain ValueError. binascii.Error is a ValueError as well, so ValueError and TypeError cover all of them.",
    )
    desk.turn(
        "Catching ValueError covers bad base64, bad text, bad JSON, bad dates and bad ids. I'll fix the lint findings along with it.",
        desk.edit(
            CURSOR,
            (
                "except (binascii.Error, json.JSONDecodeError, TypeError) as error",
                "except (ValueError, TypeError) as error",
            ),
            ("import binascii\n", ""),
        ),
        desk.edit(API, ("    after: str = None,\n", "    after: str | None = None,\n")),
        desk.edit(REPO, ("ColumnElement, func, select, tuple_, update", "ColumnElement, select, tuple_, update")),
        desk.edit(
            MODELS,
            (
                "from sqlalchemy import CheckConstraint, Date, DateTime, Enum, ForeignKey, Index, Integer, String, Text, func, text\n",
                (
                    "from sqlalchemy import (\n    CheckConstraint,\n    Date,\n    DateTime,\n    Enum,\n    ForeignKey,\n    Index,\n"
                    "    Integer,\n    String,\n    Text,\n    func,\n    text,\n)\n"
                ),
            ),
        ),
        desk.bash(
            "find . -name __pycache__ -prune -exec rm -r {} + ; uv run ruff check --fix -q src tests ; uv run mypy | tail -1",
            "Success: no issues found in 61 source files\n",
            seconds=12,
        ),
    )
    desk.turn(
        "",
        desk.bash(
            "uv run pytest -v --durations=12 2>&1 | tail -280",
            suite.run(tree, rng, verbose=True, durations=12),
            seconds=19,
        ),
        desk.bash(
            "uv run alembic upgrade head && psql -X quayside_check -f scripts/explain_list.sql", PLAN_AFTER, seconds=4
        ),
        desk.bash(
            "curl -s -H 'X-Role: office' 'localhost:8081/v1/harbours/2/bookings?page_size=30' | jq .",
            outputs.bookings_json(rng, 30, cursor=True),
        ),
    )
    desk.turn(
        "Done, not committed yet so that you can look at it:\n\n"
        "- any page now takes 1.4 ms in the database instead of 414 + 338 ms; the plan walks the new index\n"
        "- pages no longer shift when a booking is made while somebody scrolls (there is a test)\n"
        "- `bad_cursor` (400) for cursors that are not ours; migration 0014 builds its index concurrently\n"
        "- the two findings in `scripts/race_probe.py` are older than today and I left them"
    )
