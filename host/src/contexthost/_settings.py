"""How settings come together: reading a file, leaving out secrets, checking one key at a time, weighing the sources.

The models and the functions that callers use are in `contexthost.config`.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource

MAX_INTEGER = 2**53 - 1
"""The largest whole number that JSON readers agree on (JavaScript's Number.MAX_SAFE_INTEGER)."""

Source = Literal["default", "file", "environment"]
KeyPath = tuple[str, ...]
_Origin = Callable[[KeyPath], str]
M = TypeVar("M", bound=BaseSettings)

_LONGEST_NUMBER = 400  # digits; a longer one fits no bound, and Python refuses to read more than 4,300
_SECRET_KEY = re.compile(
    r".*(?:api|access|auth|private|secret|signing|encryption)keys?"
    r"|.*(?:secrets?|token|passwords?|passwd|passphrase|authorization|bearer|jwt|cookie|credential)"
    r"|(?:key|auth|pwd)"
)
"""Matched against a whole key in lower case without separators. ``tokens`` in the plural is a count, not a secret."""


@dataclass(frozen=True, slots=True)
class SettingsWarning:
    """One thing in a settings source that is not in force, and why. It never holds the value itself."""

    origin: str
    """The file's path, or the name of the environment variable."""
    key: str
    """The dotted key; empty when the file as a whole is meant."""
    problem: str

    def __str__(self) -> str:
        return f"{self.origin}: {self.key}: {self.problem}" if self.key else f"{self.origin}: {self.problem}"


def strip_secrets(value: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """A copy without the keys that look like secrets (``apiKey``, ``token``, ``password``, …), at any depth and in
    any case; and the dotted keys that were left out."""
    removed: list[str] = []

    def clean(item: Any, path: KeyPath) -> Any:
        if isinstance(item, list):
            return [clean(part, (*path, str(index))) for index, part in enumerate(item)]
        return clean_object(item, path) if isinstance(item, Mapping) else item

    def clean_object(item: Mapping[str, Any], path: KeyPath) -> dict[str, Any]:
        kept: dict[str, Any] = {}
        for key, part in item.items():
            inner = (*path, key)
            # A provider may be called anything; what stands below its name is a command, not a secret.
            is_provider = path == ("credentials",) and isinstance(part, Mapping)
            if not is_provider and _SECRET_KEY.fullmatch(re.sub(r"[^a-z0-9]", "", key.lower())):
                removed.append(shown(inner))
            else:
                kept[key] = clean(part, inner)
        return kept

    return clean_object(value, ()), removed


def read_object(file: Path) -> tuple[dict[str, Any], str]:
    """A file's JSON object, and what is wrong with the file (empty when nothing is); a missing file is ``{}``.

    Bad content is told without quoting it: it may hold what nobody should see.
    """
    try:
        if not stat.S_ISREG(file.stat().st_mode):  # reading a named pipe would wait for ever
            return {}, "is not a regular file"
        text = file.read_bytes().decode("utf-8-sig")
        content = json.loads(text, parse_int=_whole_number)
    except FileNotFoundError:
        return {}, ""
    except OSError as error:
        return {}, f"cannot be read ({error.strerror or error})"
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        return {}, f"line {line} is not UTF-8"
    except json.JSONDecodeError as error:
        return {}, f"line {error.lineno}, column {error.colno}: not JSON ({error.msg})"
    except RecursionError:
        return {}, "is nested too deeply"
    return (content, "") if isinstance(content, dict) else ({}, "line 1: should hold a JSON object")


def _whole_number(digits: str) -> int | float:
    return int(digits) if len(digits) <= _LONGEST_NUMBER else math.inf


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """``base`` with ``changes`` over it; objects are merged key by key, everything else is replaced."""
    result = dict(base)
    for key, value in changes.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, Mapping) else value
    return result


def shown(path: KeyPath) -> str:
    """A dotted key for a warning; keys come from a file, so their length is limited."""
    return ".".join(part if len(part) <= 60 else part[:59] + "…" for part in path)


class _TextEnvironment(EnvSettingsSource):
    """The environment as nested texts. What is not JSON stays text, for the check of its own key to refuse."""

    def decode_complex_value(self, field_name: str, field: FieldInfo, value: Any) -> Any:
        try:
            return super().decode_complex_value(field_name, field, value)
        except (ValueError, RecursionError):
            return value


def _group_of(info: FieldInfo) -> type[BaseModel] | None:
    annotation = info.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _leaves(model: type[BaseModel], prefix: KeyPath = ()) -> Iterator[tuple[KeyPath, FieldInfo]]:
    for name, info in model.model_fields.items():
        group = _group_of(info)
        if group is None:
            yield (*prefix, name), info
        else:
            yield from _leaves(group, (*prefix, name))


def _problem(error: ErrorDetails) -> str:
    where = "".join(f"[{part}]" for part in error["loc"] if isinstance(part, int))
    message = error["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return f"item {where} {message}" if where else message


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _takes_json(adapter: TypeAdapter[Any]) -> bool:
    """Whether a text that looks like a JSON list or object is meant as one: not where the key is a text itself."""
    try:
        adapter.validate_strings("[")
    except ValidationError:
        return True
    return False


def _checked(annotation: Any, value: Any, source: Source) -> tuple[Any, str]:
    """The value as its key's type, and what is wrong with it (empty when nothing is)."""
    config = None if _is_model(annotation) else ConfigDict(allow_inf_nan=False)
    adapter: TypeAdapter[Any] = TypeAdapter(annotation, config=config)
    try:
        if source == "file" or not isinstance(value, str):
            # Through JSON, because strict JSON takes a list for a tuple and still takes no text for a number.
            result = adapter.validate_json(json.dumps(value), strict=True)
        elif value.lstrip().startswith(("[", "{")) and _takes_json(adapter):
            result = adapter.validate_json(value, strict=True)
        else:
            result = adapter.validate_strings(value)
    except ValidationError as error:
        return None, _problem(error.errors(include_url=False, include_input=False)[0])
    if isinstance(result, int) and abs(result) > MAX_INTEGER:
        return None, f"should be between -{MAX_INTEGER} and {MAX_INTEGER}"
    return result, ""


class Merge(Generic[M]):
    """Takes the sources from the weakest to the strongest and keeps, for each key, the last value that fits."""

    def __init__(self, model: type[M], file: str) -> None:
        self.model = model
        self.file = file
        self.warnings: list[SettingsWarning] = []
        self._fields = dict(_leaves(model))
        self._chosen: dict[KeyPath, Any] = {}
        self._sources: dict[KeyPath, Source] = {}
        self._origins: dict[KeyPath, str] = {}

    def take_file(self, file: Path) -> None:
        content, problem = read_object(file)
        if problem:
            self.warnings.append(SettingsWarning(self.file, "", f"{problem}; the file is ignored"))
            return
        clean, secrets = strip_secrets(content)
        for key in secrets:
            problem = "looks like a secret and is ignored: use the environment, or `credentials` in host.json"
            self.warnings.append(SettingsWarning(self.file, key, problem))
        self._take(clean, self.model, (), "file", lambda path: self.file)

    def take_aliases(self, names: Mapping[str, str]) -> None:
        """Environment variables by their own names; an unknown key among them is the caller's mistake (KeyError)."""
        for name, key in names.items():
            path = tuple(key.split("."))
            info = self._fields[path]
            if text := os.environ.get(name):
                self._take_leaf(path, info, text, "environment", name)

    def take_environment(self, prefix: str) -> None:
        known = {name.lower() for name in self.model.model_fields}
        for name in os.environ:
            head = name[len(prefix) :].partition("__")[0]
            if name.upper().startswith(prefix) and head.lower() not in known:
                self.warnings.append(SettingsWarning(name, shown((head,)), "is no known setting and is ignored"))
        tree = _TextEnvironment(
            self.model, case_sensitive=False, env_prefix=prefix, env_nested_delimiter="__", env_ignore_empty=True
        )()
        self._take(tree, self.model, (), "environment", lambda path: prefix + "__".join(path).upper())

    def sources_by_key(self) -> dict[str, Source]:
        return {".".join(path): self._sources.get(path, "default") for path in self._fields}

    def build(self) -> M:
        """The model from the chosen values; those that a validator of the model refuses go back to their defaults."""
        defaults = self.model()
        while True:
            tree: dict[str, Any] = {}
            for path in self._fields:
                value: Any = defaults
                group = tree
                for name in path[:-1]:
                    value = getattr(value, name)
                    group = group.setdefault(name, {})
                group[path[-1]] = self._chosen.get(path, getattr(value, path[-1]))
            try:
                return self.model(**tree)
            except ValidationError as error:
                if not self._give_up(error.errors(include_url=False, include_input=False)):
                    raise

    def _give_up(self, errors: list[ErrorDetails]) -> bool:
        """Forget the chosen values that the errors speak of; False when there are none."""
        blamed: dict[KeyPath, str] = {}
        for error in errors:
            place = tuple(str(part) for part in error["loc"])
            for path in self._chosen:
                if path[: len(place)] == place[: len(path)]:
                    blamed.setdefault(path, _problem(error))
        for path, problem in blamed.items():
            del self._chosen[path], self._sources[path]
            self.warnings.append(SettingsWarning(self._origins[path], shown(path), f"{problem}; ignored"))
        return bool(blamed)

    def _take(
        self, tree: Mapping[str, Any], model: type[BaseModel], at: KeyPath, source: Source, origin: _Origin
    ) -> None:
        for key, value in tree.items():
            path = (*at, key)
            info = model.model_fields.get(key)
            if info is None:
                self._warn(origin(path), path, "is no known setting and is ignored")
            elif (group := _group_of(info)) is None:
                self._take_leaf(path, info, value, source, origin(path))
            elif isinstance(value, dict):
                self._take(value, group, path, source, origin)
            else:
                self._warn(origin(path), path, "should be an object; ignored")

    def _take_leaf(self, path: KeyPath, info: FieldInfo, value: Any, source: Source, origin: str) -> None:
        accepted: Any
        if get_origin(info.annotation) is dict and isinstance(value, dict):
            # An object with names of the user's choice: each name on its own, stronger sources over weaker ones.
            accepted = dict(self._chosen.get(path, {}))
            for name, item in value.items():
                result, problem = _checked(get_args(info.annotation)[1], item, source)
                if problem:
                    self._warn(origin, (*path, name), f"{problem}; ignored")
                else:
                    accepted[name] = result
        else:
            accepted, problem = _checked(Annotated[info.annotation, info], value, source)
            if problem:
                self._warn(origin, path, f"{problem}; ignored")
                return
        self._chosen[path], self._sources[path], self._origins[path] = accepted, source, origin

    def _warn(self, origin: str, path: KeyPath, problem: str) -> None:
        self.warnings.append(SettingsWarning(origin, shown(path), problem))
