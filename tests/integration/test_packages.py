"""What a user installs: wheels and source distributions hold what they must and nothing else, and in an empty virtual
environment, away from the repository, the host alone, the host with one plugin, with all of them, and with a plugin
of somebody else's (`example_plugin`) besides, do their work.

A new plugin is one line in `PLUGINS`."""

from __future__ import annotations

import email
import email.message
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import filelock
import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = Path(__file__).with_name("example_plugin")
DEMO = ROOT / "host" / "src" / "contexthost" / "data" / "demo.jsonl"
TIMEOUT = 300  # seconds for a build or an installation; with a warm cache each takes about two


@dataclass(frozen=True)
class Package:
    """A distribution: its name, its directory in the repository, what else than Python its modules bring along, and
    the licence files beside it."""

    dist: str
    directory: str
    data: frozenset[str] = frozenset()
    licenses: frozenset[str] = frozenset({"LICENSE"})

    @property
    def module(self) -> str:
        return self.dist.replace("-", "_")

    @property
    def source(self) -> Path:
        return ROOT / self.directory / "src" / self.module


@dataclass(frozen=True)
class Plugin(Package):
    """A plugin: its name to the host, a command of it that reads the demo session, what that prints, one that appends
    to it (if it has one that needs no network), and what the plugin appends by itself in ``contexthost demo``."""

    name: str = ""
    command: tuple[str, ...] = ()
    prints: str = ""
    appends: tuple[str, ...] = ()
    says: str = ""
    in_demo: int = 0


SESSION = "{session}"
"""Stands in a command for the path of a session."""

HOST = Package(
    "contexthost",
    "host",
    data=frozenset({"cli/report/page.css", "cli/report/page.js", "data/demo.jsonl", "pi/extension.ts"}),
)
PLUGINS = (
    # In the order in which the host asks them.
    Plugin(
        "contexthost-relay",
        "plugins/relay",
        name="relay",
        command=("relay", SESSION, "--dry-run"),
        prints="# Relay note 1",
        appends=("relay", SESSION),
        says="# Relay note 1",
    ),
    Plugin(
        "contexthost-codex-native",
        "plugins/codex_native",
        licenses=frozenset({"LICENSE", "NOTICE"}),
        name="codex_native",
        command=("codex", "status", SESSION),
        prints="cannot compact natively",
    ),
    Plugin(
        "contexthost-jev",
        "plugins/jev",
        licenses=frozenset({"LICENSE", "NOTICE"}),
        name="jev",
        command=("jev", "plan", SESSION),
        prints="requests",
    ),
    Plugin(
        "contexthost-masking",
        "plugins/masking",
        name="masking",
        command=("mask", SESSION, "--dry-run"),
        prints="reclaimed",
        appends=("mask", SESSION),
        says="56 context edits were appended",
        in_demo=56,
    ),
)
PACKAGES = (HOST, *PLUGINS)


