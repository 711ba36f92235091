"""A plugin for the tests of the bridge: it writes down every hook, and does on command what plugins do.

It runs inside the Python side of a real Pi (see `live_pi.PiHome.probe`). ``control.json`` in its data directory says
how it behaves; it is read anew each time. ``seen.jsonl`` there is what it saw.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contexthost import (
    EVENTS,
    Boundary,
    BoundaryThresholdEvent,
    Cancel,
    Command,
    CompactionResult,
    Context,
    Event,
    Handled,
    Hold,
    InputEvent,
    SessionBeforeCompactEvent,
    Tool,
    ToolResult,
    Transform,
    hookimpl,
)
from contexthost.projection import CustomDraft


def control(ctx: Context) -> dict[str, Any]:
    """What the test wants: a fault per hook (``raise``, ``exit``, ``block``, ``hang``, ``die``, ``print``), answers."""
    path = ctx.data_dir / "control.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def see(hook: str, event: Event | None, ctx: Context, **more: Any) -> None:
    fields = {name: getattr(event, name) for name in getattr(event, "__dataclass_fields__", ())}
    plain = {name: value for name, value in fields.items() if isinstance(value, (str, int, float, bool, type(None)))}
    usual = {"pid": os.getpid(), "idle": ctx.is_idle(), "leaf": ctx.session.leaf_id, "session": ctx.session.id}
    with (ctx.data_dir / "seen.jsonl").open("a") as file:
        file.write(json.dumps({"hook": hook, "event": plain, **usual, **more}) + "\n")


def misbehave(hook: str, ctx: Context) -> None:
    """Raises, blocks the event loop or prints, if the test wants that."""
    fault = control(ctx).get(hook)
    if fault == "raise":
        raise ValueError(f"the probe fails in {hook}")
    if fault == "exit":
        raise SystemExit(2)  # as a parser of arguments does
    if fault == "block":
        time.sleep(3600)
    if fault == "print":
        print('{"jsonrpc": "2.0", "id": 1, "result": "a plugin prints"}')
        subprocess.run(["echo", "a program prints"], check=True)


async def hang(hook: str, ctx: Context) -> None:
    """Does not come back before ``hang_seconds``, or is killed after a while, if the test wants that."""
    fault = control(ctx).get(hook)
    if fault == "hang":
        await asyncio.sleep(float(control(ctx).get("hang_seconds", 3600)))
    if fault == "die":
        await asyncio.sleep(0.3)
        die()


def die() -> None:
    """As when the system kills this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def _observer(hook: str) -> Callable[..., Any]:
    async def implementation(event: Event, ctx: Context) -> None:
        see(hook, event, ctx)
        misbehave(hook, ctx)
        await hang(hook, ctx)

    implementation.__name__ = hook
    return hookimpl(implementation)


for _hook in EVENTS:
    if _hook not in {
        "input",
        "session_before_compact",
        "boundary_threshold",
        "session_shutdown",
        "turn_end",
    }:
        globals()[_hook] = _observer(_hook)


@hookimpl
async def boundary_threshold(event: BoundaryThresholdEvent, ctx: Context) -> int | None:
    see("boundary_threshold", event, ctx)
    misbehave("boundary_threshold", ctx)
    await hang("boundary_threshold", ctx)
    wanted: dict[str, int] = control(ctx).get("from", {})
    return wanted.get(event.boundary)


@hookimpl
async def session_shutdown(event: Event, ctx: Context) -> None:
    see("session_shutdown", event, ctx)
    misbehave("session_shutdown", ctx)
    await hang("session_shutdown", ctx)
    if control(ctx).get("linger"):
        await asyncio.sleep(float(control(ctx)["linger"]))
        see("lingered", None, ctx)


@hookimpl
async def turn_end(event: Event, ctx: Context) -> Boundary | None:
    see("turn_end", event, ctx)
    misbehave("turn_end", ctx)
    await hang("turn_end", ctx)
    draft = control(ctx).get("draft")
    return Boundary(drafts=(CustomDraft(custom_type="probe:draft", data=draft),)) if draft is not None else None


@hookimpl(specname="input")
async def on_input(event: InputEvent, ctx: Context) -> Handled | Hold | Transform | None:
    see("input", event, ctx, images=len(event.images))
    misbehave("input", ctx)
    await hang("input", ctx)
    if "slowly" in event.text:
        await asyncio.sleep(float(control(ctx).get("slow_seconds", 0.5)))
    if event.source == "extension":
        await hang("released", ctx)
        if control(ctx).get("released") == "handle":
            return Handled()
        if control(ctx).get("released") == "transform":
            return Transform(event.text.upper())
    if event.text.startswith("transform: "):
        return Transform(event.text.removeprefix("transform: ").upper())
    if event.text.startswith("handled: "):
        return Handled()
    if event.text.startswith("hold: ") and event.source != "extension":
        ctx.spawn(_compact_and_release(ctx))
        return Hold()
    if event.text.startswith(control(ctx).get("keep", "keep: ")) and event.source != "extension":
        return Hold()  # and never released
    if event.text.startswith("park: ") and event.source != "extension":
        ctx.call_later(0.3, lambda: _release(ctx))
        return Hold()
    return None


