"""Other extensions that compact, named by Pi's settings: found on the disk and by their text, without fetching, running
or writing anything; what cannot be found out, and what is wrong with a settings file, is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from contexthost.cli import main
from contexthost.pi import settings
from contexthost.pi.rivals import Rivals, find_rivals

LISTENS = 'export default (pi) => { pi.on("session_before_compact", () => {}) }'
HARMLESS = "export default () => {}"


class Home:
    """A user's directory with Pi's in it, and a project."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.agent, self.project = root / ".pi" / "agent", root / "work"
        self.agent.mkdir(parents=True)
        (self.project / ".pi").mkdir(parents=True)

    def write(self, name: str, text: str = LISTENS) -> str:
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return name

    def settings(self, where: str = "agent", **found: Any) -> None:
        base = self.agent if where == "agent" else self.project / ".pi"
        (base / "settings.json").write_text(json.dumps({"theme": "dark", **found}))

    def look(self) -> Rivals:
        return find_rivals(self.agent, self.project, self.agent / "extensions" / "contexthost.ts")

    def found(self) -> list[str]:
        """Relative to the user's directory; nothing is left unknown."""
        looked = self.look()
        assert looked.unknown == ()
        return [str(path.relative_to(self.root)) for path in looked.paths]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "contexthost"))
    return Home(tmp_path)


# Extensions ----------------------------------------------------------------------------------------------------------


def test_without_settings_there_is_nothing(home: Home) -> None:
    assert home.look() == Rivals((), ())


@pytest.mark.parametrize(
    ("where", "entry", "file"),
    [
        ("agent", "mine/a.ts", ".pi/agent/mine/a.ts"),  # relative to the settings file
        ("agent", "./mine", ".pi/agent/mine/a.ts"),
        ("agent", "../../dot/files/a.ts", "dot/files/a.ts"),
        ("agent", "~/dot/files/a.ts", "dot/files/a.ts"),
        ("agent", " ~/dot/files ", "dot/files/a.ts"),
        ("agent", "~/dot", "dot/files/index.js"),  # a directory's directories, by their index
        ("agent", "~/dot/oddly.named", "dot/oddly.named"),  # a file is a file
        ("agent", "HOME/dot/a.ts", "dot/a.ts"),
        ("project", "mine/a.ts", "work/.pi/mine/a.ts"),
        ("project", "../src/a.ts", "work/src/a.ts"),
    ],
)
def test_paths_are_resolved_as_pi_does(home: Home, where: str, entry: str, file: str) -> None:
    home.write(file)
    home.settings(where, extensions=[entry.replace("HOME", str(home.root))])
    assert home.found() == [file]


@pytest.mark.parametrize(
    ("patterns", "left"),
    [
        ([], ["a.ts", "b.js", "c/index.ts"]),
        (["!*.js"], ["a.ts", "c/index.ts"]),
        (["!**/index.ts"], ["a.ts", "b.js"]),
        (["*.ts"], ["a.ts", "c/index.ts"]),  # a glob chooses among what the paths lead to, by name, too
        (["!**", "+mine/b.js"], ["b.js"]),
        (["!**", "+./mine/b.js", "-mine/b.js"], []),
        (["-mine/a.ts"], ["b.js", "c/index.ts"]),
        (["-a.ts"], ["a.ts", "b.js", "c/index.ts"]),  # no such path
        (["!~/.pi/agent/mine/[ab].*"], ["c/index.ts"]),
    ],
)
def test_patterns_choose(home: Home, patterns: list[str], left: list[str]) -> None:
    for name in ("a.ts", "b.js", "c/index.ts", "c/other.ts", ".d.ts", "node_modules/e/index.ts"):
        home.write(f".pi/agent/mine/{name}")
    home.settings(extensions=["mine", *patterns])
    assert home.found() == [f".pi/agent/mine/{name}" for name in left]


def test_settings_take_away_what_lies_in_pis_own_directory(home: Home) -> None:
    home.write(".pi/agent/extensions/a.ts")
    home.write(".pi/agent/extensions/b.ts")
    home.write("work/.pi/extensions/c.ts")
    assert home.found() == [".pi/agent/extensions/a.ts", ".pi/agent/extensions/b.ts", "work/.pi/extensions/c.ts"]
    home.settings(extensions=["-extensions/a.ts", "!c.ts"])  # the project's are not the user's to take away
    assert home.found() == [".pi/agent/extensions/b.ts", "work/.pi/extensions/c.ts"]


