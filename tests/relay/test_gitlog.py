"""Commits from real repositories: the right ones, and nothing a repository's own configuration names is ever run."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from pathlib import Path

import pytest

from contexthost_relay.gitlog import RepositoryLog, find_git, read_commits
from support.relay import commit, git, repository

SINCE = "2026-01-05T09:00:00.000Z"


def read(cwd: Path, *candidates: Path | str, since: str = SINCE, timeout: float = 20) -> tuple[RepositoryLog, ...]:
    return asyncio.run(read_commits(cwd, map(str, candidates), since=since, timeout_seconds=timeout))


def test_commits_since_the_session_began_newest_first(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    commit(repo, "before", "2026-01-05T08:00:00+00:00")
    first = commit(repo, "first", "2026-01-05T10:00:00+00:00")
    second = commit(repo, "second", "2026-01-05T11:00:00+00:00")
    (log,) = read(repo)
    assert (log.path, log.branch) == (str(repo), "main")
    assert [(one.hash, one.subject, one.time[:13]) for one in log.commits] == [
        (second, "second", "2026-01-05T11"),
        (first, "first", "2026-01-05T10"),
    ]


def test_a_directory_inside_the_repository_will_do(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    commit(repo, "one")
    (repo / "src").mkdir()
    assert [log.path for log in read(repo / "src")] == [str(repo)]


def test_worktrees_that_git_confirms_are_read_others_are_not(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    commit(repo, "base")
    tree = tmp_path / "worktrees" / "agent"
    git(repo, "worktree", "add", "-q", "-b", "agent-branch", str(tree))
    mine = commit(tree, "of the agent", "2026-01-05T12:00:00+00:00")
    stranger = repository(tmp_path / "elsewhere" / "worktrees" / "stranger")
    commit(stranger, "not ours")
    logs = read(repo, tree, stranger, tmp_path / "worktrees" / "gone", "relative/worktrees/x")
    assert [(log.path, log.branch) for log in logs] == [(str(repo), "main"), (str(tree), "agent-branch")]
    assert [one.hash for one in logs[1].commits] == [mine]  # the base commit is told once, above


@pytest.mark.parametrize("directory", ["empty", "missing", "file"])
def test_no_repository_gives_nothing(tmp_path: Path, directory: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    assert read(tmp_path / directory) == ()


def test_a_relative_directory_gives_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = repository(tmp_path / "repo")
    commit(repo, "one")
    monkeypatch.chdir(repo)
    assert read(Path()) == ()


def test_without_git_there_is_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = repository(tmp_path / "repo")
    commit(repo, "one")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_git() is None
    assert read(repo) == ()


def test_a_git_that_the_project_brings_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = repository(tmp_path / "repo")
    canary = trap(tmp_path, repo / "git")
    monkeypatch.chdir(repo)
    monkeypatch.setenv("PATH", f".:{os.environ['PATH']}")
    assert find_git() not in (None, "git", "./git", str(repo / "git"))
    read(repo)
    assert not canary.exists()


def trap(tmp_path: Path, script: Path) -> Path:
    """A program that leaves a canary when it is run; the canary's path."""
    canary = tmp_path / "canary"
    script.parent.mkdir(parents=True, exist_ok=True)
    script.write_text(f"#!/bin/sh\ntouch '{canary}'\nexit 1\n")
    script.chmod(0o755)
    return canary


