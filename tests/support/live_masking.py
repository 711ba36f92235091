"""A run in the real Pi after which the masking plugin masks: three files are read, 3,200 tokens each, then its trigger
of 9,000 is reached, and 500 are to be left. The two newest turns, the answer and the reading of c, it must leave."""

from __future__ import annotations

import json

from support.live_pi import PiHome, texts
from support.model_server import call, say

SCRIPT = (
    *(call("read", {"path": f"{name}.txt"}, f"call_{name}") for name in "abc"),
    say("All read.", usage=(9990, 0, 10, 0)),
    say("You are welcome."),
)
"""What the model answers to two prompts, the first of which makes it read."""


def prepare(home: PiHome) -> None:
    """The files, and masking's settings."""
    for name in "abc":
        (home.project / f"{name}.txt").write_text(f"the words of {name} are many\n" * 450)
    mask = {"triggerTokens": 9000, "targetTokens": 500, "minClearTokens": 1000, "keepRecentTurns": 2}
    (home.host / "config" / "masking.json").write_text(json.dumps({"mask": mask}))


def masked(home: PiHome, request: int) -> list[bool]:
    """Which of the results that a request carried are placeholders."""
    return [text.startswith("[pi-compaction] Earlier ") for text in texts(home.server.requests[request], "tool")]
