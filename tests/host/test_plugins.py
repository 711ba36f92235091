"""The plugin manager: plugins are found by their entry points, a broken one is left out alone, hooks are called in the
order of the design, and whatever an implementation does, the others run and the session goes on."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, strategies as st

from contexthost import (
    AgentBeforeSettleEvent,
    BeforeProviderHeadersEvent,
    Boundary,
    Cancel,
    Command,
    Continue,
    Handled,
    Hold,
    InputEvent,
    InvalidDraft,
    PluginError,
    PluginFailure,
    PluginManager,
    SessionBeforeSwitchEvent,
    SessionStartEvent,
    Tool,
    ToolResult,
    Transform,
    hookimpl,
    hookspec,
)
from contexthost.config import HostSettings, SettingsSpec

START = SessionStartEvent(reason="startup")
SWITCH = SessionBeforeSwitchEvent(reason="new")


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)


def no_ctx(plugin: str) -> object:
    return None


def plugin(hook: str, function: Callable[..., Any], **options: Any) -> object:
    return SimpleNamespace(**{hook: hookimpl(**options)(function)})


def manager_of(
    hook: str, *, timeout_seconds: float = 60, **functions: Callable[..., Any]
) -> tuple[PluginManager, list[PluginFailure]]:
    """A manager with one plugin per function, in the order given."""
    failures: list[PluginFailure] = []
    manager = PluginManager(order=list(functions), timeout_seconds=timeout_seconds, report=failures.append)
    for name, function in functions.items():
        manager.register(plugin(hook, function), name)
    return manager, failures


# Finding plugins


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Installs throw-away distributions: a module and a .dist-info with its entry point, on a path of their own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules: list[str] = []

    def install(name: str, code: str, *, module: str = "", dist: str = "", version: str = "1.2") -> None:
        module = module or f"throwaway_{name}"
        dist = dist or f"contexthost-{name}"
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(code))
        info = tmp_path / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[contexthost]\n{name} = {module}\n")
        modules.append(module)

    yield install
    for module in modules:
        sys.modules.pop(module, None)


GOOD = """
    from contexthost import hookimpl

    @hookimpl
    def session_before_switch(event):
        return None
