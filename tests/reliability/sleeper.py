"""A live session with relays before the prompt cache expires, made to be suspended: the cache lives for 10 seconds,
and the relay is due 6 seconds before its end.

Arguments: the session's path. It prints ``settled`` after its one run and, when its input is closed, a line of JSON:
whether it relayed, and what was told.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

from contexthost_relay import triggers
from support.relay_live import MODEL, Live, big

LIFETIME, MARGIN = 10.0, 6.0


async def main() -> None:
    vars(triggers)["MARGIN_SECONDS"] = MARGIN
    info = replace(MODEL, prompt_cache_short_seconds=LIFETIME)
    async with Live(Path(sys.argv[1]), [big(tokens=145_000, cacheRead=5)], info=info) as session:
        await session.host.prompt("go")
        print("settled", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        relayed = session.host.snapshot.checkpoint is not None
        print(json.dumps({"relayed": relayed, "told": session.texts}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
