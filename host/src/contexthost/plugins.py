"""The plugin manager: which plugins are there, in which order they are asked, and what happens when one fails.

`PluginManager.load` finds plugins by their entry points (group ``contexthost``); one that cannot be imported or
registered is left out with a warning, and the others go on. The three ways to dispatch a hook, `notify`, `chain` and
`first`, call and await each implementation themselves: ``pm.hook.x(...)`` would create every coroutine at once, drop
``None``, lose which plugin answered, and let one exception stop the rest.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from contexthost._dispatch import Caught, EndedItself, Implementation, PastDeadline, call
from contexthost._items import item_name, item_problem
from contexthost._registry import PluginInfo, Registry
from contexthost.errors import ContexthostError, PluginError
from contexthost.events import Cancel, Event, Handled, Hold

__all__ = ["Chained", "ContextFor", "PluginFailure", "PluginInfo", "PluginManager"]

DEFAULT_ORDER = ("relay", "codex_native", "jev", "masking")
DEFAULT_TIMEOUT_SECONDS = 10.0

ContextFor = Callable[[str], object]
"""Plugin name → the ``ctx`` of that plugin."""

_log = logging.getLogger(__name__)
_E = TypeVar("_E")
_K = TypeVar("_K")


@dataclass(frozen=True, slots=True)
class PluginFailure:
    """One failure of one implementation; `str` is the sentence for the user."""

    plugin: str
    hook: str
    problem: str
    error: Exception | None = None

    def __str__(self) -> str:
        return f"plugin {self.plugin}, hook {self.hook}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Chained(Generic[_E]):
    """What came of a chain."""

    event: _E
    """The event as the last implementation left it."""
    answers: tuple[tuple[str, Any], ...]
    """(plugin, answer) of all that answered, in order."""
    ended_by: tuple[str, Any] | None
    """The (plugin, answer) that ended the chain before its end: Handled, Hold or Cancel."""


class PluginManager:
    """The plugins of one host.

    ``order`` ranks them; ``report`` is told of a failure once per plugin and hook (the log has every one).
    """

    def __init__(
        self,
        *,
        order: Sequence[str] = DEFAULT_ORDER,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
        report: Callable[[PluginFailure], None] | None = None,
    ) -> None:
        self._registry = Registry(order)
        self._timeout = timeout_seconds
        self._report = report
        self._reported: set[tuple[str, str]] = set()

    # Loading -------------------------------------------------------------------------------------------------------

    def load(self, *, disabled: Iterable[str] = (), extra: Iterable[object] = (), entry_points: bool = True) -> None:
        """Load the installed plugins but the disabled ones, then the plugin objects given as ``extra``.

        An installed plugin that fails is left out, with a warning. Raises PluginError when one of ``extra`` fails:
        whoever passes it can mend it.
        """
        if entry_points:
            self._registry.load_installed(frozenset(disabled))
        for plugin in extra:
            self._registry.register(plugin)
        for declaring, value in self.collect("register_hookspecs"):
            self._registry.adopt_hookspecs(declaring, value)
        self._registry.drop_pending()
        self.check_pending()

    def register(self, plugin: object, name: str | None = None) -> str:
        """Register a plugin object; returns its name (``name``, its ``plugin_name``, or its module's or class's).

        An object that is registered already stays as it is. Raises PluginError, naming plugin and hook, for a taken
        name, hook wrappers and wrong arguments; the plugin is then not registered.
        """
        return self._registry.register(plugin, name)

    def check_pending(self) -> None:
        """Raise PluginError when a plugin implements a hook that nobody declares, naming both."""
        for _, problem in self._registry.pending():
            raise PluginError(problem)

    @property
    def plugins(self) -> list[PluginInfo]:
        """All plugins that were found, in the order in which hooks call them; failed and disabled ones too."""
        return self._registry.infos()

    @property
    def warnings(self) -> list[str]:
        """What was left out while loading, and why."""
        return self._registry.warnings

    def implementations(self, hook: str) -> list[Implementation]:
        """The implementations of a hook in calling order: ``tryfirst``, by rank, ``trylast``.

        Raises PluginError for a hook that nobody declares.
        """
        return self._registry.implementations(hook)

    # Registrations ---------------------------------------------------------------------------------------------------

    def collect(self, hook: str) -> list[tuple[str, Any]]:
        """What the plugins return from a registration hook: (plugin, value) of all that return something."""
        values = []
        for implementation in self.implementations(hook):
            value = None
            with Caught() as caught:
                value = implementation.function()
            if caught.error is not None:
                self._failed(implementation, _told(caught.error), caught.error)
            elif inspect.iscoroutine(value):
                value.close()
                self._failed(implementation, "a registration must be a plain function, not async")
            elif value is not None:
                values.append((implementation.plugin, value))
        return values

    def items(self, hook: str, kind: type[_K]) -> list[tuple[str, _K]]:
        """The single items of a registration hook (commands, tools, …), checked: (plugin, item).

        What is not a ``kind``, cannot be used (a tool whose schema is none, a command that nobody can type), or has a
        name that an item before it has, is left out and reported: foreign code makes these, and one that fails later,
        where many are worked with at once, would take all of them down.
        """
        found: list[tuple[str, _K]] = []
        owners: dict[object, str] = {}
        for plugin, value in self.collect(hook):
            whose = Implementation(plugin, hook, self.collect, ())
            items: list[Any] = []
            with Caught() as caught:
                items = [value] if isinstance(value, kind) else list(value)
            if caught.error is not None:
                self._failed(whose, f"returned no list ({_told(caught.error)})", caught.error)
            for item in items:
                problem: str | None = f"returned a {type(item).__name__}, not a {kind.__name__}"
                name: object = None
                with Caught() as caught:
                    if isinstance(item, kind):
                        name, problem = item_name(item), item_problem(item)
                if caught.error is not None:
                    problem = f"a {kind.__name__} cannot be looked at ({_told(caught.error)})"
                elif problem is None and name in owners:
                    problem = f"the name {name} is already taken by plugin {owners[name]}"
                if problem is not None:
                    self._failed(whose, problem, caught.error)
                    continue
                owners[name] = plugin
                found.append((plugin, item))
        return found

    # Dispatch --------------------------------------------------------------------------------------------------------

    async def notify(self, hook: str, event: object, ctx: ContextFor, *, timeout_seconds: float | None = None) -> None:
        """Call every implementation, one after the other; what they return is ignored."""
        asked = self.implementations(hook)
        for implementation in asked:
            await self._call(implementation, event, ctx, timeout_seconds, last=implementation is asked[-1])

    async def chain(
        self,
        hook: str,
        event: _E,
        ctx: ContextFor,
        *,
        apply: Callable[[_E, Any], _E] | None = None,
        timeout_seconds: float | None = None,
    ) -> Chained[_E]:
        """Call every implementation with the event as those before it left it, until one ends the chain.

        ``apply`` makes the next event from an answer (default: the event's own ``apply``; without one the event
        stays). An answer that it refuses with an exception is reported and dropped.
        """
        answers: list[tuple[str, Any]] = []
        step = apply or _apply
        asked = self.implementations(hook)
        for implementation in asked:
            answer = await self._call(implementation, event, ctx, timeout_seconds, last=implementation is asked[-1])
            if answer is None:
                continue
            with Caught() as caught:
                event = step(event, answer)
            if caught.error is not None:
                self._failed(implementation, f"its answer cannot be used: {caught.error}", caught.error)
                continue
            answers.append((implementation.plugin, answer))
            if isinstance(answer, (Cancel, Handled, Hold)):
                return Chained(event, tuple(answers), answers[-1])
        return Chained(event, tuple(answers), None)

    async def first(
        self,
        hook: str,
        event: object,
        ctx: ContextFor,
        *,
        only: str | None = None,
        check: Callable[[str, Any], None] | None = None,
        failures: list[PluginFailure] | None = None,
        timeout_seconds: float | None = None,
    ) -> tuple[str, Any] | None:
        """Call implementations until one answers: (plugin, answer); the rest never run. None: nobody answered.

        ``only`` asks one plugin alone. ``check(plugin, answer)`` refuses an answer by raising a ContexthostError:
        that is reported, and the next plugin is asked. Failures on the way are also appended to ``failures``.
        """
        asked = [found for found in self.implementations(hook) if only is None or found.plugin == only]
        for implementation in asked:
            last = implementation is asked[-1]
            answer = await self._call(implementation, event, ctx, timeout_seconds, failures, last=last)
            if answer is None:
                continue
            try:
                if check is not None:
                    check(implementation.plugin, answer)
            except ContexthostError as error:
                self._failed(implementation, f"its answer cannot be used: {error}", error, failures)
                continue
            return implementation.plugin, answer
        return None

    async def _call(
        self,
        implementation: Implementation,
        event: object,
        ctx: ContextFor,
        timeout_seconds: float | None,
        failures: list[PluginFailure] | None = None,
        *,
        last: bool,
    ) -> Any:
        """One implementation's answer; None when it gives none, fails, is too late or answers nonsense."""
        deadline = self._timeout if timeout_seconds is None else timeout_seconds
        arguments = {"event": event, "ctx": ctx(implementation.plugin)}
        started = time.monotonic()
        answer = None
        with Caught() as caught:
            answer = await call(implementation, arguments, deadline, last=last)
        if caught.error is not None:
            self._failed(implementation, _told(caught.error), caught.error, failures)
            return None
        taken = time.monotonic() - started
        if taken > deadline and not inspect.iscoroutinefunction(implementation.function):
            self._failed(implementation, f"blocked everything for {taken:.1f} s; what waits must be async", None)
        results = event.results if isinstance(event, Event) else ()
        if answer is not None and results and not isinstance(answer, results):
            wanted = " or ".join(result.__name__ for result in results)
            self._failed(implementation, f"answered a {type(answer).__name__}, not {wanted}", None, failures)
            return None
        return answer

    def _failed(
        self,
        implementation: Implementation,
        problem: str,
        error: Exception | None = None,
        failures: list[PluginFailure] | None = None,
    ) -> None:
        failure = PluginFailure(implementation.plugin, implementation.hook, problem, error)
        _log.error("%s", failure, exc_info=error)
        if failures is not None:
            failures.append(failure)
        key = (failure.plugin, failure.hook)
        if self._report is not None and key not in self._reported:
            self._reported.add(key)
            with Caught() as caught:
                self._report(failure)
            if caught.error is not None:
                _log.error("the failure of a plugin could not be reported", exc_info=caught.error)


def _apply(event: _E, answer: Any) -> _E:
    own: Callable[[Any], _E] | None = getattr(event, "apply", None)
    return event if own is None else own(answer)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, (PastDeadline, EndedItself)) else f"{type(error).__name__}: {error}"