def test_our_own_is_none_under_any_name(home: Home) -> None:
    home.write(".pi/agent/extensions/contexthost.ts")
    (home.root / "link.ts").symlink_to(home.agent / "extensions" / "contexthost.ts")
    home.settings(extensions=["~/link.ts"])
    assert home.found() == []


# Packages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "source", "place"),
    [
        ("agent", "npm:pi-tools", ".pi/agent/npm/node_modules/pi-tools"),
        ("agent", "npm:@own/tools@^1.2", ".pi/agent/npm/node_modules/@own/tools"),
        ("project", "npm:pi-tools@1.0.0", "work/.pi/npm/node_modules/pi-tools"),
        ("agent", "git:github.com/me/tools@v1", ".pi/agent/git/github.com/me/tools"),
        ("agent", "git:git@example.com:team/sub/tools.git", ".pi/agent/git/example.com/team/sub/tools"),
        ("agent", "https://example.com/me/tools.git", ".pi/agent/git/example.com/me/tools"),
        ("project", "git:me/tools", "work/.pi/git/github.com/me/tools"),
        ("agent", "../tools", ".pi/tools"),
        ("project", "~/tools", "tools"),
    ],
)
def test_packages_are_found_where_pi_installs_them(home: Home, where: str, source: str, place: str) -> None:
    home.write(f"{place}/extensions/main.ts")
    home.write(f"{place}/src/not-an-extension.ts")
    home.settings(where, packages=[source])
    assert home.found() == [f"{place}/extensions/main.ts"]
    home.settings(where, packages=[{"source": source, "extensions": []}])
    assert home.found() == []


@pytest.mark.parametrize(
    ("named", "options", "left"),
    [
        ({"extensions": ["./src/a.ts"]}, None, ["src/a.ts"]),
        ({"extensions": ["src/*.ts", "!src/b.ts"]}, None, ["src/a.ts"]),
        ({"extensions": ["src"]}, None, ["src/a.ts", "src/b.ts"]),
        ({"extensions": ["gone.ts"]}, None, []),
        ({"skills": ["./skills"]}, None, []),  # other things alone
        ({"image": "x.png"}, None, ["extensions/c.ts"]),
        ({"extensions": ["./src/a.ts", 7]}, None, ["extensions/c.ts"]),  # then none of that counts
        ({"extensions": ["src"]}, {"extensions": ["src/b.ts"]}, ["src/b.ts"]),
        ({"extensions": ["src"]}, {"extensions": ["!src/b.ts"]}, ["src/a.ts"]),
        ({"extensions": ["src"]}, {"skills": []}, ["src/a.ts", "src/b.ts"]),
        ({"extensions": ["src"]}, {"autoload": False}, []),
        ({"extensions": ["src"]}, {"autoload": False, "extensions": ["+src/b.ts"]}, ["src/b.ts"]),
    ],
)
def test_a_package_and_the_settings_say_which_of_its_files(
    home: Home, named: dict[str, Any], options: dict[str, Any] | None, left: list[str]
) -> None:
    for name in ("src/a.ts", "src/b.ts", "extensions/c.ts"):
        home.write(f"tools/{name}")
    home.write("tools/package.json", json.dumps({"name": "tools", "pi": named}))
    home.settings(packages=["~/tools" if options is None else {"source": "~/tools", **options}])
    assert home.found() == [f"tools/{name}" for name in left]


def test_a_projects_package_replaces_the_users_or_adds_to_it(home: Home) -> None:
    for base in (".pi/agent", "work/.pi"):
        home.write(f"{base}/npm/node_modules/tools/extensions/a.ts")
        home.write(f"{base}/npm/node_modules/tools/extensions/b.ts")
    home.settings(packages=["npm:tools@1.0.0"])
    home.settings("project", packages=["npm:tools"])
    assert home.found() == [f"work/.pi/npm/node_modules/tools/extensions/{name}.ts" for name in "ab"]
    # On top of the user's it chooses among the user's files.
    home.settings("project", packages=[{"source": "npm:tools", "autoload": False, "extensions": ["-extensions/b.ts"]}])
    assert home.found() == [".pi/agent/npm/node_modules/tools/extensions/a.ts"]


def test_a_path_may_be_a_file_or_a_module(home: Home) -> None:
    home.write("single.ts")
    home.write("module/lib/main.js")
    home.write("module/package.json", json.dumps({"main": "lib/main.js"}))
    home.settings(packages=["~/single.ts", "~/module", "~/gone"])
    assert home.found() == ["module", "single.ts"]


# Text ----------------------------------------------------------------------------------------------------------------


