"""Which functions of the product change files, found in their source, so that the campaign cannot miss one.

A function counts when it calls something that writes, makes, renames, links or removes, or one of the product's own
helpers that do. Its name is ``module:qualified.name``, as a running frame has it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (
    ROOT / "host" / "src" / "contexthost",
    *sorted((ROOT / "plugins").glob("*/src/contexthost_*")),
    ROOT / "tests" / "integration" / "example_plugin" / "src" / "contexthost_bookmarks",
)

_OF_OS: Final = frozenset(
    {
        *("chmod", "chown", "copy_file_range", "fchmod", "fchown", "ftruncate", "link", "makedirs", "mkdir", "mkfifo"),
        *("pwrite", "pwritev", "remove", "removedirs", "rename", "renames", "replace", "rmdir", "sendfile", "setxattr"),
        *("symlink", "truncate", "unlink", "utime", "write", "writev"),
    }
)
_OF_MODULES: Final = frozenset({"dbm", "shelve", "shutil", "sqlite3", "tempfile", "filelock"})
_READING: Final = frozenset({"shutil.which", "filelock.Timeout", "tempfile.gettempdir"})
_OF_PATHS: Final = frozenset(
    {"hardlink_to", "mkdir", "rename", "rmdir", "symlink_to", "touch", "unlink", "write_bytes", "write_text"}
)
_OWN: Final = frozenset({"plugin_data_dir", "private_dir", "temporary_beside", "write_new_file", "write_private"})
_HANDLERS: Final = frozenset({"FileHandler", "RotatingFileHandler", "TimedRotatingFileHandler", "WatchedFileHandler"})
_FLAGS: Final = frozenset({"O_APPEND", "O_CREAT", "O_RDWR", "O_TRUNC", "O_WRONLY"})


def writing_functions() -> dict[str, set[str]]:
    """Function → the calls in it that write."""
    found: dict[str, set[str]] = {}
    for package in PACKAGES:
        for path in sorted(package.rglob("*.py")):
            parts = path.relative_to(package.parent).with_suffix("").parts
            module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
            for where, call in writes_in(path.read_text(encoding="utf-8")):
                found.setdefault(f"{module}:{where}", set()).add(call)
    return found


def writes_in(source: str) -> Iterator[tuple[str, str]]:
    """(qualified name of the function, the call) for each call that writes; ``<module>`` outside of functions."""
    yield from _walk(ast.parse(source), "<module>", "")


def _walk(node: ast.AST, where: str, prefix: str) -> Iterator[tuple[str, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _walk(child, prefix + child.name, f"{prefix}{child.name}.<locals>.")
            continue
        if isinstance(child, ast.ClassDef):
            for base in child.bases:
                if _last(base) in _HANDLERS:
                    yield prefix + child.name, _last(base)
            yield from _walk(child, where, f"{prefix}{child.name}.")
            continue
        if isinstance(child, ast.Call) and (name := _writes(child)):
            yield where, name
        yield from _walk(child, where, prefix)


def _last(node: ast.expr) -> str:
    return ast.unparse(node).rpartition(".")[2]


def _writes(call: ast.Call) -> str | None:
    """The name of what is called, if it writes."""
    name = ast.unparse(call.func)
    base, _, last = name.rpartition(".")
    if name in ("os.open", "open", "io.open", "os.fdopen") or last == "open":
        flags = {node.attr for argument in call.args for node in ast.walk(argument) if isinstance(node, ast.Attribute)}
        modes = [node.value for node in [*call.args, *(word.value for word in call.keywords)]
                 if isinstance(node, ast.Constant) and isinstance(node.value, str)]  # fmt: skip
        writes = flags & _FLAGS or any(set(mode) <= set("rwxab+t") and set(mode) & set("wxa+") for mode in modes)
        return name if writes else None
    if base == "os":
        return name if last in _OF_OS else None
    if base.partition(".")[0] in _OF_MODULES:
        return None if name in _READING else name
    if last in _OWN or last in _HANDLERS:
        return last
    if not isinstance(call.func, ast.Attribute):
        return None
    if last in _OF_PATHS:
        return last
    # Of a path, with the new name alone; of a text it takes two arguments, of a dataclass or a date keywords.
    return last if last == "replace" and len(call.args) == 1 and not call.keywords else None
