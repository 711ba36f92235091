"""Writes the bundled demo session, `contexthost/data/demo.jsonl`, always the same bytes.

    python host/tools/make_demo_session.py [--check]

It tells an invented story of coding work (see `demo/story.py`) in Pi's session format, version 3. Standard library
only; no clock and no uuid: everything random comes from the seed below.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

from demo.story import tell

SEED = 20260303
HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "src" / "contexthost" / "data" / "demo.jsonl"


def main() -> int:
    """Write the file, or with --check compare it with what would be written: 0 if equal, 1 if not."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing, compare with the file in the repo")
    parser.add_argument("--output", type=Path, default=TARGET, help="where to write or what to compare")
    options = parser.parse_args()
    data = tell(random.Random(SEED), HERE / "demo" / "project").encode("utf-8")
    if not options.check:
        options.output.write_bytes(data)
        print(f"{options.output.name}: {len(data):,} bytes")
        return 0
    if options.output.read_bytes() != data:
        print(f"{options.output.name} is not what the script makes; run it without --check", file=sys.stderr)
        return 1
    print(f"{options.output.name} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