"""


def states(manager: PluginManager) -> dict[str, str]:
    return {info.name: info.state for info in manager.plugins if info.name.startswith("t_")}


def about(manager: PluginManager, name: str) -> str:
    (warning,) = [text for text in manager.warnings if text.startswith(f"plugin {name} ")]
    return warning


def test_an_installed_plugin_is_loaded_with_its_name_version_and_hooks(install: Callable[..., None]) -> None:
    install("t_good", GOOD)
    manager = PluginManager()
    manager.load()
    (info,) = [info for info in manager.plugins if info.name == "t_good"]
    assert (info.state, info.dist, info.version, info.error) == ("active", "contexthost-t_good", "1.2", None)
    assert info.hooks == ("session_before_switch",)
    assert "t_good" in [found.plugin for found in manager.implementations("session_before_switch")]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import no_such_module_anywhere", "contexthost-t_bad 1.2 cannot be imported: ModuleNotFoundError"),
        ("1 / 0", "contexthost-t_bad 1.2 cannot be imported: ZeroDivisionError: division by zero"),
        ("def broken(:", "cannot be imported: SyntaxError"),
        ("raise SystemExit(3)", "it ends the program when it is imported"),
        (
            "from contexthost import hookimpl\n@hookimpl\ndef sesion_start(event): pass",
            "there is no hook sesion_start, did you mean session_start?",
        ),
        ("from contexthost import hookimpl\n@hookimpl\ndef input(event, contxt): pass", "contxt"),
        (
            "from contexthost import hookimpl\n@hookimpl(wrapper=True)\ndef context(event):\n    yield",
            "hook context is a wrapper",
        ),
        (
            "from contexthost import hookimpl\n@hookimpl(hookwrapper=True)\ndef context(event):\n    yield",
            "hook context is a wrapper",
        ),
        (
            "from contexthost import hookimpl\n@hookimpl\ndef register_hookspecs(): return object()",
            "register_hookspecs: there is no function marked with hookspec",
        ),
        (
            "from contexthost import hookimpl, hookspecs\n@hookimpl\ndef register_hookspecs(): return hookspecs",
            "is declared already",
        ),
    ],
)
def test_a_broken_plugin_is_left_out_alone_and_the_warning_says_why(
    install: Callable[..., None], code: str, told: str
) -> None:
    install("t_bad", code)
    install("t_good", GOOD)
    manager = PluginManager()
    manager.load()
    assert states(manager) == {"t_bad": "failed", "t_good": "active"}
    assert told in about(manager, "t_bad")
    (info,) = [info for info in manager.plugins if info.name == "t_bad"]
    assert told in (info.error or "")
    assert info.hooks == ()


def test_a_disabled_plugin_is_listed_and_not_imported(install: Callable[..., None]) -> None:
    install("t_off", "raise RuntimeError('imported')")
    manager = PluginManager()
    manager.load(disabled=["t_off", "t_never_heard_of"])
    assert states(manager) == {"t_off": "disabled"}
    assert manager.warnings == ["plugin t_never_heard_of is disabled in host.json, but no such plugin is installed"]


def test_of_two_distributions_with_one_plugin_name_the_second_is_left_out(install: Callable[..., None]) -> None:
    install("t_twin", GOOD, module="throwaway_one", dist="contexthost-one")
    install("t_twin", GOOD, module="throwaway_two", dist="contexthost-two")
    manager = PluginManager()
    manager.load()
    found = sorted((info.state, info.dist) for info in manager.plugins if info.name == "t_twin")
    assert [state for state, _ in found] == ["active", "failed"]
    assert {dist for _, dist in found} == {"contexthost-one", "contexthost-two"}
    assert "the name is already taken by contexthost-" in about(manager, "t_twin")


def test_a_plugin_given_by_the_embedder_fails_loudly() -> None:
    def misspelt(event: object) -> None: ...

    with pytest.raises(PluginError, match=r"plugin mine: there is no hook agent_setled, did you mean agent_settled\?"):
        PluginManager().load(
            extra=[SimpleNamespace(plugin_name="mine", agent_setled=hookimpl(misspelt))], entry_points=False
        )

    def wrapper(event: object) -> Iterator[None]:
        yield

    with pytest.raises(PluginError, match="plugin w: hook context is a wrapper"):
        PluginManager().register(plugin("context", wrapper, wrapper=True), "w")
    manager = PluginManager()
    manager.register(plugin("context", lambda event: None), "taken")
    with pytest.raises(PluginError, match="plugin taken: the name is already taken"):
        manager.register(plugin("context", lambda event: None), "taken")


# Hooks of a plugin's own


class NoteHooks:
    @hookspec
    def note_sections(self, event: object, ctx: object) -> None:
        """More text for a note."""


def test_a_plugin_declares_a_hook_that_others_implement() -> None:
    declaring = plugin("register_hookspecs", lambda: NoteHooks)
    manager = PluginManager()
    manager.register(plugin("note_sections", lambda event: f"more on {event}", optionalhook=True), "other")
    manager.load(extra=[declaring], entry_points=False)
    chained = asyncio.run(manager.chain("note_sections", "cats", no_ctx))
    assert chained.answers == (("other", "more on cats"),)
    assert chained.event == "cats"


def test_without_the_declaring_plugin_an_optional_hook_is_never_called() -> None:
    manager = PluginManager()
    manager.load(extra=[plugin("note_sections", lambda event: 1, optionalhook=True)], entry_points=False)
    with pytest.raises(PluginError, match="there is no hook note_sections"):
        manager.implementations("note_sections")


# Order


NAMES = ["relay", "codex_native", "jev", "masking", "alpha", "zeta"]


@given(
    st.permutations(NAMES),
    st.dictionaries(st.sampled_from(NAMES), st.sampled_from(["tryfirst", "trylast"])),
    st.none() | st.lists(st.sampled_from(NAMES)),
)
def test_tryfirst_then_rank_then_trylast_however_plugins_were_registered(
    registered: list[str], options: dict[str, str], order: list[str] | None
) -> None:
    manager = PluginManager() if order is None else PluginManager(order=order)
    calls: list[str] = []
    for name in registered:

        async def implementation(event: object, name: str = name) -> None:
            calls.append(name)

        manager.register(
            plugin("session_start", implementation, **({options[name]: True} if name in options else {})), name
        )
    asyncio.run(manager.notify("session_start", START, no_ctx))

    ranked = ["relay", "codex_native", "jev", "masking"] if order is None else list(dict.fromkeys(order))
    ranked += sorted(set(NAMES) - set(ranked))
    groups = [[name for name in ranked if options.get(name) == group] for group in ("tryfirst", None, "trylast")]
    assert calls == [name for group in groups for name in group]
    assert [info.name for info in manager.plugins] == ranked


# Dispatch


def test_an_implementation_gets_the_arguments_it_asks_for_and_its_own_context() -> None:
    seen: list[Any] = []

    def nothing() -> None:
        seen.append("nothing")

    def swapped(ctx: object, event: object) -> None:
        seen.append((ctx, event))

    manager, failures = manager_of("session_start", a=nothing, b=swapped, c=lambda event: seen.append(event))
    asyncio.run(manager.notify("session_start", START, lambda name: f"ctx of {name}"))
    assert seen == ["nothing", ("ctx of b", START), START]
    assert failures == []


def test_an_exception_is_told_once_and_the_next_plugin_runs() -> None:
    ran: list[str] = []

    def broken(event: object) -> None:
        raise ValueError("cannot read the file")

    async def broken_later(event: object) -> None:
        await asyncio.sleep(0)
        raise ValueError("no luck")

    manager, failures = manager_of("session_start", a=broken, b=broken_later, c=lambda event: ran.append("c"))

    async def twice() -> None:
        await manager.notify("session_start", START, no_ctx)
        await manager.notify("session_start", START, no_ctx)

    asyncio.run(twice())
    assert ran == ["c", "c"]
    assert [str(failure) for failure in failures] == [
        "plugin a, hook session_start: ValueError: cannot read the file",
        "plugin b, hook session_start: ValueError: no luck",
    ]


def test_every_failure_is_logged_with_the_plugin_s_name(caplog: pytest.LogCaptureFixture) -> None:
    def broken(event: object) -> None:
        raise ValueError("again")

    manager, _ = manager_of("session_start", culprit=broken)
    with caplog.at_level(logging.ERROR, "contexthost"):
        for _ in range(3):
            asyncio.run(manager.notify("session_start", START, no_ctx))
    assert [record.message for record in caplog.records] == [
        "plugin culprit, hook session_start: ValueError: again"
    ] * 3


def test_past_its_deadline_an_implementation_is_cancelled_and_the_next_one_runs() -> None:
    ended: list[str] = []

    async def slow(event: object) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")

    manager, failures = manager_of(
        "session_start", timeout_seconds=0.2, slow=slow, next=lambda event: ended.append("next")
    )
    started = time.monotonic()
    asyncio.run(manager.notify("session_start", START, no_ctx))
    assert ended == ["cancelled", "next"]
    assert 0.2 <= time.monotonic() - started < 20
    assert [str(failure) for failure in failures] == ["plugin slow, hook session_start: no answer within 0.2 s"]


def test_an_implementation_that_will_not_be_cancelled_is_left_behind() -> None:
    async def stubborn(event: object) -> str:
        for _ in range(30):
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        return "too late"

    manager, failures = manager_of(
        "session_before_switch", timeout_seconds=0.2, stubborn=stubborn, next=lambda event: Cancel("mine")
    )

    async def measured() -> tuple[Any, float]:
        started = time.monotonic()
        answer = await manager.first("session_before_switch", SWITCH, no_ctx)
        return answer, time.monotonic() - started

    answer, taken = asyncio.run(measured())
    assert answer == ("next", Cancel("mine"))
    assert taken < 2
    assert failures[0].problem == "no answer within 0.2 s"


def test_a_plain_function_that_blocks_is_told() -> None:
    manager, failures = manager_of("session_start", timeout_seconds=0.2, blocks=lambda event: time.sleep(0.25))
    asyncio.run(manager.notify("session_start", START, no_ctx))
    assert re.search(r"blocked everything for \d+\.\d s", str(failures[0]))


def test_cancelling_the_dispatch_cancels_the_implementation_and_comes_out() -> None:
    seen: list[str] = []

    async def waits(event: object) -> None:
        try:
            await asyncio.sleep(60)
            seen.append("finished")
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    manager, failures = manager_of("session_start", waits=waits, next=lambda event: seen.append("next"))

    async def scene() -> None:
        task = asyncio.create_task(manager.notify("session_start", START, no_ctx))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scene())
    assert seen == ["cancelled"]
    assert failures == []


def test_a_plugin_that_cancels_itself_is_a_failed_plugin_not_a_cancelled_session() -> None:
    ran: list[str] = []

    async def waits_for_a_cancelled_task(event: object) -> None:
        task = asyncio.create_task(asyncio.sleep(1))
        task.cancel()
        await task

    manager, failures = manager_of("session_start", a=waits_for_a_cancelled_task, next=lambda event: ran.append("next"))
    asyncio.run(manager.notify("session_start", START, no_ctx))
    assert ran == ["next"]
    assert failures[0].problem == "something that it waited for was cancelled"


def test_a_plugin_that_ends_the_program_ends_itself_alone() -> None:
    ran: list[str] = []

    def exits(event: object) -> None:
        sys.exit("usage: …")

    async def exits_later(event: object) -> None:
        await asyncio.sleep(0)
        sys.exit(2)

    manager, failures = manager_of(
        "session_start", a=exits, b=exits_later, next=lambda event: ran.append("next")
    )
    asyncio.run(manager.notify("session_start", START, no_ctx))
    assert ran == ["next"]
    assert [failure.problem for failure in failures] == [
        "it tried to end the program (exit status usage: …)",
        "it tried to end the program (exit status 2)",
    ]


def test_an_interrupt_is_not_a_plugin_s_failure() -> None:
    def interrupted(event: object) -> None:
        raise KeyboardInterrupt

    async def interrupted_later(event: object) -> None:
        raise KeyboardInterrupt

    for function in (interrupted, interrupted_later):
        manager, failures = manager_of("session_start", a=function)
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(manager.notify("session_start", START, no_ctx))
        assert failures == []


def test_a_report_that_fails_does_not_stop_the_others() -> None:
    ran: list[str] = []

    def report(failure: PluginFailure) -> None:
        raise RuntimeError("the terminal is gone")

    def broken(event: object) -> None:
        raise ValueError

    manager = PluginManager(report=report)
    manager.register(plugin("session_start", broken), "a")
    manager.register(plugin("session_start", lambda event: ran.append("b")), "b")
    asyncio.run(manager.notify("session_start", START, no_ctx))
    assert ran == ["b"]


# Patterns


def test_first_takes_the_first_answer_and_the_rest_never_run() -> None:
    ran: list[str] = []

    async def answers(event: object) -> Cancel:
        ran.append("b")
        return Cancel("b says no")

    manager, _ = manager_of(
        "session_before_switch", a=lambda event: ran.append("a"), b=answers, c=lambda event: ran.append("c")
    )
    assert asyncio.run(manager.first("session_before_switch", SWITCH, no_ctx)) == ("b", Cancel("b says no"))
    assert ran == ["a", "b"]


def test_first_with_one_plugin_named_asks_no_other() -> None:
    ran: list[str] = []

    def broken(event: object) -> None:
        raise ValueError("no note")

    manager, _ = manager_of("session_before_switch", other=lambda event: ran.append("other"), relay=broken)
    failures: list[PluginFailure] = []
    answer = asyncio.run(manager.first("session_before_switch", SWITCH, no_ctx, only="relay", failures=failures))
    assert answer is None
    assert ran == []
    assert [failure.problem for failure in failures] == ["ValueError: no note"]
    assert asyncio.run(manager.first("session_before_switch", SWITCH, no_ctx, only="absent")) is None


def test_an_answer_of_the_wrong_kind_counts_as_none() -> None:
    manager, failures = manager_of(
        "session_before_switch", a=lambda event: {"cancel": True}, b=lambda event: Cancel("really")
    )
    assert asyncio.run(manager.first("session_before_switch", SWITCH, no_ctx)) == ("b", Cancel("really"))
    assert failures[0].problem == "answered a dict, not Cancel"


def test_an_answer_that_the_check_refuses_counts_as_none() -> None:
    def check(name: str, answer: Cancel) -> None:
        if not answer.reason:
            raise InvalidDraft("no reason given")

    manager, failures = manager_of("session_before_switch", a=lambda event: Cancel(), b=lambda event: Cancel("why"))
    assert asyncio.run(manager.first("session_before_switch", SWITCH, no_ctx, check=check)) == ("b", Cancel("why"))
    assert failures[0].problem == "its answer cannot be used: no reason given"


def test_a_chain_hands_each_plugin_what_the_one_before_made_of_it() -> None:
    seen: list[str] = []

    def upper(event: InputEvent) -> Transform:
        seen.append(event.text)
        return Transform(event.text.upper())

    async def twice(event: InputEvent) -> Transform:
        seen.append(event.text)
        return Transform(event.text * 2, images=())

    manager, _ = manager_of("input", a=upper, b=lambda event: Continue(), c=lambda event: None, d=twice)
    image = {"type": "image", "data": "", "mimeType": "image/png"}
    chained = asyncio.run(manager.chain("input", InputEvent(text="ab", images=(image,)), no_ctx))
    assert seen == ["ab", "AB"]
    assert chained.event == InputEvent(text="ABAB", images=())
    assert [name for name, _ in chained.answers] == ["a", "b", "d"]
    assert chained.ended_by is None


@pytest.mark.parametrize("last", [Handled(), Hold()])
def test_handled_and_hold_end_a_chain(last: Handled | Hold) -> None:
    ran: list[str] = []
    manager, _ = manager_of("input", a=lambda event: last, b=lambda event: ran.append("b"))
    chained = asyncio.run(manager.chain("input", InputEvent(text="x"), no_ctx))
    assert chained.ended_by == ("a", last)
    assert ran == []


def test_an_answer_that_cannot_be_applied_is_dropped_alone() -> None:
    def apply(event: int, answer: int) -> int:
        if answer < 0:
            raise InvalidDraft("negative")
        return event + answer

    class Sums:
        @hookspec
        def sum_up(self, event: int) -> None: ...

    manager, failures = manager_of("sum_up", a=lambda event: 1, b=lambda event: -5, c=lambda event: event * 10)
    manager.load(extra=[plugin("register_hookspecs", lambda: Sums)], entry_points=False)
    chained = asyncio.run(manager.chain("sum_up", 1, no_ctx, apply=apply))
    assert chained.event == 22
    assert chained.answers == (("a", 1), ("c", 20))
    assert failures[0].problem == "its answer cannot be used: negative"


def test_boundaries_add_up() -> None:
    first: Any = "draft 1"
    second: Any = "draft 2"
    nothing: Any = None
    event = AgentBeforeSettleEvent(outcome="completed", context=nothing)
    after = event.apply(Boundary((first,), continue_run=True)).apply(Boundary((second,)))
    assert after.entries == (first, second)
    assert after.continue_run is True


def test_headers_are_set_and_taken_away_whatever_their_case() -> None:
    event = BeforeProviderHeadersEvent(headers={"Authorization": "Bearer secret-1", "x-a": "1"})
    assert event.apply({"authorization": None, "X-B": "2"}).headers == {"x-a": "1", "authorization": None, "X-B": "2"}
    assert "secret-1" not in repr(event)


# Registrations


async def nothing(arguments: str, ctx: object) -> None: ...


def command(name: Any, **changes: Any) -> Command:
    usual: dict[str, Any] = {"name": name, "description": "", "handler": nothing}
    return Command(**{**usual, **changes})


def test_registrations_are_collected_in_order_and_failures_stay_their_own() -> None:
    def broken() -> None:
        raise OSError("gone")

    async def asynchronous() -> None: ...

    manager, failures = manager_of(
        "register_commands", a=lambda: [command("x")], b=broken, c=asynchronous, d=lambda: None, e=lambda: ()
    )
    assert [(name, len(value)) for name, value in manager.collect("register_commands")] == [("a", 1), ("e", 0)]
    assert [failure.problem for failure in failures] == [
        "OSError: gone",
        "a registration must be a plain function, not async",
    ]


def test_items_are_checked_and_a_name_belongs_to_the_first_plugin() -> None:
    one, two, three = command("one"), command("one"), command("three")
    manager, failures = manager_of("register_commands", a=lambda: one, b=lambda: [two, "four", three], c=lambda: 5)
    assert manager.items("register_commands", Command) == [("a", one), ("b", three)]
    assert {failure.plugin for failure in failures} == {"b", "c"}
    assert failures[0].problem == "the name one is already taken by plugin a"


def test_settings_belong_to_the_first_plugin_that_names_their_package() -> None:
    mine, theirs = SettingsSpec("masking", HostSettings), SettingsSpec("masking", HostSettings)
    manager, failures = manager_of("register_settings", a=lambda: [mine], b=lambda: [theirs])
    assert manager.items("register_settings", SettingsSpec) == [("a", mine)]
    assert [failure.problem for failure in failures] == ["the name masking is already taken by plugin a"]


async def handle(*_: object) -> ToolResult:
    return ToolResult("")


def tool(**changes: Any) -> Tool:
    usual: dict[str, Any] = {"name": "look", "description": "", "parameters": {"type": "object"}, "handler": handle}
    return Tool(**{**usual, **changes})


CIRCLE: dict[str, Any] = {"type": "object"}
CIRCLE["properties"] = CIRCLE


class Unreadable(Command):
    """Its name is a surprise."""

    def __getattribute__(self, name: str) -> Any:
        if name == "name":
            raise LookupError("no name")
        return super().__getattribute__(name)


BAD_ITEMS = [
    (tool(name=""), "Tool '': the name is empty"),
    (tool(name=" \n"), "Tool ' \\n': the name is empty"),
    (tool(name=["look"]), "the name of a Tool must be a text, not a list"),
    (tool(name=None), "the name of a Tool must be a text, not a NoneType"),
    *(
        (tool(name=name), f"Tool {shown}: providers only take names of 1 to 64 letters (a-z, A-Z), digits, _ and -")
        for name, shown in {
            "look up": "'look up'",
            "look/up": "'look/up'",
            "look.up": "'look.up'",
            "größe": "'größe'",
            "look\n": r"'look\n'",
            "x" * 65: f"'{'x' * 65}'",
        }.items()
    ),
    (tool(description=None), "Tool 'look': description must be a text, not a NoneType"),
    (tool(handler="look"), "Tool 'look': handler must be a function, not a str"),
    (tool(available=True), "Tool 'look': available must be a function, not a bool"),
    (tool(parameters=None), "Tool 'look': parameters must be a JSON Schema, not a NoneType"),
    (tool(parameters=[]), "Tool 'look': parameters must be a JSON Schema, not a list"),
    (
        tool(parameters={"type": "object", "enum": {1}}),
        "Tool 'look': parameters are not JSON (Object of type set is not JSON serializable",
    ),
    (
        tool(parameters={"type": "object", "maximum": float("nan")}),
        "Tool 'look': parameters are not JSON (Out of range float values",
    ),
    (tool(parameters=CIRCLE), "Tool 'look': parameters are not JSON (Circular reference detected"),
    (tool(parameters={"type": "object", 1: 2}), "Tool 'look': parameters are not JSON (a key is not a text)"),
    (tool(parameters={}), "Tool 'look': parameters must be the JSON Schema of an object: {\"type\": \"object\", …}"),
    (
        tool(parameters={"type": "object", "properties": {"a": {"type": "text"}}}),
        "Tool 'look': parameters are no JSON Schema (a: there is no type 'text')",
    ),
    (
        tool(parameters={"type": "object", "properties": {"a": {"type": "array", "items": {"type": ["b"]}}}}),
        "Tool 'look': parameters are no JSON Schema (a[]: there is no type 'b')",
    ),
    (
        tool(parameters={"type": "object", "properties": []}),
        "Tool 'look': parameters are no JSON Schema (parameters: properties is not an object)",
    ),
    (
        tool(parameters={"type": "object", "properties": {"a": "text"}}),
        "Tool 'look': parameters are no JSON Schema (a is no schema)",
    ),
    (
        tool(parameters={"type": "object", "required": "a"}),
        "Tool 'look': parameters are no JSON Schema (parameters: required is not a list of names)",
    ),
    (command(""), "Command '': the name is empty"),
    (command(7), "the name of a Command must be a text, not a int"),
    *(
        (
            command(name),
            f"Command {shown}: nobody can type a name with spaces, a slash in front or what cannot be printed",
        )
        for name, shown in {"a b": "'a b'", "/a": "'/a'", "a\nb": r"'a\nb'", "a\ud800": r"'a\ud800'"}.items()
    ),
    (command("x", description=b""), "Command 'x': description must be a text, not a bytes"),
    (command("x", handler=None), "Command 'x': handler must be a function, not a NoneType"),
    (Unreadable(name="x", description="", handler=nothing), "a Command cannot be looked at (LookupError: no name)"),
    (SettingsSpec("", HostSettings), "SettingsSpec '': the name is empty"),
    (SettingsSpec("a", dict), "SettingsSpec 'a': model must be a class below contexthost.config.Settings"),  # type: ignore[arg-type]
    (SettingsSpec("a", HostSettings, []), "SettingsSpec 'a': environment must be a mapping"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("bad", "problem"), BAD_ITEMS, ids=[problem[:60] for _, problem in BAD_ITEMS])
def test_an_item_that_cannot_be_used_is_left_out_alone_and_the_reason_told(bad: object, problem: str) -> None:
    """Those before and behind it stay, of the same plugin and of others: whoever works with all of them (the extension
    in Pi, a request to a provider) would fail as a whole."""
    kind: type[Any] = next(kind for kind in (Tool, Command, SettingsSpec) if isinstance(bad, kind))
    some: dict[type[Any], list[Any]] = {
        Tool: [tool(name=name) for name in "abc"],
        Command: [command(name) for name in "abc"],
        SettingsSpec: [SettingsSpec(name, HostSettings) for name in "abc"],
    }
    good = some[kind]
    manager, failures = manager_of("register_tools", one=lambda: [good[0], bad, good[1]], two=lambda: [good[2]])
    assert manager.items("register_tools", kind) == [("one", good[0]), ("one", good[1]), ("two", good[2])]
    assert [failure.plugin for failure in failures] == ["one"]
    assert failures[0].problem.startswith(problem)  # the rest is the words of json


def test_items_that_are_only_unusual_are_taken() -> None:
    """Names at the limits of what providers and Pi take, a tuple in a schema, a mapping that is no dict: all work."""
    schema = MappingProxyType({"type": "object", "properties": {"a": {"enum": ("x", "y")}}, "required": ("a",)})
    tools = [tool(name="x" * 64), tool(name="A-b_9", parameters=schema)]
    manager, failures = manager_of("register_tools", a=lambda: tools)
    assert [item for _, item in manager.items("register_tools", Tool)] == tools
    commands = [command("a/b"), command("größe"), command("x" * 300), command("a:b")]
    more, others = manager_of("register_commands", a=lambda: commands)
    assert [item for _, item in more.items("register_commands", Command)] == commands
    assert (failures, others) == ([], [])


def test_no_implementation_at_all_is_no_answer() -> None:
    manager = PluginManager()
    assert manager.collect("register_tools") == []
    assert asyncio.run(manager.first("session_before_switch", SWITCH, no_ctx)) is None
    assert asyncio.run(manager.chain("input", InputEvent(text="x"), no_ctx)).event == InputEvent(text="x")
