"""Where Pi keeps the packages that its settings name: ``npm:…``, ``git:…`` and addresses of repositories, or a path."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

__all__ = ["Source", "resolved", "source_of", "without_credentials"]

_NOT_LOCAL: Final = ("npm:", "git:", "github:", "http:", "https:", "ssh:", "builtin:")
_HOSTS: Final = {
    "github": "github.com",
    "gitlab": "gitlab.com",
    "bitbucket": "bitbucket.org",
    "sourcehut": "git.sr.ht",
}
_NPM: Final = re.compile(r"(@?[^@]+(?:/[^@]+)?)(?:@.+)?", re.DOTALL)
_URL: Final = re.compile(r"(https?|ssh|git)://", re.IGNORECASE)


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
        spec = text.removeprefix("npm:").strip()
        found = _NPM.fullmatch(spec)
        return Source("npm", found[1] if found else spec)
    repository = _repository(text.strip()) if text.strip().startswith(_NOT_LOCAL) else None
    return Source("git", repository) if repository is not None else Source("local", text)


def resolved(path: str, base: Path) -> Path:
    """A path of Pi's settings: ``~`` is the user's directory, and what is relative is so to the settings' own."""
    text = path.strip()
    if text == "~" or text.startswith("~/"):
        text = os.path.join(os.path.expanduser("~"), text[2:])  # noqa: PTH111, PTH118 - as Pi does, by HOME
    elif text.startswith("file:///"):
        text = unquote(text.removeprefix("file://").partition("?")[0].partition("#")[0])
    return Path(os.path.normpath(os.path.join(base, text)))  # noqa: PTH118 - as Node resolves, without links


def without_credentials(text: str) -> str:
    """A source to be shown: an address may hold a token."""
    return re.sub(r"://[^/\s]*@", "://…@", text)


def _repository(text: str) -> str | None:
    """``host/path`` of a repository; None for what is none."""
    named = text.startswith("git:")
    url = text.removeprefix("git:").strip()
    if not named and not _URL.match(url):
        return None
    host, path = _host_and_path(url)
    path = path.partition("#")[0]
    cut = path.find("@")
    if cut > 0 and cut + 1 < len(path):  # a branch, a tag or a commit
        path = path[:cut]
    path = path.rstrip("/")
    if host.lower() in _HOSTS.values():
        host = host.lower()
    if host == "github.com" and path.split("/")[2:3] == ["tree"]:  # …/tree/branch
        path = "/".join(path.split("/")[:2])
    path = path.removesuffix(".git")
    parts = {host, *path.split("/"), *unquote(path).split("/")}
    if "/" not in path or parts & {"..", ""} or any(bad in unquote(path) for bad in "\0\\"):
        return None
    return f"{host}/{path}"


def _host_and_path(url: str) -> tuple[str, str]:
    if found := re.fullmatch(r"git@([^:]+):(.+)", url):
        return found[1], found[2]
    if "://" in url:
        try:
            parts = urlsplit(url)
            return (parts.hostname or "").removeprefix("www."), parts.path.lstrip("/")
        except ValueError:
            return "", ""
    shortcut, _, rest = url.partition(":")
    if shortcut in _HOSTS:
        return _HOSTS[shortcut], rest
    first, _, rest = url.partition("/")
    if "/" not in rest.partition("#")[0] and not first.startswith((".", "@")) and " " not in first:  # GitHub's
        return "github.com", url
    return (first, rest) if "." in first or first == "localhost" else ("", "")
