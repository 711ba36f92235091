"""What is wrong with a single thing that a plugin registers, told before anybody works with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from contexthost.config import Settings, SettingsSpec
from contexthost.context import Command, Tool
from contexthost.messages import js_json
from contexthost.text import one_line, shorten

__all__ = ["item_name", "item_problem"]

_TOOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What OpenAI and Anthropic take: with another name among its tools, every request of a session fails."""

_TYPES: Final = ("array", "boolean", "integer", "null", "number", "object", "string")

_SHOWN: Final = 80
"""Characters of a name, or of what is wrong with a schema, that are told."""


def item_name(item: object) -> object:
    """What an item is called, of whatever type that is; what has no name is only itself."""
    return getattr(item, "name", id(item))


def item_problem(item: object) -> str | None:
    """What is wrong with a tool, a command, a plugin's settings or anything else with a name; None: nothing.

    What the item is made of is the plugin's: looking at it may raise whatever that raises.
    """
    if not hasattr(item, "name"):
        return None
    name, kind = item_name(item), type(item).__name__
    if not isinstance(name, str):
        return f"the name of a {kind} must be a text, not a {type(name).__name__}"
    problem = "the name is empty" if not name.strip() else _problem(item)
    return None if problem is None else f"{kind} {shorten(one_line(repr(name)), _SHOWN)}: {problem}"


def _problem(item: Any) -> str | None:
    if isinstance(item, SettingsSpec):
        if not (isinstance(item.model, type) and issubclass(item.model, Settings)):
            return "model must be a class below contexthost.config.Settings"
        return None if isinstance(item.environment, Mapping) else "environment must be a mapping"
    if not isinstance(item, (Tool, Command)):
        return None
    if isinstance(item, Tool) and not _TOOL_NAME.fullmatch(item.name):
        return "providers only take names of 1 to 64 letters (a-z, A-Z), digits, _ and -"
    if isinstance(item, Command) and not _can_be_typed(item.name):
        return "nobody can type a name with spaces, a slash in front or what cannot be printed"
    if not isinstance(item.description, str):
        return f"description must be a text, not a {type(item.description).__name__}"
    for name in ("handler", "available"):
        if not callable(getattr(item, name)):
            return f"{name} must be a function, not a {type(getattr(item, name)).__name__}"
    return _schema_problem(item.parameters) if isinstance(item, Tool) else None


def _can_be_typed(name: str) -> bool:
    """Pi takes what is between the slash and the first space for the name; the command line, one slash away."""
    return name.isprintable() and " " not in name and not name.startswith("/")


def _schema_problem(parameters: object) -> str | None:
    """What is wrong with a tool's parameters, which go into a JSON file and into every request to a provider."""
    if not isinstance(parameters, Mapping):
        return f"parameters must be a JSON Schema, not a {type(parameters).__name__}"
    try:
        schema = json.loads(json.dumps(dict(parameters), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:  # ValueError: NaN, or a circle
        return f"parameters are not JSON ({error})"
    try:
        js_json(dict(parameters))
    except TypeError:
        return "parameters are not JSON (a key is not a text)"
    if schema.get("type") != "object":
        return 'parameters must be the JSON Schema of an object: {"type": "object", …}'
    problem = next(_not_schema(schema, ""), None)
    return None if problem is None else f"parameters are no JSON Schema ({shorten(one_line(problem), _SHOWN)})"


def _not_schema(schema: object, where: str) -> Iterator[str]:
    """What is not as JSON Schema has it, of the keywords that tools use.

    `jsonschema` knows all of them, but takes a quarter of a second to import, and each start of Python in Pi would pay.
    """
    at = where or "parameters"
    if not isinstance(schema, dict):
        if not isinstance(schema, bool):
            yield f"{at} is no schema"
        return
    kinds = schema.get("type", [])
    unknown = [kind for kind in (kinds if isinstance(kinds, list) else [kinds]) if kind not in _TYPES]
    if unknown:
        yield f"{at}: there is no type {unknown[0]!r}"
    required = schema.get("required", [])
    if not (isinstance(required, list) and all(isinstance(name, str) for name in required)):
        yield f"{at}: required is not a list of names"
    properties = schema.get("properties", {})
    if not isinstance(properties, dict):
        yield f"{at}: properties is not an object"
        return
    for name, part in properties.items():
        yield from _not_schema(part, f"{where}/{name}" if where else name)
    if "items" in schema:
        yield from _not_schema(schema["items"], f"{where}[]")
