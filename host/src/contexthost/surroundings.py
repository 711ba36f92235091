"""Who answers in a live session and with what: model, tools, system prompt; recorded in the session as Pi does."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from contexthost.context import Model, Tool
from contexthost.runtime import Runtime

__all__ = ["Surroundings"]

_PROMPT_SECTION = "contexthost"
"""The section of the system message that holds the host's prompt: sections can be replaced, content only grows."""


class Surroundings:
    """The model, tools and prompt in force; `declare` records what changed before the next request is made."""

    def __init__(
        self, runtime: Runtime, *, model: Model | None, system_prompt: str | None, thinking_level: str | None
    ) -> None:
        self._runtime = runtime
        self._prompt = system_prompt
        self._level = thinking_level
        self.chosen = model
        self.tools: Sequence[tuple[str, Tool]] = ()

    @property
    def model(self) -> Model:
        """Who answers; a run does not begin without one."""
        assert self.chosen is not None
        return self.chosen

    @property
    def thinking_level(self) -> str | None:
        """Pi's level in force; None says nothing."""
        level = self._runtime.authority.snapshot().thinking_level
        return level if isinstance(level, str) and level != "off" else None

    @property
    def window(self) -> int | None:
        """The model's context window in tokens, if it is known."""
        return self.chosen.info.context_window if self.chosen is not None else None

    def move_to(self, runtime: Runtime) -> None:
        """Goes over to another session."""
        self._runtime = runtime

    def choose(self, model: Model) -> None:
        """Another model answers from the next request on, in its own context window or the one of the settings."""
        self.chosen = model
        window = model.info.context_window or self._runtime.settings.values.contextWindow
        self._runtime.authority.set_window(window)

    def set_tools(self, own: Sequence[Tool]) -> None:
        """Takes the plugins' tools that are available in this session, then the program's own."""
        found: list[tuple[str, Tool]] = []
        for plugin, tool in self._runtime.plugins.items("register_tools", Tool):
            if tool.available(self._runtime.context(plugin)):
                found.append((plugin, tool))
        names = {tool.name for tool in own}
        self.tools = (*((plugin, tool) for plugin, tool in found if tool.name not in names), *(("", t) for t in own))

    def declare(self) -> None:
        """Appends what the session does not say yet: model, thinking level, prompt and tools, in Pi's entries."""
        self._runtime.session.append(self.declaration())

    def declaration(self) -> list[dict[str, Any]]:
        """What `declare` would append."""
        snapshot = self._runtime.authority.snapshot()
        info = self.model.info
        payloads: list[dict[str, Any]] = []
        if snapshot.model != {"provider": info.provider, "modelId": info.id}:
            payloads.append({"type": "model_change", "provider": info.provider, "modelId": info.id})
        if self._level is not None and snapshot.thinking_level != self._level:
            payloads.append({"type": "thinking_level_change", "thinkingLevel": self._level})
        system = self._system_message(snapshot.system_message)
        if system is not None:
            payloads.append({"type": "message", "message": system})
        return payloads

    def _system_message(self, current: dict[str, Any] | None) -> dict[str, Any] | None:
        """The system message that turns what the session declares into what is in force; None when nothing differs."""
        current = current or {}
        message: dict[str, Any] = {"role": "system", "content": "", "timestamp": int(time.time() * 1000)}
        sections = current.get("sections") or {}
        changed = False
        if self._prompt is not None and sections.get(_PROMPT_SECTION) != self._prompt:
            message["sections"] = {_PROMPT_SECTION: self._prompt}
            changed = True
        declared = {tool.get("name"): tool for tool in current.get("toolsAdded") or []}
        wanted = {tool.name: _declaration(tool) for _, tool in self.tools}
        added = [tool for name, tool in wanted.items() if declared.get(name) != tool]
        removed = [name for name in declared if name not in wanted]
        if added:
            message["toolsAdded"] = added
        if removed:
            message["toolsRemoved"] = removed
        return message if changed or added or removed else None


def _declaration(tool: Tool) -> dict[str, Any]:
    return {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
