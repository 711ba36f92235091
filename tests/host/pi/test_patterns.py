"""The patterns of Pi's settings, against what minimatch says of them (the real one was asked when this was written; the
real Pi is asked in `test_extensions`), and globs on the disk. How patterns are read is wcmatch's to test."""

from __future__ import annotations

from pathlib import Path

import pytest

from contexthost.pi.patterns import NotUnderstood, expand, matches


@pytest.mark.parametrize(
    ("pattern", "fitting", "not_fitting"),
    [
        ("*.ts", ["a.ts", "a.b.ts"], ["a.js", "src/a.ts", ".a.ts"]),
        ("**/*.ts", ["a.ts", "src/a.ts", "a/b/c.ts"], [".x/a.ts", "a/.x/b.ts", "a.js"]),
        ("src/**", ["src/a.ts", "src/a/b"], ["src", "a/src/b", "src/.x"]),
        ("{a,b/c}.{ts,js}", ["a.ts", "b/c.js"], ["b.ts", "a.tsx"]),
        ("@(a|b).ts", ["a.ts"], ["ab.ts", "c.ts"]),
        ("[!a-c].ts", ["d.ts"], ["b.ts"]),
        ("!a.ts", ["b.ts", "src/a.ts"], ["a.ts"]),
        ("!!a.ts", ["a.ts"], ["b.ts"]),
        ("#a.ts", [], ["#a.ts", "a.ts"]),
        ("!#a.ts", ["a.ts"], ["#a.ts"]),
        (".*", [".x"], ["..", "x"]),
        ("../*/a.ts", ["../x/a.ts"], ["x/a.ts", "../../a.ts"]),
        ("/a/*.ts", ["/a/b.ts"], ["a/b.ts"]),
        ("A.ts", ["A.ts"], ["a.ts"]),
    ],
)
def test_what_fits(pattern: str, fitting: list[str], not_fitting: list[str]) -> None:
    assert [path for path in fitting if not matches(path, pattern)] == []
    assert [path for path in not_fitting if matches(path, pattern)] == []


@pytest.mark.parametrize(
    "pattern",
    ["x/../a.ts", "a*/..", "+(b).ts", "a*(x)", "{1..9999}.ts", "{a,b}" * 20, "**/a/" * 20 + "b", "!(" * 2000],
)
def test_what_is_not_understood_is_said_and_nothing_takes_long(pattern: str) -> None:
    with pytest.raises(NotUnderstood):
        matches("/".join("a" * 60), pattern)


def test_a_glob_finds_what_is_visible(tmp_path: Path) -> None:
    for name in ("a.ts", "src/b.ts", "src/deep/c.ts", "src/.x/d.ts", ".y/e.ts", "../beside/g.ts"):
        file = tmp_path / "package" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
    package = tmp_path / "package"
    (package / "linked").symlink_to(package / "src")

    def found(pattern: str) -> list[str]:
        return [str(path.relative_to(package)) for path in expand(pattern, package)]

    assert found("./src/*.ts") == ["src/b.ts"]
    assert found("src/**/*.ts") == ["src/b.ts", "src/deep/c.ts"]
    assert found("linked/*.ts") == ["linked/b.ts"]
    assert found("**/c.ts") == ["src/deep/c.ts"]  # links are not followed by **
    assert found("{a,src/b,.y/e}.ts*") == ["a.ts", "src/b.ts"]
    assert found("no*/such/*") == []
    assert found("a\0b/*") == []
    for outside in ("../beside/*", f"{package}/*.ts", "{a,..}/*"):  # could be a whole disk
        with pytest.raises(NotUnderstood):
            expand(outside, package)
