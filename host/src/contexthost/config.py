"""Per-user settings: one JSON file per package, environment variables over it, each key checked on its own.

A package declares its settings as a frozen model; the field names are the keys of the file, literally (camelCase):
pydantic-settings does not apply environment prefixes to aliases::

    class MaskGroup(SettingsGroup):
        triggerTokens: TokenCount = 80_000

    class MaskingSettings(Settings):
        enabled: bool = True
        mask: MaskGroup = MaskGroup()

    loaded = load_settings(MaskingSettings, "masking")

``masking.json`` may then hold ``{"mask": {"triggerTokens": 60000}}``, and ``CONTEXTHOST_MASKING__MASK__TRIGGERTOKENS``
(in any case) overrides it. Nothing in a settings file can make loading fail.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from contexthost import _settings
from contexthost._settings import MAX_INTEGER, SettingsWarning, Source, strip_secrets
from contexthost.errors import SettingsError
from contexthost.paths import settings_file, write_private

__all__ = [
    "CredentialCommand",
    "HostCompaction",
    "HostSettings",
    "Loaded",
    "PiSettings",
    "Ratio",
    "Settings",
    "SettingsGroup",
    "SettingsSpec",
    "SettingsWarning",
    "TokenCount",
    "default_file",
    "init_file",
    "load_settings",
    "schema",
    "strip_secrets",
    "update_file",
]

TokenCount = Annotated[int, Field(ge=0, le=MAX_INTEGER)]
"""A count of tokens, characters or entries: 0 to 2**53 - 1."""

Ratio = Annotated[float, Field(ge=0, le=1)]
"""A share: 0 to 1."""


class SettingsGroup(BaseModel):
    """The base of a group of settings within a file (an object such as ``mask`` in ``masking.json``)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Settings(BaseSettings):
    """The base of a package's settings. Every field needs a default.

    Making one directly (``MaskingSettings(enabled=False)``) reads neither file nor environment: `load_settings` does.
    A validator that looks at several keys belongs to their group, since its failure sets all keys of the model
    that it is declared on back to their defaults.
    """

    model_config = SettingsConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Only what the caller gives: `load_settings` has merged and checked the other sources by then."""
        return (init_settings,)


M = TypeVar("M", bound=Settings)


@dataclass(frozen=True, slots=True)
class SettingsSpec:
    """What a plugin returns from ``register_settings``.

    ``package`` names the file and the environment prefix; ``environment`` maps further environment variables (exact
    case) to dotted keys: they come after ``CONTEXTHOST_…`` and before the file.
    """

    package: str
    model: type[Settings]
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What tells one from another: the package."""
        return self.package


@dataclass(frozen=True, slots=True)
class Loaded(Generic[M]):
    """Settings as they are in force."""

    values: M
    warnings: tuple[SettingsWarning, ...]
    sources: Mapping[str, Source]
    """Dotted key → where its value comes from; every key of the model is there."""
    file: Path

    def to_json(self) -> dict[str, Any]:
        """For ``config show --json``: file, values, the source of each key, warnings."""
        return {
            "file": str(self.file),
            "values": self.values.model_dump(mode="json"),
            "sources": dict(self.sources),
            "warnings": [str(warning) for warning in self.warnings],
        }


def load_settings(model: type[M], package: str, *, environment: Mapping[str, str] | None = None) -> Loaded[M]:
    """Read a package's settings: ``CONTEXTHOST_<PACKAGE>__…``, then ``environment``, then the file, then defaults.

    ``environment`` maps names of further environment variables to dotted keys. A value that does not fit its key is
    ignored with a warning, and the next source counts; the file's values are taken strictly (``"5"`` is no number,
    ``true`` is no number), the environment's texts are parsed. Empty environment variables count as unset.
    """
    file = settings_file(package)
    merge = _settings.Merge(model, str(file))
    merge.take_file(file)
    merge.take_aliases(environment or {})
    merge.take_environment(f"CONTEXTHOST_{package.upper()}__")
    values = merge.build()
    return Loaded(values, tuple(merge.warnings), merge.sources_by_key(), file)