def test_what_an_extension_imports_of_its_own_is_looked_at(home: Home) -> None:
    home.write("ext/a.ts", 'import { compact } from "./lib/hooks.js";\nimport x from "pi";\nexport default compact;')
    home.write("ext/lib/hooks.ts", 'export * from "../deep";\n')
    home.write("ext/deep/index.ts")
    home.write("ext/b.ts", 'const it = require("./c"); import("./gone.js"); import "./b.ts"; import "../../../../../";')
    home.write("ext/c.js", HARMLESS)
    home.write("ext/node_modules/lib/index.js")
    home.settings(extensions=["~/ext/a.ts", "~/ext/b.ts"])
    assert home.found() == ["ext/a.ts"]


def test_what_is_large_or_no_file_is_said_or_passed_over(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write("large.ts", " " * 101 + LISTENS)
    (home.root / "bin.ts").write_bytes(b"\xff\x00" + LISTENS.encode())
    os.mkfifo(home.root / "pipe.ts")
    home.settings(extensions=["~/large.ts", "~/pipe.ts", "~/bin.ts", "a\0b"])
    monkeypatch.setattr(settings, "_MOST_BYTES", 100)
    looked = home.look()
    assert [path.name for path in looked.paths] == ["bin.ts"]
    assert looked.unknown == (
        f"{home.root}/large.ts is too large: whether it takes part in compactions is not known",
    )


# What is not known ---------------------------------------------------------------------------------------------------


def test_what_is_not_installed_is_said_and_never_fetched(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise AssertionError("something was started or asked")

    for name in ("subprocess.Popen", "os.posix_spawn", "socket.socket.connect", "socket.getaddrinfo"):
        monkeypatch.setattr(name, refuse)
    home.settings(packages=["npm:pi-tools@2", "git:github.com/me/tools", {"source": "npm:pi-tools"}, "~/gone"])
    # Another way to write gitlab.com/u/r, which Pi's documentation does not have.
    home.settings("project", packages=["git:gitlab:u/r"])
    before = sorted(home.root.rglob("*"))
    looked = home.look()
    assert looked.paths == ()
    settings = home.agent / "settings.json"
    ending = "whether it takes part in compactions is not known"
    npm = "npm's global directory, where older versions put it, is not asked for"
    own = home.project / ".pi"
    assert looked.unknown == (
        f"git:gitlab:u/r of {own}/settings.json is not in {own}/git/gitlab/u/r: {ending}",
        f"npm:pi-tools@2 of {settings} is not in {home.agent}/npm/node_modules/pi-tools ({npm}): {ending}",
        f"git:github.com/me/tools of {settings} is not in {home.agent}/git/github.com/me/tools: {ending}",
    )
    assert sorted(home.root.rglob("*")) == before


def test_a_token_in_an_address_is_not_shown(home: Home) -> None:
    source = "git:https://me:s3cret@example.com/me/tools@v1"
    home.settings(packages=[source, {"source": source.replace("me:", ""), "extensions": []}])
    told = "\n".join(home.look().unknown)
    assert "git:https://…@example.com/me/tools@v1 of " in told
    assert "s3cret" not in told


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"{", "is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1))"),
        (b'{"extensions": [NaN]}', "is not JSON (NaN is not JSON)"),
        (b"[" * 100_000, "is not JSON (no value at character 100000)"),
        (b"[]", "holds no JSON object"),
        (b" " * 17_000_000, "is too large"),
        (b"\xff\xfe{}", "is not JSON (Expecting value: line 1 column 1 (char 0))"),
        (b'{"extensions": "mine"}', "is not as Pi's settings are, at extensions"),
        (b'{"extensions": ["a.ts", 7]}', "is not as Pi's settings are, at extensions.1"),
        (b'{"packages": {}}', "is not as Pi's settings are, at packages"),
        (b'{"packages": [{"source": 7}]}', "is not as Pi's settings are, at packages.0"),
        (b'{"packages": [{"source": "~/ext", "extensions": "a"}]}', "is not as Pi's settings are, at packages.0"),
    ],
)
@pytest.mark.parametrize("where", ["agent", "project"])
def test_bad_settings_are_named_and_harm_nothing(home: Home, where: str, content: bytes, why: str) -> None:
    home.write("ext/index.ts", HARMLESS)
    home.write(".pi/agent/extensions/a.ts")
    home.settings("project" if where == "agent" else "agent", extensions=["~/other.ts"])
    home.write("other.ts")
    file = (home.agent if where == "agent" else home.project / ".pi") / "settings.json"
    file.write_bytes(content)
    looked = home.look()
    assert [path.name for path in looked.paths] == ["a.ts", "other.ts"]
    (problem,) = looked.unknown
    assert problem == f"{file} {why}: which extensions it names is not known"
    assert file.read_bytes() == content


