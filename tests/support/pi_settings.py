"""Directories as Pi has them, at random: extensions, packages, and settings that name some of them in many ways."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

__all__ = ["random_home"]

_FILES = ("a.ts", "b.js", "index.ts", "index.js", "c.test.ts", ".hidden.ts", "readme.md", "d.mts")
_DIRECTORIES = ("one", "two", "extensions", "src", "skills", "node_modules", ".dots")
_PATTERNS = (
    "*.ts", "**/*.ts", "**", "extensions/*", "extensions/**", "a.ts", "**/index.*", "{a,b}.*", "one/*", "[ab].ts",
    "?.js", "src/*.ts", "*/a.ts", "ext/**/*.js", "a*", ".*", "no-such-*", "./*.ts", "extensions/{one,two}/*", "*",
    "c.*.ts", "**/one/**", "@(a|b).*", "*.@(ts|js)", "!(a)*.ts", "[!a]*.ts", "**/[[:alpha:]].*", "linked/*",
    "{a..c}.ts", "*/*/*.ts", "**/extensions/*.{ts,js}",
)  # fmt: skip
_PATHS = (
    "ext", "./ext", "ext/a.ts", "../shared", "../shared/a.ts", "~/loose.ts", "~/shared", "extensions", "gone.ts",
    " ext/one ", "packages/local", "packages/local/src/a.ts", "HOME/loose.ts", "readme.md", "~", "ext/linked",
)  # fmt: skip
_IGNORED = ("a.ts", "*.js", "/b.js", "one/", "!one", "!a.ts", "# nothing", "", "t*", "**/two", "src/a.ts", "A.TS")
_MANIFEST = ("a.ts", "./a.ts", "src", "./src/a.ts", "extensions", "gone.ts", "one", "../local", ".")
_INSTALLED = ("npm/node_modules/tools", "npm/node_modules/@own/tools", "git/github.com/u/r", "git/example.com/g/s/r")
_SOURCES = (
    "npm:tools", "npm:tools@1.2.0", "npm:@own/tools@^2", "npm:gone", "git:github.com/u/r", "git:u/r@v1",
    "https://github.com/u/r.git", "git:git@github.com:u/r", "https://example.com/g/s/r", "../packages/local",
    "packages/local", "./packages/bare", "packages/bare", "ext/a.ts", "~/shared", "github:u/r", "/gone",
    "../.pi/packages/local",
)  # fmt: skip


def random_home(seed: int, root: Path) -> dict[str, str]:
    """Pi's directory and a project below ``root``, with settings: what `extensions.mjs` asks Pi about. The user's own
    directory is the one above."""
    rng = random.Random(seed)
    agent, project = root / "agent", root / "work"
    for base in (agent, project / ".pi"):
        base.mkdir(parents=True)
        for name in ("extensions", "ext", "packages/local", "packages/bare"):
            if rng.random() < 0.8:
                _fill(rng, base / name, 2, package=name.startswith("packages"))
        for name in _INSTALLED:
            if rng.random() < 0.6:
                _fill(rng, base / name, 2, package=True)
                if name.startswith("npm"):
                    _give_version(base / name / "package.json", "2.0.1" if "@own" in name else "1.2.0")
        if rng.random() < 0.95:
            text = json.dumps(_settings(rng)).replace("HOME", str(root.parent))
            (base / "settings.json").write_text("\ufeff" * (rng.random() < 0.2) + text)
    _fill(rng, root / "shared", 1, package=False)
    if not (root.parent / "shared").exists():
        _fill(rng, root.parent / "shared", 1, package=False)
        (root.parent / "loose.ts").write_text("")
    if rng.random() < 0.3:
        (agent / "ext").mkdir(exist_ok=True)
        (agent / "ext" / "link.ts").symlink_to(root.parent / "loose.ts")
        (agent / "packages" / "local").mkdir(parents=True, exist_ok=True)
        for place in ("ext", "packages/local"):
            (agent / place / "linked").symlink_to(root.parent / "shared")
    return {"agentDir": str(agent), "cwd": str(project)}


def _give_version(file: Path, version: str) -> None:
    """One that fits: of another version Pi fetches the right one."""
    manifest = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**(manifest or {}), "version": version}))


def _settings(rng: random.Random) -> dict[str, Any]:
    made: dict[str, Any] = {"theme": "dark"}
    if rng.random() < 0.8:
        made["extensions"] = _entries(rng, _PATHS, rng.randrange(5)) + _signed(rng, rng.randrange(4))
    if rng.random() < 0.8:
        made["packages"] = [_package(rng) for _ in range(rng.randrange(5))]
    return made


def _package(rng: random.Random) -> Any:
    source = rng.choice(_SOURCES)
    if rng.random() < 0.5:
        return source
    made: dict[str, Any] = {"source": source}
    if rng.random() < 0.7:
        made["extensions"] = _signed(rng, rng.randrange(4))
    if rng.random() < 0.3:
        made["autoload"] = rng.random() < 0.3
    if rng.random() < 0.2:
        made["skills"] = []
    return made


def _entries(rng: random.Random, among: tuple[str, ...], count: int) -> list[str]:
    return [rng.choice(among) for _ in range(count)]


def _signed(rng: random.Random, count: int) -> list[str]:
    """Patterns, and exact paths with a sign."""
    exact = ("a.ts", "./a.ts", "extensions/a.ts", "./extensions/b.js", "ext/a.ts", "src/a.ts", "~/loose.ts")
    return [
        rng.choice(_PATTERNS) if (sign := rng.choice(("", "!", "+", "-"))) == ""
        else sign + rng.choice(_PATTERNS if sign == "!" else exact)
        for _ in range(count)
    ]  # fmt: skip


def _fill(rng: random.Random, directory: Path, depth: int, *, package: bool) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name in _FILES:
        if rng.random() < 0.35:
            (directory / name).write_text("")
    if rng.random() < 0.25:
        lines = "\n".join(_entries(rng, _IGNORED, rng.randrange(1, 4)))
        (directory / rng.choice((".gitignore", ".ignore", ".fdignore"))).write_text(lines)
    if rng.random() < (0.6 if package else 0.25):
        (directory / "package.json").write_text(json.dumps(_manifest(rng)))
    if depth:
        for name in _DIRECTORIES:
            if rng.random() < (0.5 if package and name == "extensions" else 0.2):
                _fill(rng, directory / name, depth - 1, package=False)


def _manifest(rng: random.Random) -> Any:
    named: dict[str, Any] = {}
    if rng.random() < 0.75:
        named["extensions"] = [
            *_entries(rng, _MANIFEST, rng.randrange(3)),
            *_signed(rng, rng.randrange(3)),
        ]
        if rng.random() < 0.1:
            named["extensions"].append(7)  # then none of it counts
    if rng.random() < 0.2:
        named["skills"] = ["skills"]
    if rng.random() < 0.2:
        named["image"] = "x.png"
    return rng.choice(({"name": "p", "pi": named}, {"pi": named}, {"pi": named}, {"pi": named}, {"name": "p"}, []))