def uv(*arguments: str | Path) -> None:
    """Runs uv: the one that runs these tests, if one does."""
    executable = os.environ.get("UV") or shutil.which("uv")
    assert executable, "these tests build and install with uv: pip install uv"
    run = subprocess.run(
        [executable, *map(str, arguments)], cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert run.returncode == 0, run.stderr


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a wheel and a source distribution of each package; built once, whichever worker comes first."""
    base = tmp_path_factory.getbasetemp()
    shared = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "packages"
    with filelock.FileLock(f"{shared}.lock", timeout=TIMEOUT):
        if not shared.exists():
            staging = tmp_path_factory.mktemp("build")
            uv("build", "--all-packages", "--out-dir", staging)
            staging.rename(shared)
    return shared


def wheel(built: Path, package: Package) -> Path:
    [path] = built.glob(f"{package.module}-[0-9]*.whl")
    return path


def modules(package: Package) -> set[str]:
    """The files that the source tree has for a package, relative to it: Python, the type marker, its own data."""
    found = {path.relative_to(package.source).as_posix() for path in package.source.rglob("*.py")}
    return found | {"py.typed"} | package.data


def relative_links(markdown: str) -> list[str]:
    """Targets of links and images that lead nowhere on a page of the package index."""
    text = re.sub(r"^(```|~~~).*?^\1|`[^`\n]*`", "", markdown, flags=re.DOTALL | re.MULTILINE)
    targets = re.findall(r"\]\(\s*<?([^)\s>]+)|^\s*\[[^\]]+\]:\s*(\S+)|(?:href|src)=[\"']([^\"']+)", text, re.MULTILINE)
    flat = [target for groups in targets for target in groups if target]
    return [target for target in flat if not target.startswith(("https://", "mailto:", "#"))]


def test_relative_links_are_found() -> None:
    text = """[a](docs/a.md) ![b](<img/b.png> "t") [c](https://c.example/x) [d](#d) `[e](e.md)`
[f]: ../f.md
<img src="g.svg">
```
[h](h.md)
```
"""
    assert relative_links(text) == ["docs/a.md", "img/b.png", "../f.md", "g.svg"]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.dist)
def test_a_wheel_holds_the_modules_and_nothing_else(built: Path, package: Package) -> None:
    with zipfile.ZipFile(wheel(built, package)) as archive:
        names = set(archive.namelist())
        [info] = {name.split("/")[0] for name in names if ".dist-info/" in name}
        metadata = archive.read(f"{info}/METADATA").decode()
    known = {f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt")}
    known |= {f"{info}/licenses/{name}" for name in package.licenses}
    assert names == known | {f"{package.module}/{name}" for name in modules(package)}
    check_metadata(email.message_from_string(metadata), package)


def check_metadata(metadata: email.message.Message, package: Package) -> None:
    project = tomllib.loads((ROOT / package.directory / "pyproject.toml").read_text())["project"]
    assert metadata["Name"] == package.dist
    assert metadata["Summary"] == project["description"]
    assert metadata["License-Expression"] == "MIT"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    required = {re.split(r"[^\w.-]", line)[0] for line in metadata.get_all("Requires-Dist", [])}
    assert required == {re.split(r"[^\w.-]", line)[0] for line in project["dependencies"]}
    if package is not HOST:
        assert {name for name in required if name.startswith("contexthost")} == {"contexthost"}
    readme = metadata.get_payload()
    assert isinstance(readme, str)
    assert readme.startswith(f"# {package.dist}\n")
    assert readme.strip() == (ROOT / package.directory / "README.md").read_text().strip()
    assert relative_links(readme) == []


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.dist)
def test_a_source_distribution_holds_what_the_wheel_is_built_from(built: Path, package: Package) -> None:
    [path] = built.glob(f"{package.module}-[0-9]*.tar.gz")
    with tarfile.open(path) as archive:
        files = [member for member in archive.getmembers() if not member.isdir()]
    assert all(member.isfile() for member in files)
    names = {member.name.split("/", 1)[1] for member in files}
    needed = {"PKG-INFO", "README.md", "pyproject.toml", *package.licenses}
    needed |= {f"src/{package.module}/{name}" for name in modules(package)}
    assert needed <= names
    # Besides: the docs, the sources of bundled data, and the ignore file that the build tool puts in by itself.
    others = [
        name for name in names - needed if not re.fullmatch(r"docs/.+\.(md|svg)|tools/.+\.(py|txt)|\.gitignore", name)
    ]
    assert others == []


class Installation:
    """An empty virtual environment with some of the wheels in it, and a home of its own."""

    def __init__(self, directory: Path, wheels: Sequence[Path | str]) -> None:
        self.directory = directory
        self._bin = directory / "venv" / "bin"
        uv("venv", "--quiet", "--no-config", "--python", sys.executable, directory / "venv")
        uv("pip", "install", "--quiet", "--no-config", "--python", self._bin / "python", *wheels)
        self._environment = {
            "PATH": os.defpath,
            "HOME": str(directory),
            "CONTEXTHOST_HOME": str(directory / "home"),
            "LANG": "C.UTF-8",
            "PYTHONWARNINGS": "error",
        }

    def run(self, *arguments: str | Path, status: int = 0) -> str:
        """What `contexthost …` prints; fails when it ends with another status, or prints a traceback."""
        run = subprocess.run(
            [self._bin / "contexthost", *arguments],
            cwd=self.directory,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert run.returncode == status, run.stdout + run.stderr
        assert "Traceback" not in run.stderr
        return run.stdout if status == 0 else run.stderr

    def python(self, *arguments: str | Path) -> str:
        command = [self._bin / "python", *arguments]
        run = subprocess.run(
            command, cwd=self.directory, env=self._environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout.strip()

    def plugins(self) -> dict[str, str]:
        listed = json.loads(self.run("plugins", "--json"))
        assert listed["warnings"] == []
        return {plugin["name"]: plugin["state"] for plugin in listed["plugins"]}

    def doctor(self) -> list[str]:
        """What `doctor` finds that is not in order."""
        checks = json.loads(self.run("doctor", "--json"))
        assert len(checks) > 5
        return [f"{check['what']}: {check['text']}" for check in checks if check["state"] != "ok"]


def test_the_host_alone_works_and_says_what_to_install(built: Path, tmp_path: Path) -> None:
    host = Installation(tmp_path, [wheel(built, HOST)])
    where = Path(host.python("-c", "import contexthost; print(contexthost.__file__)"))
    assert where.is_relative_to(tmp_path)  # the wheel, not the repository
    assert host.run("--version").startswith("contexthost ")
    assert "pip install contexthost-masking" in host.run("plugins")
    assert host.plugins() == {}
    assert host.doctor() == []
    assert "No installed plugin has anything to do here" in host.run("demo", "--directory", tmp_path / "demo")
    assert (tmp_path / "demo" / "demo.jsonl").read_bytes() == DEMO.read_bytes()
    for plugin in PLUGINS:
        said = host.run(plugin.command[0], tmp_path / "demo" / "demo.jsonl", status=1)
        what = f"`contexthost {plugin.command[0]}` is a command of a plugin that is not installed"
        assert said == f"Error: {what}: pip install {plugin.dist}\n"


def check_demo(installed: Installation, plugins: Sequence[Plugin]) -> None:
    """`demo` grows its copy by what the plugins append by themselves, and says so."""
    told = installed.run("demo", "--directory", installed.directory / "demo")
    grown = (installed.directory / "demo" / "demo.jsonl").read_bytes()
    assert grown.startswith(DEMO.read_bytes())
    expected = {plugin.name: plugin.in_demo for plugin in plugins if plugin.in_demo}
    assert ("Nothing is lost" in told) == bool(expected)
    assert dict(re.findall(r"^Plugin (\w+) appends (\d+) entries", told, re.M)) == {
        name: str(number) for name, number in expected.items()
    }
    assert len(grown.splitlines()) == len(DEMO.read_bytes().splitlines()) + sum(expected.values())


def check_commands(installed: Installation, plugin: Plugin) -> None:
    """A plugin's commands on a copy of the demo session: the reading one leaves every byte, the other one appends."""
    session = installed.directory / f"{plugin.name}.jsonl"
    shutil.copy(DEMO, session)
    assert plugin.prints in installed.run(*with_session(plugin.command, session))
    assert session.read_bytes() == DEMO.read_bytes()
    if plugin.appends:
        assert plugin.says in installed.run(*with_session(plugin.appends, session))
        assert session.read_bytes().startswith(DEMO.read_bytes())
        assert session.stat().st_size > DEMO.stat().st_size
        assert "Healthy" in installed.run("doctor", session)


def with_session(command: Sequence[str], session: Path) -> list[str | Path]:
    return [session if word == SESSION else word for word in command]


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda plugin: plugin.dist)
def test_the_host_with_one_plugin_works(built: Path, tmp_path: Path, plugin: Plugin) -> None:
    both = Installation(tmp_path, [wheel(built, HOST), wheel(built, plugin)])
    assert both.plugins() == {plugin.name: "active"}
    assert both.doctor() == []
    check_demo(both, [plugin])
    check_commands(both, plugin)


def test_the_host_with_all_plugins_and_one_of_somebody_elses_works(built: Path, tmp_path: Path) -> None:
    """The tutorial to the letter: the example plugin is built, installed beside all others, tested, and used."""
    source = shutil.copytree(EXAMPLE, tmp_path / "bookmarks", ignore=shutil.ignore_patterns("__pycache__", ".*cache"))
    uv("build", "--quiet", "--no-config", "--wheel", "--out-dir", tmp_path, source)
    [example] = tmp_path.glob("contexthost_bookmarks-*.whl")
    wheels = [wheel(built, package) for package in PACKAGES]
    together = Installation(tmp_path, [*wheels, example, "pytest>=8.4,<10"])
    assert list(together.plugins().items()) == [(plugin.name, "active") for plugin in PLUGINS] + [
        ("bookmarks", "active")
    ]
    assert together.doctor() == []
    check_demo(together, PLUGINS)
    for plugin in PLUGINS:
        check_commands(together, plugin)

    assert "2 passed" in together.python("-m", "pytest", "-q", source)
    session = shutil.copy(DEMO, tmp_path / "session.jsonl")
    assert together.run("run", session, "/bookmark", "the", "end") == "468ce3f0 is bookmarked as the end\n"
    assert together.run("run", session, "/bookmark") == "468ce3f0 the end\n"
    assert together.run("tool", session, "list_bookmarks").startswith("- the end [468ce3f0], in context: ")
    together.run("tool", session, "list_bookmarks", '{"more": 1}', status=1)
    [added] = Path(session).read_bytes().removeprefix(DEMO.read_bytes()).splitlines()
    entry = json.loads(added)
    assert (entry["type"], entry["customType"]) == ("custom", "bookmarks:bookmark")
    assert entry["data"] == {"name": "the end", "entryId": "468ce3f0"}
    assert json.loads(together.run("config", "show", "bookmarks", "--json"))["bookmarks"]["values"] == {
        "prefix": "remember:",
        "excerptCharacters": 200,
    }