def test_empty_settings_and_a_byte_order_mark_are_nothing_bad(home: Home) -> None:
    home.write("a.ts")
    (home.agent / "settings.json").write_bytes(b"")
    (home.project / ".pi" / "settings.json").write_text('\ufeff{"extensions": ["~/a.ts"], "packages": null}')
    assert home.found() == ["a.ts"]


def test_settings_that_are_no_file_are_not_waited_for(home: Home) -> None:
    os.mkfifo(home.agent / "settings.json")
    (home.project / ".pi" / "settings.json").mkdir()
    assert home.look().unknown == (
        f"{home.project}/.pi/settings.json is no file: which extensions it names is not known",
        f"{home.agent}/settings.json is no file: which extensions it names is not known",
    )


def test_a_pattern_that_is_not_understood_is_said_and_hides_nothing(home: Home) -> None:
    home.write(".pi/agent/mine/a.ts")
    for pattern in ("*/../a.ts", "!+(a).ts"):
        home.settings(extensions=["mine", pattern])
        looked = home.look()
        assert [path.name for path in looked.paths] == ["a.ts"]
        assert len(looked.unknown) == 1
        assert "is not understood: what it fits is not known" in looked.unknown[0]


def test_what_an_ignore_file_names_is_not_loaded_and_one_that_is_not_understood_hides_nothing(home: Home) -> None:
    for name in ("a.ts", "b.js", "keep.js"):
        home.write(f".pi/agent/extensions/{name}")
    ignore = home.agent / "extensions" / ".gitignore"
    ignore.write_text("# compiled\n*.JS\n!keep.js\n")
    assert home.found() == [".pi/agent/extensions/a.ts", ".pi/agent/extensions/keep.js"]
    for odd in ("*.ts\n!\n", "[z-a]"):
        ignore.write_text(odd)
        looked = home.look()
        assert [path.name for path in looked.paths] == ["a.ts", "b.js", "keep.js"]
        assert looked.unknown == (f"{ignore.parent}: what its ignore files leave out is not known",)
    ignore.unlink()
    os.mkfifo(ignore)  # would be waited for
    assert home.look() == looked


def test_a_directory_that_cannot_be_read_is_said(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write(".pi/agent/extensions/a.ts")
    listed: Callable[[Path], Any] = Path.iterdir

    def refused(path: Path) -> Any:
        if path == home.agent / "extensions":
            raise PermissionError(13, "Permission denied")
        return listed(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    assert home.look() == Rivals((), (f"{home.agent}/extensions cannot be read: Permission denied",))


# The commands --------------------------------------------------------------------------------------------------------


def test_status_and_install_tell_it(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(home.agent))
    monkeypatch.setenv("CONTEXTHOST_HOST__DISABLED", '["relay", "codex_native", "jev", "masking"]')
    monkeypatch.chdir(home.project)
    home.write("it\x1b[31m.ts")
    home.settings(extensions=["~/it\x1b[31m.ts"], packages=["npm:gone\x1b[31m"])

    def run(*arguments: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as ended:
            main(["pi", *arguments])
        out, err = capsys.readouterr()
        assert err == ""
        return ended.value.code, out

    status, out = run("status", "--json")
    assert status == 1
    shown = json.loads(out)
    assert shown["otherCompactors"] == [f"{home.root}/it\x1b[31m.ts"]
    assert [text[:18] for text in shown["otherCompactorsUnknown"]] == ["npm:gone\x1b[31m of /"]

    status, out = run("install")
    assert f"Note: {home.root}/it.ts takes part in compactions too" in out
    assert "Note: npm:gone of " in out
    status, out = run("status")
    assert status == 0
    assert f"also there   {home.root}/it.ts takes part in compactions" in out
    assert "not known    npm:gone of " in out
    assert "\x1b" not in out


def test_a_status_in_a_real_process_reads_the_settings_of_the_directory_it_runs_in(home: Home) -> None:
    home.write("work/own.ts")
    home.settings("project", extensions=["../own.ts"])
    done = subprocess.run(
        [sys.executable, "-m", "contexthost", "pi", "status", "--json", "--agent-dir", "../.pi/agent"],
        cwd=home.project, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert json.loads(done.stdout)["otherCompactors"] == [f"{home.project}/own.ts"]
