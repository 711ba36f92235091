"""Which results a later call has overtaken: what they say has been said again since, or is no longer so.

- a ``read`` of a file, by a later edit, a write or a full read of that file, or by a read of the same part of it;
- a command, by the same command run again;
- a listing or search, by the same one made again.

Nothing is known of other tools: calling one twice with the same arguments may well bring two different things.
Results overtake; calls whose result has not come do not. A failed call has changed and read nothing, except for a
command, whose failure is news.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from contexthost.messages import js_json
from contexthost.projection.breakdown import main_argument

__all__ = ["Key", "keys_of", "overtaken_keys", "path_of"]

Key: TypeAlias = str
"""What a result is about; a later result that overtakes the key overtakes it. A string, whose hash is kept."""

_READS: Final = frozenset({"read", "read_file", "view", "cat"})
_CHANGES: Final = frozenset({"edit", "multiedit", "multi_edit", "write", "write_file", "edit_file", "apply_edit"})
_COMMANDS: Final = frozenset({"bash", "shell", "exec", "powershell"})
_LISTINGS: Final = frozenset({"ls", "list", "list_dir", "find", "grep", "glob", "search", "ripgrep"})
"""Tools of Pi and their usual names elsewhere, in lower case."""

_PATHS: Final = ("path", "file_path", "filePath", "filename", "file")
_PARTS: Final = ("offset", "limit", "start", "end", "start_line", "end_line", "view_range", "pages")
"""Arguments that make a read one of a part of the file."""

_LONG: Final = 20_000
"""Characters of an argument up to which two calls are compared; longer ones overtake nothing."""


def path_of(arguments: Any) -> str:
    """The path that a call is about, in one spelling; "" if it names none."""
    if not isinstance(arguments, Mapping):
        return ""
    found = next((arguments[name] for name in _PATHS if isinstance(arguments.get(name), str)), "")
    path = found.strip().replace("\\", "/").removeprefix("@")
    return posixpath.normpath(path) if path else ""


def keys_of(tool: str, arguments: Any) -> tuple[Key, ...]:
    """What the result of a call is about: any later result that overtakes one of these overtakes it."""
    name = tool.lower()
    if name in _READS:
        path = path_of(arguments)
        if not path:
            return ()
        return (_file(path), _part(path, arguments)) if _is_part(arguments) else (_file(path),)
    if name in _COMMANDS or name in _LISTINGS:
        return _repetition(name, arguments)
    return ()


def overtaken_keys(tool: str, arguments: Any, *, failed: bool) -> tuple[Key, ...]:
    """What the result of a call overtakes among the results before it."""
    name = tool.lower()
    if name in _COMMANDS:
        return _repetition(name, arguments)
    if failed:
        return ()
    if name in _READS:
        path = path_of(arguments)
        if not path:
            return ()
        return (_part(path, arguments),) if _is_part(arguments) else (_file(path),)
    if name in _CHANGES:
        path = path_of(arguments)
        return (_file(path),) if path else ()
    return _repetition(name, arguments) if name in _LISTINGS else ()


def _repetition(name: str, arguments: Any) -> tuple[Key, ...]:
    # How long a command may take does not change what it is.
    text = main_argument(arguments) if name in _COMMANDS else _text(arguments)
    return (f"call\0{name}\0{text}",) if text and len(text) <= _LONG else ()


def _file(path: str) -> Key:
    return f"file\0{path}"


def _part(path: str, arguments: Any) -> Key:
    return "\0".join(("part", path, *(_text({name: arguments[name]}) for name in _PARTS if name in arguments)))


def _is_part(arguments: Any) -> bool:
    return any(arguments.get(name) is not None for name in _PARTS)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        value = {name: value[name] for name in sorted(value)}
    return js_json(value)
