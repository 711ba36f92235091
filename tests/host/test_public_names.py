"""The package's front door: every public name is there, is what the type checkers think it is, and costs nothing until
it is used."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import contexthost
from contexthost import SessionView
from contexthost.session import Session


def imported_for_type_checkers() -> dict[str, str]:
    tree = ast.parse(Path(contexthost.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


NAMES = imported_for_type_checkers()


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_found(name: str) -> None:
    assert name in dir(contexthost)
    assert getattr(contexthost, name) is getattr(importlib.import_module(NAMES[name]), name)


def test_no_other_name_is() -> None:
    public = {name for names in contexthost._PUBLIC.values() for name in names.split()}
    assert public == set(NAMES)
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        contexthost.nonsense  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, contexthost; print([name for name in ('pydantic', 'pluggy', 'msgspec') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_a_session_can_be_handed_to_plugins_as_it_is() -> None:
    view: SessionView = Session.in_memory()  # the type checker's part of the test
    assert (view.path, view.name, view.leaf_id, list(view.entries), view.branch()) == (None, None, None, [], [])
