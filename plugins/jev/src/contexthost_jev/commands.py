"""What ``/jev-status`` and ``/jev-setup`` say and do, for slash commands and the command line alike."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from contexthost.config import HostSettings, Loaded, default_file, load_settings, strip_secrets, update_file
from contexthost.errors import SettingsError
from contexthost.messages import js_json, own_text
from contexthost.session import Entry
from contexthost_jev.adapter import DETAILS_FORMAT
from contexthost_jev.errors import JevFailure
from contexthost_jev.keys import KEY_HELP, KeySource, key_from_environment, key_source
from contexthost_jev.settings import PACKAGE, JevSettings, load, problems

__all__ = ["Change", "Status", "guide", "last_details", "parse_setup", "ready_text", "status", "write"]

HIDDEN: Final = "(hidden: it holds the key)"


@dataclass(frozen=True, slots=True)
class Status:
    """What there is to know; nothing in it is secret."""

    key: KeySource | None
    loaded: Loaded[JevSettings]
    last: str | None
    """The last compaction in a sentence."""

    def text(self) -> str:
        """For people."""
        file = self.loaded.file
        lines = [
            f"key: detected ({self.key.origin})" if self.key else f"key: missing; {KEY_HELP}",
            f"settings: {file}{'' if file.exists() else ' (not there, which is fine)'}",
            *(f"  {name} = {json.dumps(value)} ({source})" for name, value, source in self._options()),
            *(f"  warning: {warning}" for warning in self.loaded.warnings),
            f"last compaction: {self.last or 'none by jev in this session'}",
        ]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "key": {"detected": self.key is not None, "origin": self.key.origin if self.key else None},
            "file": str(self.loaded.file),
            "options": {name: {"value": value, "source": source} for name, value, source in self._options()},
            "warnings": [str(warning) for warning in self.loaded.warnings],
            "last": self.last,
        }

    def _options(self) -> Iterable[tuple[str, Any, str]]:
        holds_key = _key_detector()
        for name, value in self.loaded.values.model_dump(mode="json").items():
            yield name, HIDDEN if holds_key(value) else value, self.loaded.sources[name]


def status(last: str | None) -> Status:
    """The status now; settings are read anew, no credential command is run."""
    return Status(key_source(load_settings(HostSettings, "host").values), load(), last)


def last_details(branch: Iterable[Entry]) -> str | None:
    """The newest compaction by Jev on a branch, in a sentence, from its details."""
    for entry in reversed(list(branch)):
        details = entry.data.get("details") if entry.type == "compaction" else None
        if isinstance(details, dict) and details.get("plugin") == "jev" and details.get("format") == DETAILS_FORMAT:
            counts = ", ".join(f"{js_json(details.get(name))} {name}" for name in ("kept", "truncated", "dropped"))
            ratio, model = details.get("reductionRatio"), details.get("model")
            less = f"; {ratio:.0%} less" if isinstance(ratio, int | float) and 0 <= ratio <= 1 else ""
            return f"{entry.id}: {counts}{less} (model {own_text(model, 'unknown')})"
    return None


def ready_text(key: KeySource | None) -> str:
    """What is said once per process."""
    if key is not None:
        return f"jev: ready ({key.origin}); compactions are decided call by call. /jev-status shows the options."
    return f"jev: no key, so compactions are left to others. To use it, {KEY_HELP}; /jev-setup guides you."


def guide(now: Status) -> str:
    """How to set it up."""
    return "\n".join(
        [
            "1. Get a key of your own at https://console.typesafe.ai/settings/keys (one of OpenRouter works too).",
            '2. Put it into the environment: export TYPESAFE_API_KEY="…" (or OPENROUTER_API_KEY), or let host.json',
            '   fetch it: {"credentials": {"typesafe": {"command": ["pass", "show", "typesafe"]}}}. It is never read',
            "   from jev.json.",
            "3. Options, if the defaults do not suit you: /jev-setup defaults writes them all to the settings file,",
            '   /jev-setup {"keepThreshold": 0.6} changes what you name.',
            "",
            now.text(),
        ]
    )


@dataclass(frozen=True, slots=True)
class Change:
    """What a setup would write: ``values`` by key; ``stripped`` are the keys left out because they look secret,
    ``unknown`` those that no setting has (written, but without effect)."""

    values: Mapping[str, Any]
    stripped: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def text(self) -> str:
        """What is going to be written, one line per key."""
        lines = [f"  {name} = {json.dumps(value)}" for name, value in self.values.items()]
        lines += [f"  {name} looks like a secret and is left out" for name in self.stripped]
        lines += [f"  {name} is no setting that jev knows" for name in self.unknown]
        return "\n".join(lines)


def parse_setup(argument: str) -> Change:
    """What ``defaults`` or a pasted JSON object asks for. Raises SettingsError, which never quotes what was pasted:
    it may be a key."""
    if argument == "defaults":
        return Change(default_file(JevSettings))
    try:
        pasted: Any = json.loads(argument)
    except (ValueError, RecursionError):
        pasted = None
    if not isinstance(pasted, dict):
        raise SettingsError(
            "jev setup takes `defaults` or a JSON object with settings; a key belongs into the environment"
        )
    values, stripped = strip_secrets(pasted)
    if _key_detector()(values):
        raise SettingsError("one of the values holds your key; it belongs into the environment, nothing was written")
    if wrong := problems(values):
        raise SettingsError(f"{'; '.join(wrong)}; nothing was written")
    unknown = tuple(name for name in values if name not in JevSettings.model_fields)
    return Change(values, tuple(stripped), unknown)


def write(change: Change) -> str:
    """Write it (atomic; keys that the file holds otherwise stay) and say so. Raises SettingsError."""
    file = update_file(PACKAGE, change.values)
    note = "; what looked like a secret was left out" if change.stripped else ""
    count = "1 setting was" if len(change.values) == 1 else f"{len(change.values)} settings were"
    return f"{count} written to {file}{note}."


def _key_detector() -> Callable[[Any], bool]:
    """Whether a value holds the environment's key anywhere."""
    try:
        key = key_from_environment()
    except JevFailure:
        key = None
    return lambda value: key is not None and key.within(json.dumps(value, ensure_ascii=False))
