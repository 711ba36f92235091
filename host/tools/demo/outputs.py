"""What the other commands of the demo session print: logs, query plans, linters, git, the API itself."""

from __future__ import annotations

import json
import random
import uuid

from demo.tree import Tree
from demo.writer import iso

VESSELS = [
    "Curlew",
    "Fulmar",
    "Sanderling",
    "Kittiwake",
    "Dunlin",
    "Avocet",
    "Whimbrel",
    "Turnstone",
    "Phalarope",
    "Guillemot",
    "Razorbill",
    "Gannet",
    "Petrel",
    "Shearwater",
    "Lapwing",
    "Redshank",
    "Greenshank",
    "Plover",
    "Bittern",
    "Garganey",
    "Pochard",
    "Wigeon",
    "Teal",
    "Eider",
    "Scoter",
]
PONTOONS = "ABCDEF"
NOTES = (
    None,
    None,
    None,
    "arriving after 20:00, will phone",
    "needs the berth next to Fulmar if possible",
    "two dogs",
    "second boat follows on Thursday",
    "mast down, low air draught",
    "wants water at the pontoon",
    "late departure agreed",
)


def an_id(rng: random.Random) -> str:
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def bookings_json(rng: random.Random, count: int, *, cursor: bool) -> str:
    """A page of the office's list, as `jq .` shows it."""
    items = []
    created = 1_772_440_000_000
    for _ in range(count):
        created -= rng.randint(60_000, 5_400_000)
        nights, metres = rng.randint(1, 12), rng.randint(7, 15)
        price = nights * metres * rng.choice([280, 320, 410])
        month, day = rng.randint(4, 9), rng.randint(1, 16)
        state = rng.choice(["held", "confirmed", "confirmed", "confirmed", "cancelled", "expired"])
        items.append(
            {
                "id": an_id(rng),
                "berth_id": rng.randint(11, 96),
                "vessel_id": rng.randint(3, 420),
                "arrival": f"2026-{month:02d}-{day:02d}",
                "departure": f"2026-{month:02d}-{day + nights:02d}",
                "state": state,
                "hold_expires_at": iso(created + 1_800_000) if state == "held" else None,
                "price_cents": price,
                "deposit_cents": -(-price // 500) * 100,
                "note": rng.choice(NOTES),
                "created_at": iso(created),
            }
        )
    page: dict[str, object] = {"items": items}
    page |= (
        {"next_cursor": "WyIyMDI2LTAzLTAxVDE4OjQyIiwiYjc0ZiJd"}
        if cursor
        else {"page": 1, "page_size": count, "total": 8417}
    )
    return json.dumps(page, indent=2)


def service_log(rng: random.Random, count: int, *, start_ms: int, doubles: bool) -> str:
    """Structured log lines of the running service; with doubles, two holds of one berth slip through together."""
    out = []
    now = start_ms
    double_at = count * 2 // 3
    for number in range(count):
        now += rng.randint(3, 900)
        request = f"{rng.getrandbits(40):010x}"
        if doubles and number in (double_at, double_at + 1):
            base = {"event": "booking held", "booking": an_id(rng), "berth": "C14", "nights": 3}
        else:
            base = rng.choice(
                [
                    {
                        "event": "request",
                        "method": "GET",
                        "path": f"/v1/harbours/{rng.randint(1, 6)}/berths",
                        "status": 200,
                    },
                    {
                        "event": "request",
                        "method": "GET",
                        "path": f"/v1/harbours/{rng.randint(1, 6)}/bookings",
                        "status": 200,
                        "query": f"page={rng.randint(1, 168)}",
                    },
                    {
                        "event": "request",
                        "method": "POST",
                        "path": "/v1/bookings",
                        "status": rng.choice([201, 201, 201, 409, 422]),
                    },
                    {"event": "request", "method": "POST", "path": f"/v1/bookings/{an_id(rng)}/confirm", "status": 200},
                    {
                        "event": "booking held",
                        "booking": an_id(rng),
                        "berth": f"{rng.choice(PONTOONS)}{rng.randint(1, 28):02d}",
                        "nights": rng.randint(1, 9),
                    },
                    {"event": "outbox sent", "kind": rng.choice(["booking.held", "booking.confirmed"]), "attempts": 1},
                    {"event": "holds released", "count": rng.randint(1, 4), "job": "expiry"},
                ]
            )
        line = {"timestamp": iso(now), "level": "info", **base, "request_id": request}
        if base["event"] == "request":
            line["took_ms"] = round(rng.lognormvariate(3.4, 0.9), 1)
        out.append(json.dumps(line))
    return "\n".join(out)


def probe(rng: random.Random, rounds: int, *, allowed: bool) -> str:
    """The race probe's report: with `allowed` some rounds let several holds through."""
    out, doubles = [], 0
    for number in range(rounds):
        created = rng.choice([1, 1, 1, 2, 2, 3]) if allowed else 1
        doubles += created - 1
        counts = {"201": created, "409 berth_taken": 16 - created}
        day = f"2026-{4 + number // 9:02d}-{2 + 3 * (number % 9):02d}"
        out.append(
            f"round {number:2d} berth {rng.choice([11, 12, 14, 15])} {day}: {counts} worst {rng.randint(70, 260)} ms"
        )
    return "\n".join([*out, f"double bookings: {doubles}"])


def stat(tree: Tree) -> str:
    """`git diff --stat` of the files as they are now."""
    rows = tree.diff_stat()
    out = [f" {path:<48} | {a + d:3d} {'+' * (-(-a // 4))}{'-' * (-(-d // 4))}" for path, a, d in rows]
    added, removed = sum(row[1] for row in rows), sum(row[2] for row in rows)
    return "\n".join([*out, f" {len(rows)} files changed, {added} insertions(+), {removed} deletions(-)"])


def lint(tree: Tree, findings: list[tuple[str, str, str, str, str]]) -> str:
    """`ruff check --output-format=full`: (path, text of the line, code, message, help) for each finding."""
    out = []
    for path, needle, code, message, advice in findings:
        number = tree.line(path, needle)
        lines = tree.files[path].split("\n")
        column = lines[number - 1].index(needle) + 1
        out.append(f"{path}:{number}:{column}: {code} {message}")
        out.append("    |")
        for shown in range(max(1, number - 2), min(len(lines), number + 2) + 1):
            out.append(f"{shown:3d} | {lines[shown - 1]}".rstrip())
            if shown == number:
                out.append(f"    | {' ' * (column - 1)}{'^' * len(needle)} {code}")
        out += ["    |", f"    = help: {advice}", ""]
    return "\n".join([*out, f"Found {len(findings)} errors.", "[*] 2 fixable with the `--fix` option."])


def openapi(tree: Tree) -> str:
    """Part of the service's own description, as `jq .paths` shows it."""
    routes = [
        ("get", "/v1/harbours/{harbour_id}/berths", "List Berths", ["from", "to", "min_length_cm"], "BerthOut"),
        ("post", "/v1/bookings", "Create Booking", [], "BookingOut"),
        ("post", "/v1/bookings/{booking_id}/confirm", "Confirm Booking", [], "BookingOut"),
        ("post", "/v1/bookings/{booking_id}/cancel", "Cancel Booking", [], "BookingOut"),
        ("post", "/v1/bookings/{booking_id}/move", "Move Booking", [], "BookingOut"),
        ("get", "/v1/harbours/{harbour_id}/bookings", "List Bookings", ["state", "page", "page_size"], "BookingPage"),
        ("post", "/v1/harbours/{harbour_id}/waitlist", "Join Waitlist", [], "WaitlistOut"),
        ("delete", "/v1/waitlist/{entry_id}", "Leave Waitlist", [], "WaitlistOut"),
        ("post", "/v1/webhooks/payments", "Payment Event", [], "Accepted"),
        ("get", "/v1/invoices/{number}", "Get Invoice", [], "InvoiceOut"),
        ("post", "/v1/meters/{meter_id}/readings", "Add Reading", [], "ReadingOut"),
    ]
    paths: dict[str, object] = {}
    for method, path, summary, query, schema in routes:
        in_path = [part.strip("{}") for part in path.split("/") if part.startswith("{")]
        parameters = [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in in_path]
        parameters += [{"name": name, "in": "query", "required": False, "schema": {"type": "string"}} for name in query]
        good = {
            "200": {
                "description": "Successful Response",
                "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
            }
        }
        bad = {
            "422": {
                "description": "Validation Error",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/HTTPValidationError"}}},
            }
        }
        paths[path] = {method: {"summary": summary, "parameters": parameters, "responses": good | bad}}
    return json.dumps(paths, indent=2)