HOSTILE = {
    "fsmonitor": ["core.fsmonitor={trap}"],
    "pager": ["core.pager={trap}", "pager.log={trap}", "pager.worktree={trap}"],
    "alias": ["alias.log=!{trap}", "alias.worktree=!{trap}"],
    "signatures": ["log.showSignature=true", "gpg.program={trap}", "gpg.ssh.program={trap}", "gpg.format=ssh"],
    "textconv": ["diff.evil.textconv={trap}", "diff.external={trap}", "diff.evil.command={trap}"],
    "hooks": ["core.hooksPath={hooks}"],
    "lazy fetch": [
        "remote.origin.url=ext::{trap}",
        "remote.origin.promisor=true",
        "remote.origin.partialclonefilter=blob:none",
        "extensions.partialClone=origin",
        "protocol.ext.allow=always",
        "core.sshCommand={trap}",
    ],
    "misc": ["core.editor={trap}", "core.askPass={trap}", "credential.helper={trap}", "interactive.diffFilter={trap}"],
    "format": ["format.pretty=%G? %GS", "log.date=human", "color.ui=always", "log.decorate=full", "log.mailmap=true"],
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_repository_runs_nothing(tmp_path: Path, kind: str) -> None:
    repo = repository(tmp_path / "repo")
    (repo / "file").write_text("x")
    (repo / ".gitattributes").write_text("* diff=evil filter=evil\n")
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "with a file", GIT_COMMITTER_DATE="2026-01-05T10:00:00+00:00")
    script = tmp_path / "trap.sh"
    canary = trap(tmp_path, script)
    hooks = tmp_path / "hooks"
    for hook in ("post-index-change", "reference-transaction", "post-checkout", "pre-auto-gc", "post-rewrite"):
        trap(tmp_path, hooks / hook)
        trap(tmp_path, repo / ".git" / "hooks" / hook)
    for setting in HOSTILE[kind]:
        key, _, value = setting.partition("=")
        git(repo, "config", key, value.format(trap=script, hooks=hooks))
    canary.unlink(missing_ok=True)
    (log,) = read(repo)
    assert [one.subject for one in log.commits] == ["with a file"]
    assert "\x1b" not in "".join((log.commits[0].hash, log.commits[0].time, log.commits[0].subject))
    assert not canary.exists()


def test_a_signed_commit_is_not_checked(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    commit(repo, "base")
    raw = git(repo, "cat-file", "commit", "HEAD")
    head, _, message = raw.partition("\n\n")
    signature = "gpgsig -----BEGIN PGP SIGNATURE-----\n \n abcd\n -----END PGP SIGNATURE-----"
    signed = f"{head}\n{signature}\n\nsigned: {message}\n"
    (tmp_path / "object").write_text(signed)
    made = git(repo, "hash-object", "-t", "commit", "-w", str(tmp_path / "object"))
    git(repo, "update-ref", "HEAD", made)
    canary = trap(tmp_path, tmp_path / "gpg")
    git(repo, "config", "log.showSignature", "true")
    git(repo, "config", "gpg.program", str(tmp_path / "gpg"))
    git(repo, "log")
    assert canary.exists()  # the trap works
    canary.unlink()
    (log,) = read(repo)
    assert [one.subject for one in log.commits] == ["signed: base"]
    assert not canary.exists()


def test_a_missing_object_is_not_fetched(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    commit(repo, "one")
    git(repo, "config", "core.repositoryFormatVersion", "1")
    canary = trap(tmp_path, tmp_path / "trap.sh")
    for key, value in (
        ("extensions.partialClone", "origin"),
        ("remote.origin.url", f"ext::{tmp_path / 'trap.sh'}"),
        ("remote.origin.promisor", "true"),
        ("protocol.ext.allow", "always"),
    ):
        git(repo, "config", key, value)
    (repo / ".git" / "refs" / "heads" / "main").write_text("1" * 40 + "\n")
    with pytest.raises(subprocess.CalledProcessError):
        git(repo, "log")
    assert canary.exists()  # the trap works
    canary.unlink()
    assert read(repo) == ()
    assert not canary.exists()


def test_variables_of_the_caller_do_not_get_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = repository(tmp_path / "repo")
    commit(repo, "ours")
    other = repository(tmp_path / "other")
    commit(other, "theirs")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.bare")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "nonsense")
    (log,) = read(repo)
    assert [one.subject for one in log.commits] == ["ours"]


def test_time_runs_out_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    repo = repository(tmp_path / "repo")
    commit(repo, "one")
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir()
    pid = tmp_path / "pid"
    (bin_dir / "git").write_text(f"#!/bin/sh\necho $$ > '{pid}'\nexec /bin/sleep 60\n")
    (bin_dir / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_dir}:{os.environ['PATH']}")
    began = time.monotonic()
    assert read(repo, timeout=3) == ()
    assert time.monotonic() - began < 30
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)
    assert read(repo, timeout=0) == ()


def test_endless_subjects_are_cut(tmp_path: Path) -> None:
    repo = repository(tmp_path / "repo")
    (tmp_path / "message").write_text("x" * 1_000_000)
    git(repo, "commit", "-q", "--allow-empty", "-F", str(tmp_path / "message"))
    (log,) = read(repo, since="2020-01-01T00:00:00Z")
    assert len(log.commits[0].subject) < 262_144