def default_file(model: type[Settings]) -> dict[str, Any]:
    """The content of a settings file that holds every key at its default."""
    return model().model_dump(mode="json")


def schema(model: type[Settings]) -> dict[str, Any]:
    """The JSON Schema of a settings file."""
    return model.model_json_schema()


def init_file(model: type[Settings], package: str, *, force: bool = False) -> Path:
    """Write a settings file with every default (0600, atomic); returns its path.

    Raises SettingsError when the file is there already and ``force`` is not given, or when it cannot be written.
    """
    file = settings_file(package)
    if file.exists() and not force:
        raise SettingsError(f"{file} exists already; edit it, or give --force to replace it by the defaults")
    _write(file, default_file(model))
    return file


def update_file(package: str, changes: Mapping[str, Any]) -> Path:
    """Merge ``changes`` into a settings file, key by key (0600, atomic); keys it holds otherwise are kept.

    Secrets among the changes are left out. Raises SettingsError when the file's content is not a JSON object, so
    that nothing of the user's is overwritten, or when it cannot be written.
    """
    file = settings_file(package)
    content, problem = _settings.read_object(file)
    if problem:
        raise SettingsError(f"{file}: {problem}; mend or remove it first, nothing was written")
    _write(file, _settings.merged(content, strip_secrets(changes)[0]))
    return file


class CredentialCommand(SettingsGroup):
    """How a provider's key is fetched when the environment has none: a program and its arguments."""

    command: Annotated[tuple[str, ...], Field(min_length=1)] = Field(repr=False)
    """The program, found on PATH, and its arguments; no shell reads them."""


class HostCompaction(SettingsGroup):
    """When the host compacts by itself, and how much it keeps; both are Pi's defaults."""

    reserveTokens: TokenCount = 16_384
    """Tokens of the window that stay free for the answer; a context that leaves fewer is compacted."""
    keepRecentTokens: TokenCount = 20_000
    """Tokens at the end that a compaction keeps word for word."""


class PiSettings(SettingsGroup):
    """How long a live Pi waits for plugins before it goes on without; seconds. ``compactionTimeoutSeconds`` of the
    host is how long it waits for a compaction."""

    startSeconds: Annotated[float, Field(gt=0, le=600)] = 10.0
    """For the start of the Python side, which the first input waits for. ``contexthost pi install`` writes it into the
    extension, which must know it before Python answers: run that again after a change."""
    answerSeconds: Annotated[float, Field(gt=0, le=600)] = 2.0
    """For inputs, boundaries and provider requests."""
    toolSeconds: Annotated[float, Field(gt=0, le=3600)] = 600.0
    """For a plugin's tools and slash commands."""
    heartbeatSeconds: Annotated[float, Field(gt=0, le=600)] = 5.0
    """How often Pi looks whether the Python side is alive; three misses in a row, and it is started anew."""


class HostSettings(Settings):
    """``host.json``."""

    order: tuple[str, ...] = ("relay", "codex_native", "jev", "masking")
    """The rank of plugins in every hook; those not named come after, by name."""
    disabled: tuple[str, ...] = ()
    """Plugins that are installed and not to be loaded."""
    contextWindow: Annotated[int, Field(ge=1, le=MAX_INTEGER)] = 200_000
    """Tokens; for sessions whose model is unknown."""
    encoding: str = "cl100k_base"
    """A tiktoken encoding that is on this machine already."""
    hookTimeoutSeconds: Annotated[float, Field(gt=0, le=3600)] = 10.0
    """For one plugin in one hook; then the others go on without it."""
    compactionTimeoutSeconds: Annotated[float, Field(gt=0, le=3600)] = 120.0
    """The same where a compaction is made."""
    compaction: HostCompaction = HostCompaction()
    """When the host compacts by itself, and what it keeps."""
    pi: PiSettings = PiSettings()
    """How long a live Pi waits for plugins."""
    credentials: dict[str, CredentialCommand] = {}
    """Provider → the command that prints its key."""


def _write(file: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=True) + "\n"
    try:
        write_private(file, text.encode())
    except OSError as error:
        raise SettingsError(f"{file} cannot be written ({error.strerror or error}); nothing was changed") from error