async def _compact_and_release(ctx: Context) -> None:
    try:
        entry = await ctx.compact(only_if_idle=True, to="probe", custom_instructions="for the held input")
        ctx.ui.notify(f"probe: compacted {entry.id}")
    finally:
        ctx.release_held()


def _release(ctx: Context) -> None:
    """In a timer: dies instead of releasing, or at once after it."""
    if control(ctx).get("parked") == "released":
        ctx.release_held()
    die()


@hookimpl
async def session_before_compact(event: SessionBeforeCompactEvent, ctx: Context) -> Cancel | CompactionResult | None:
    see("session_before_compact", event, ctx, kept=event.preparation.first_kept_entry_id)
    misbehave("session_before_compact", ctx)
    await hang("session_before_compact", ctx)
    while (wanted := control(ctx).get("compaction", "answer")) == "wait":
        await asyncio.sleep(0.02)
    if wanted == "cancel":
        return Cancel("not now")
    if wanted == "nothing" or event.signal.aborted:
        return None
    await asyncio.sleep(float(control(ctx).get("compaction_seconds", 0)))
    return CompactionResult(
        summary=str(control(ctx).get("summary", f"probe: {event.reason} summary")),
        first_kept_entry_id=event.preparation.first_kept_entry_id,
        tokens_before=event.preparation.tokens_before,
        details=control(ctx).get("details", {"probe": True}),
    )


async def _look(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
    see("tool", None, ctx, arguments=dict(arguments))
    if arguments.get("fail"):
        raise LookupError("nothing there")
    if arguments.get("wait"):
        try:
            await asyncio.sleep(float(control(ctx).get("hang_seconds", 3600)))
        finally:
            signal = ctx.signal
            see("tool ended", None, ctx, aborted=signal is not None and signal.aborted)
    return ToolResult(f"looked at {arguments.get('what')} among {len(ctx.session.entries)} entries", details={"n": 1})


@hookimpl
def register_tools() -> Sequence[Tool]:
    parameters = {
        "type": "object",
        "properties": {"what": {"type": "string"}, "fail": {"type": "boolean"}, "wait": {"type": "boolean"}},
    }
    hidden = {"type": "object", "properties": {}}
    return [
        Tool(name="probe_look", description="Looks at something.", parameters=parameters, handler=_look),
        Tool(
            name="probe_hidden",
            description="Never there.",
            parameters=hidden,
            handler=_look,
            available=lambda ctx: False,
        ),
    ]


async def _run(arguments: str, ctx: Context) -> str | None:
    """``/probe WHAT``."""
    what, _, rest = arguments.partition(" ")
    see("command", None, ctx, arguments=arguments)
    if what == "send":
        ctx.send_user_message(rest)
    elif what == "append":
        ctx.append_entry("probe:entry", {"text": rest})
    elif what == "compact":
        entry = await ctx.compact(to=rest or None)
        return f"probe: compacted to {entry.id}: {entry.data['summary']}"
    elif what == "compact-if-idle":
        entry = await ctx.compact(only_if_idle=True, to="probe")
        return f"probe: compacted to {entry.id}"
    elif what == "compact-twice":
        results = await asyncio.gather(ctx.compact(to="probe"), ctx.compact(to="probe"), return_exceptions=True)
        return "probe: " + "; ".join(type(result).__name__ for result in results)
    elif what == "release":
        ctx.release_held()
    elif what == "status":
        ctx.ui.set_status(rest or None)
    elif what == "confirm":
        try:
            return f"probe: {await ctx.ui.confirm('Sure?', rest)}"
        except asyncio.CancelledError:
            ctx.ui.notify("probe: the question is taken back")  # told after it was
            raise
    elif what == "confirm-for":
        return f"probe: {await ctx.ui.confirm('Sure?', rest, timeout_seconds=float(rest))}"
    elif what == "later":
        ctx.call_later(0.2, lambda: ctx.ui.notify("probe: later"))
    elif what == "key":
        return f"probe: {await ctx.credentials(rest)}"
    elif what == "send-twice":
        ctx.send_user_message(rest)
        ctx.send_user_message(rest)
    elif what == "kill":
        die()
    elif what == "limits":
        limits = ctx.compaction_settings
        return f"probe: {limits.enabled} {limits.reserve_tokens} {limits.keep_recent_tokens}"
    elif what == "die-later":
        ctx.call_later(0.2, die)
    elif what == "wait":
        try:
            await hang("command", ctx)
        finally:
            see("command ended", None, ctx)
    elif what == "entries":
        return f"probe: {len(ctx.session.entries)} entries, leaf {ctx.session.leaf_id}, {ctx.snapshot.usage.window}"
    elif what == "fail":
        raise LookupError("the probe fails")
    elif what == "exit":
        raise SystemExit(2)
    return None


@hookimpl
def register_commands() -> Sequence[Command]:
    return [Command(name="probe", description="Does what the test wants", handler=_run)]
