"""What the bridge costs a real Pi at 10,000 entries: under 5 ms of each turn at the 95th percentile, measured inside
Pi; and the memory of the Python side: its own plus at most 3 times the session.

A wrapper around the extension times every handler that it registers, and leaves them out in every second turn, so that
turns with and without the bridge stand side by side in one run. The masking plugin is loaded. What Pi itself spends on
previews for whoever listens to boundaries is in both.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from support.gates import percentile, report
from support.large import write_large
from support.live_pi import PiHome, live_home
from support.model_server import say

ENTRIES = 10_000
TURNS = 120
GATE_MS = 5.0

WRAPPER = """
import contexthost from "./contexthost.ts";

export default function (pi: any) {
  const turns: { with: boolean; handlers: number; whole: number }[] = [];
  let turn = { with: true, handlers: 0, whole: 0 };
  const outside = ["session_start", "session_shutdown"];
  pi.on("input", () => {
    turn = { with: turns.length % 2 === 0, handlers: 0, whole: performance.now() };
  });
  const timed = (name: string, handler: any) => async (event: any, ctx: any) => {
    if (outside.includes(name)) return handler(event, ctx);
    if (!turn.with) return undefined;
    const began = performance.now();
    try {
      return await handler(event, ctx);
    } finally {
      turn.handlers += performance.now() - began;
    }
  };
  contexthost({ ...pi, on: (name: string, handler: any) => pi.on(name, timed(name, handler)) });
  pi.on("agent_settled", () => {
    turns.push({ ...turn, whole: performance.now() - turn.whole });
  });
  pi.registerCommand("turns", { handler: async (_: string, ctx: any) => ctx.ui.notify(JSON.stringify(turns)) });
}
"""


def wrapped(home: PiHome) -> list[str]:
    """Pi's options: our extension inside the wrapper."""
    elsewhere = home.root / "elsewhere"
    home.contexthost("pi", "install", "--agent-dir", str(elsewhere))
    wrapper = elsewhere / "extensions" / "wrapper.ts"
    wrapper.write_text(WRAPPER)
    return ["-e", str(wrapper)]


def resident(pid: int) -> int:
    """The bytes of memory that a process has."""
    run = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(run.stdout) * 1024


def test_a_turn_at_10_000_entries(tmp_path: Path) -> None:
    answers = say("Answer.", usage=(1000, 0, 10, 0))
    with live_home(tmp_path, lambda _: answers, window=100_000_000, plugins=["masking"]) as home:
        options = wrapped(home)
        with home.rpc(*options) as pi:
            pi.prompt("Hello.")
            python = pi.python_side()
            assert python is not None
            baseline = resident(python)
        path = write_large(home.sessions / "large.jsonl", ENTRIES)
        path.write_bytes(path.read_bytes().replace(b"/home/dev/project", str(home.project).encode(), 1))
        with home.rpc(*options, "--session", str(path)) as pi:
            for number in range(TURNS):
                pi.prompt(f"Question {number}.")
            turns = json.loads(pi.slash("/turns"))[4:]  # the first ones wait for the Python side to start
            python = pi.python_side()
            assert python is not None
            used = resident(python) - baseline
            assert pi.errors() == []
            assert [note for note in pi.notes() if "contexthost" in note] == []
        spent = percentile([turn["handlers"] for turn in turns if turn["with"]], 0.95)
        whole = {
            side: percentile([turn["whole"] for turn in turns if turn["with"] is side], 0.5) for side in (True, False)
        }
        report(f"a turn at {ENTRIES} entries: p95 {spent:.2f} ms in the bridge's handlers")
        report(f"a whole turn: median {whole[True]:.1f} ms with the bridge, {whole[False]:.1f} ms without")
        size = path.stat().st_size
        report(
            f"Python side: {used / 1e6:.0f} MB over its {baseline / 1e6:.0f} MB for a session of {size / 1e6:.0f} MB"
        )
        assert spent < GATE_MS
        assert used < 3 * size
