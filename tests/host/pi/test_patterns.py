"""The patterns of Pi's settings, against what minimatch says of them (the real one was asked when this was written; the
real Pi is asked in `test_extensions`), globs on the disk, and ignore files."""

from __future__ import annotations

from pathlib import Path

import pytest

from contexthost.pi import patterns
from contexthost.pi.patterns import NotUnderstood, expand, ignored, matches


@pytest.mark.parametrize(
    ("pattern", "fitting", "not_fitting"),
    [
        ("*.ts", ["a.ts", "a.b.ts"], ["a.js", "src/a.ts", ".a.ts"]),
        ("?.ts", ["a.ts", "é.ts"], ["ab.ts", ".ts"]),
        ("**/*.ts", ["a.ts", "src/a.ts", "a/b/c.ts"], [".x/a.ts", "a/.x/b.ts", "a.js"]),
        ("src/**", ["src/a.ts", "src/a/b"], ["src", "a/src/b", "src/.x"]),
        ("src/**/a.ts", ["src/a.ts", "src/b/c/a.ts"], ["a.ts", "src/b/ba.ts"]),
        ("{a,b/c}.{ts,js}", ["a.ts", "b/c.js"], ["b.ts", "a.tsx"]),
        ("{a}.ts", ["{a}.ts"], ["a.ts"]),
        ("[a-c].ts", ["b.ts"], ["d.ts", "[a-c].ts"]),
        ("[!a-c].ts", ["d.ts"], ["b.ts"]),
        ("!a.ts", ["b.ts", "src/a.ts"], ["a.ts"]),
        ("!!a.ts", ["a.ts"], ["b.ts"]),
        ("#a.ts", [], ["#a.ts", "a.ts"]),
        ("a+b.(c).ts", ["a+b.(c).ts"], ["aab.c.ts"]),
        (r"\*.ts", ["*.ts"], ["a.ts"]),
        (".*", [".x"], ["..", "x"]),
        ("../*/a.ts", ["../x/a.ts"], ["x/a.ts", "../../a.ts"]),
        ("x/../a.ts", ["a.ts"], ["x/../a.ts"]),
        ("a/", ["a/"], ["a"]),
        ("/a/*.ts", ["/a/b.ts"], ["a/b.ts"]),
    ],
)
def test_what_fits(pattern: str, fitting: list[str], not_fitting: list[str]) -> None:
    assert [path for path in fitting if not matches(path, pattern)] == []
    assert [path for path in not_fitting if matches(path, pattern)] == []


@pytest.mark.parametrize(
    "pattern", ["+(b).ts", "@(a|b).ts", "a*(x)", "[[:alpha:]].ts", "{1..9}.ts", "[z-a].ts", "{a,b}" * 20]
)
def test_what_is_not_understood_is_said_and_nothing_takes_long(pattern: str) -> None:
    with pytest.raises(NotUnderstood):
        matches("a.ts", pattern)


def test_many_stars_take_no_time() -> None:
    assert not matches("/".join("a" * 60), "**/a/" * 20 + "b")


def test_a_glob_finds_what_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a.ts", "src/b.ts", "src/deep/c.ts", "src/.x/d.ts", ".y/e.ts", "node_modules/m/f.ts", "../beside/g.ts")
    for name in names:
        file = tmp_path / "package" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    package = tmp_path / "package"
    (package / "linked").symlink_to(package / "src")

    def found(pattern: str) -> list[str]:
        return [str(path.relative_to(tmp_path)) for path in expand(pattern, package)]

    assert found("*.ts") == ["package/a.ts"]
    assert found("./src/*.ts") == ["package/src/b.ts"]
    assert found("src/**/*.ts") == ["package/src/b.ts", "package/src/deep/c.ts"]
    assert found("linked/*.ts") == ["package/linked/b.ts"]
    assert found("**/c.ts") == ["package/src/deep/c.ts"]  # links are not followed by **
    assert found("node_modules/*/f.ts") == ["package/node_modules/m/f.ts"]
    assert found("{a,src/b}.ts*") == ["package/a.ts", "package/src/b.ts"]
    assert found("../beside/*") == ["beside/g.ts"]
    assert found(f"{package}/*.ts") == ["package/a.ts"]
    assert found("no*/such/*") == []
    monkeypatch.setattr(patterns, "_MOST_ENTRIES", 5)
    with pytest.raises(NotUnderstood):
        expand("**/*", package)


def test_ignore_files() -> None:
    rules = ["# a comment", "", "*.js", "!keep.js", "/one", "two/", "**/three", "up/down", "U*  "]
    left_out = [(name, False) for name in ("a.js", ".b.js", "one", "three", "UNDER", "under")]
    assert [entry for entry in [*left_out, ("two", True), ("one", True)] if not ignored(*entry, rules)] == []
    kept = [(name, False) for name in ("keep.js", "two", "down", "a.ts", "#", "onetwo")]
    assert [entry for entry in kept if ignored(*entry, rules)] == []
