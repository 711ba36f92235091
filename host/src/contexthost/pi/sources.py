"""Where Pi keeps the packages that its settings name: ``npm:…``, ``git:…`` and addresses of repositories, or a path."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

__all__ = ["Source", "resolved", "source_of", "without_credentials"]

_REPOSITORY: Final = re.compile(
    r"""(?:git:\s*(?!\w+://)(?:git@)?|(?:git:\s*)?(?:https?|ssh)://(?:[^/@]*@)?(?:www\.)?)
    (?P<host>[^/:]+)(?::\d+(?=/))?[/:]
    (?P<path>[^@#]+?)
    (?:\.git)?/?(?:[@#].*)?""",
    re.VERBOSE | re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Source:
    """A package: what kind of source, and what tells it from others: npm's name, ``host/path``, or a path."""

    kind: Literal["npm", "git", "local"]
    name: str

    def directory(self, base: Path) -> Path:
        """Where it is (a file, too, if it is a path); ``base`` is the directory of the settings that name it."""
        if self.kind == "npm":
            return base / "npm" / "node_modules" / self.name
        if self.kind == "git":
            return base / "git" / self.name
        return resolved(self.name, base)


def source_of(text: str) -> Source:
    """What a package's source in Pi's settings means; whatever is no name of npm or git is a path, as in Pi."""
    if text.startswith("npm:"):
        return Source("npm", re.sub("(?<=.)@.*", "", text.removeprefix("npm:").strip(), flags=re.DOTALL))
    found = _REPOSITORY.fullmatch(text.strip())
    if found is None:
        return Source("local", text)
    host, path = found["host"], found["path"]
    if host.lower() == "github.com":
        return Source("git", f"github.com/{re.sub('/tree/.*', '', path)}")  # as a browser shows a branch
    if "/" not in path:
        return Source("git", f"github.com/{host}/{path}")  # git:user/repository
    return Source("git", f"{host}/{path}")


def resolved(path: str, base: Path) -> Path:
    """A path of Pi's settings: ``~`` is the user's directory, and what is relative is so to the settings' own."""
    text = os.path.expanduser(path.strip())  # noqa: PTH111 - `Path` refuses what is no user's name
    return Path(os.path.normpath(base / text))  # as Node resolves, without links


def without_credentials(text: str) -> str:
    """A source to be shown: an address may hold a token."""
    return re.sub(r"://[^/\s]*@", "://…@", text)
