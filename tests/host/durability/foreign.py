"""Appends to a session file as Pi does: open, write one line, close; no lock, no fsync, no look at what is there."""

from __future__ import annotations

import json
import os
import sys
import time

from support.durability import digest, numbered


def main() -> None:
    for line in sys.stdin.buffer:
        order = json.loads(line)
        parent = order["parent"]
        for number in range(order["appends"]):
            entry_id = f"f{number:07x}"
            payload = numbered(number, 100 + number * 37 % 5000)
            stamp = "2026-01-05T09:00:00.000Z"
            entry = {"type": "message", "id": entry_id, "parentId": parent, "timestamp": stamp, **payload}
            raw = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode()
            with open(order["path"], "ab", buffering=0) as file:  # noqa: PTH123 - as bare as Pi's appendFileSync
                file.write(raw + b"\n")
            parent = entry_id
            time.sleep(0.002 * (number % 3))  # runs of writes in a row and gaps between them
            os.write(1, json.dumps({"ack": [(entry_id, digest(raw))]}).encode() + b"\n")
        os.write(1, b'{"ended":0}\n')


main()
