"""Which plugins there are: found, registered, checked against the hooks, put in order."""

from __future__ import annotations

import difflib
import importlib.metadata
import inspect
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import pluggy

from contexthost import hookspecs
from contexthost._dispatch import Caught, Implementation
from contexthost.errors import PluginError

GROUP = "contexthost"
"""The entry point group of plugins."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """What ``contexthost plugins`` says of a plugin."""

    name: str
    state: Literal["active", "disabled", "failed"]
    dist: str | None = None
    version: str | None = None
    error: str | None = None
    """Why it failed."""
    hooks: tuple[str, ...] = ()
    """The hooks that it implements, by name."""


class Registry:
    """The plugins and their hook implementations, on a pluggy manager whose calling machinery is not used."""

    def __init__(self, order: Sequence[str]) -> None:
        self.warnings: list[str] = []
        self._ranks = {name: rank for rank, name in enumerate(dict.fromkeys(order))}
        self._infos: dict[str, PluginInfo] = {}
        self._rejected: list[PluginInfo] = []
        self._pm = pluggy.PluginManager(hookspecs.PROJECT)
        self._pm.add_hookspecs(hookspecs)

    def load_installed(self, disabled: frozenset[str]) -> None:
        """Import and register the plugins of the entry points; those that fail are left out with a warning."""
        for entry_point in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda found: found.name):
            self._load(entry_point, disabled)
        for name in sorted(disabled - self._infos.keys()):
            self.warnings.append(f"plugin {name} is disabled in host.json, but no such plugin is installed")

    def register(self, plugin: object, name: str | None = None) -> str:
        """Register a plugin object; see `PluginManager.register`."""
        registered = self._pm.get_name(plugin)
        if registered is not None:
            return registered
        name = name or _name_of(plugin)
        self._register(plugin, name)
        self._infos[name] = PluginInfo(name, "active")
        return name

    def infos(self) -> list[PluginInfo]:
        """All plugins in calling order."""
        hooks: dict[str, set[str]] = {}
        for hook, caller in self._callers():
            for implementation in caller.get_hookimpls():
                hooks.setdefault(implementation.plugin_name, set()).add(hook)
        known = [replace(info, hooks=tuple(sorted(hooks.get(name, ())))) for name, info in self._infos.items()]
        return sorted([*known, *self._rejected], key=lambda info: self._rank(info.name))

    def adopt_hookspecs(self, declaring: str, value: Any) -> None:
        """Add what a plugin returned from ``register_hookspecs``; what does not fit leaves that plugin out."""
        for namespace in value if isinstance(value, (list, tuple)) else [value]:
            problem = self._adopt(namespace)
            if problem:
                self._fail(declaring, f"plugin {declaring}: register_hookspecs: {problem}")

    def drop_pending(self) -> None:
        """Leave out the installed plugins that implement a hook which nobody declares."""
        for plugin, problem in self.pending():
            if self._infos[plugin].dist is not None and self._infos[plugin].state == "active":
                self._fail(plugin, problem)

    def _load(self, entry_point: importlib.metadata.EntryPoint, disabled: frozenset[str]) -> None:
        name, dist = entry_point.name, entry_point.dist
        info = PluginInfo(name, "active", (dist and dist.name) or "", (dist and dist.version) or "")
        if name in self._infos:
            problem = f"the name is already taken by {self._infos[name].dist}"
            self._rejected.append(replace(info, state="failed", error=problem))
            self._warn_left_out(name, f"{info.dist}: {problem}")
            return
        self._infos[name] = info
        if name in disabled:
            self._infos[name] = replace(info, state="disabled")
            return
        with Caught() as caught:
            try:
                self._register(entry_point.load(), name)
            except SystemExit as error:  # a script that was taken for a plugin; it must not end the host
                raise PluginError(f"plugin {name}: it ends the program when it is imported") from error
        if isinstance(caught.error, PluginError):
            self._fail(name, str(caught.error))
        elif caught.error is not None:
            _log.warning("plugin %s cannot be imported", name, exc_info=caught.error)
            what = f"{info.dist} {info.version} cannot be imported"
            self._fail(name, f"{what}: {type(caught.error).__name__}: {caught.error}")

    def _register(self, plugin: object, name: str) -> None:
        if self._pm.has_plugin(name):
            raise PluginError(f"plugin {name}: the name is already taken")
        for attribute in dir(plugin):
            options = self._pm.parse_hookimpl_opts(plugin, attribute)
            if options and (options.get("wrapper") or options.get("hookwrapper")):
                hook = options.get("specname") or attribute
                raise PluginError(f"plugin {name}: hook {hook} is a wrapper, which contexthost does not support")
        try:
            self._pm.register(plugin, name)
        except (pluggy.PluginValidationError, ValueError) as error:
            if self._pm.get_plugin(name) is plugin:  # older pluggy leaves half a registration behind
                self._pm.unregister(name=name)
            raise PluginError(f"plugin {name}: {' '.join(str(error).split())}") from error

    def _adopt(self, namespace: Any) -> str:
        names = [name for name in dir(namespace) if self._pm.parse_hookspec_opts(namespace, name) is not None]
        for name in names:
            spec = getattr(namespace, name)
            if not set(inspect.signature(spec).parameters) - {"self"} <= {"event", "ctx"}:
                return f"hook {name} takes other arguments than event and ctx"
            caller = getattr(self._pm.hook, name, None)
            if caller is not None and caller.has_spec():
                return f"hook {name} is declared already"
            for implementation in caller.get_hookimpls() if caller is not None else ():
                if not set(implementation.argnames) <= {"event", "ctx"}:
                    plugin = implementation.plugin_name
                    self._fail(plugin, f"plugin {plugin}: hook {name} takes other arguments than event and ctx")
            self._pm.add_hookspecs(type("Declared", (), {name: spec}))
        return "" if names else "there is no function marked with hookspec"

    def pending(self) -> list[tuple[str, str]]:
        """(plugin, sentence) for each implementation of a hook that nobody declares."""
        found = []
        declared = [name for name, caller in self._callers() if caller.has_spec()]
        for hook, caller in self._callers():
            for implementation in [] if caller.has_spec() else caller.get_hookimpls():
                if not implementation.optionalhook:
                    near = difflib.get_close_matches(hook, declared, n=1)
                    hint = f", did you mean {near[0]}?" if near else ""
                    plugin = implementation.plugin_name
                    found.append((plugin, f"plugin {plugin}: there is no hook {hook}{hint}"))
        return found

    def _fail(self, name: str, problem: str) -> None:
        if self._pm.has_plugin(name):
            self._pm.unregister(name=name)
        self._infos[name] = replace(self._infos[name], state="failed", error=problem)
        self._warn_left_out(name, problem)

    def _warn_left_out(self, name: str, problem: str) -> None:
        self.warnings.append(f"plugin {name} is left out: {problem.removeprefix(f'plugin {name}: ')}")

    def _callers(self) -> list[tuple[str, pluggy.HookCaller]]:
        return [(name, value) for name, value in vars(self._pm.hook).items() if isinstance(value, pluggy.HookCaller)]

    def _rank(self, name: str) -> tuple[int, str]:
        return self._ranks.get(name, len(self._ranks)), name

    def implementations(self, hook: str) -> list[Implementation]:
        """The implementations of a hook in calling order: ``tryfirst``, by rank, ``trylast``.

        Raises PluginError for a hook that nobody declares.
        """
        caller: pluggy.HookCaller | None = getattr(self._pm.hook, hook, None)
        if caller is None or not caller.has_spec():
            raise PluginError(f"there is no hook {hook}")

        def position(found: pluggy.HookImpl) -> tuple[int, int, str]:
            return (2 if found.trylast else 0 if found.tryfirst else 1, *self._rank(found.plugin_name))

        return [
            Implementation(found.plugin_name, hook, found.function, found.argnames)
            for found in sorted(caller.get_hookimpls(), key=position)
        ]


def _name_of(plugin: object) -> str:
    given = getattr(plugin, "plugin_name", None)
    if isinstance(given, str):
        return given
    name = getattr(plugin, "__name__", None) or type(plugin).__name__
    return str(name).rpartition(".")[2].removeprefix("contexthost_")
