"""The note: what a relay leaves of the conversation. Pure and deterministic: same source, same limits, same note."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from contexthost.text import one_line, printable, shorten
from contexthost_relay.gitlog import RepositoryLog
from contexthost_relay.settings import Limits
from contexthost_relay.subagents import Subagent

__all__ = ["FileChange", "NoteSection", "NoteSource", "Said", "cut", "write_note"]

_SHRINK: Final = 0.8
"""Each older instruction may be this much shorter than the one after it."""

_LEAST: Final = 80
"""Below so many characters an instruction says nothing any more: it is left out instead."""

_CHAIN_EACH: Final = 90
_AGENT_RESULT: Final = 240


@dataclass(frozen=True, slots=True)
class Said:
    """Something that was said: entry id, ISO time, text."""

    entry_id: str
    time: str
    text: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file that tools changed, and how often each did."""

    path: str
    edits: int = 0
    writes: int = 0


@dataclass(frozen=True, slots=True)
class NoteSection:
    """A section that another plugin adds: a heading and a text of any form, both cut and cleaned for the note."""

    title: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSource:
    """What a note is made from.

    Attributes:
        number: of the note, from 1; ``path`` is where it lies.
        made: ISO time.
        instructions: the user's messages since the last compaction that are not kept, oldest first.
        earlier: those before that compaction, newest first; looked at only as far as they fit.
        summary_id: the entry of an earlier summary that this note displaces and that was no relay's.
        answer: the last final answer before what is kept.
        agents: in the order in which they appeared.
        files: the last changed last.
        repositories: commits since the session began.
        extra: sections of other plugins.
    """

    number: int
    path: str
    made: str
    instructions: Sequence[Said] = ()
    earlier: Iterable[Said] = ()
    summary_id: str | None = None
    answer: Said | None = None
    agents: Sequence[Subagent] = ()
    files: Sequence[FileChange] = ()
    repositories: Sequence[RepositoryLog] = ()
    extra: Sequence[NoteSection] = field(default=())


def cut(text: str, length: int) -> str:
    """At most ``length`` code points, the last ``…`` if something was cut; nothing for a length below 1."""
    return shorten(text, length) if length > 0 else ""


def write_note(source: NoteSource, limits: Limits) -> str:
    """The note, at most ``limits.total`` code points, without control characters. Where the sections together are
    too long, the later ones give way first; the footer, which says how to get at the rest, stays."""
    head = (
        f"# Relay note {source.number}\n\n"
        "The conversation up to here was replaced by this note. A program made it from the session's record, without "
        "a model. What follows the note is the conversation as it was.\n"
    )
    foot = _footer(source)
    running = _running(source.agents, limits.subagents)
    sections: list[Callable[[int], str]] = [
        lambda room: _running(source.agents, min(limits.subagents, room)),
        lambda room: _instructions(source, limits, min(limits.userMessages, room)),
        lambda room: _chain(source, min(limits.chain, room)),
        lambda room: _answer(source.answer, min(limits.answer, room)),
        lambda room: _finished(source.agents, min(limits.subagents - len(running), room)),
        lambda room: _files(source.files, min(limits.files, room)),
        lambda room: _commits(source.repositories, min(limits.git, room)),
        lambda room: _extra(source.extra, min(limits.extra, room)),
    ]
    left = limits.total - len(head) - len(foot)
    body: list[str] = []
    for section in sections:
        text = section(left - 1)
        if text:
            body.append(text)
            left -= len(text) + 1
    return cut("\n".join([head, *body, foot]) if body else head + foot, limits.total)


# Sections: each gives text ending in a line feed, at most ``room`` code points, or nothing ----------------------------


def _fit(title: str, lines: Sequence[str], room: int, left_out: Callable[[int], str]) -> str:
    """A heading and as many whole lines as fit; a line at the end says how many did not."""
    text = f"## {title}\n\n" if title else ""
    if not lines:
        return ""
    for number, line in enumerate(lines):
        rest = len(lines) - number
        more = left_out(rest - 1) + "\n" if rest > 1 else ""
        if len(text) + len(line) + 1 + len(more) > room:
            if number == 0:  # not even one: as much of it as there is room for
                space = room - len(text) - 1 - len(more)
                return f"{text}{cut(line, space)}\n{more}" if space >= 20 else ""
            closing = left_out(rest) + "\n"
            return text + closing if len(text) + len(closing) <= room else text
        text += line + "\n"
    return text


def _instructions(source: NoteSource, limits: Limits, room: int) -> str:
    """Newest first they are given room, less to each older one; printed oldest first."""
    title = "## What the user said since the last compaction, oldest first\n\n"
    kept: list[str] = []
    space = room - len(title) - 60  # for the line that says how many were left out
    allowed = float(limits.userMessageEach)
    for number, said in enumerate(reversed(source.instructions)):
        head = f"- [{_reference(said)}] "
        text = one_line(said.text) or "(no text)"
        least = min(len(text), _LEAST)
        each = int(max(allowed, least)) if number else int(allowed)
        shown = cut(text, min(each, space - len(head) - 1))
        if len(shown) < min(least, each) or not shown:
            break
        kept.append(head + shown)
        space -= len(head) + len(shown) + 1
        allowed *= _SHRINK
    missing = len(source.instructions) - len(kept)
    if not source.instructions or room < len(title) + 60:
        return ""
    many = "one older is left out" if missing == 1 else f"{missing} older are left out"
    first = [f"- ({many}; `recall` finds what they say)"] if missing else []
    return title + "\n".join([*first, *reversed(kept)]) + "\n"


def _chain(source: NoteSource, room: int) -> str:
    """What the user said before the last compaction, in one line, oldest first; and where a lost summary is."""
    pointer = ""
    if source.summary_id is not None:
        pointer = f"An earlier summary is replaced too: `recall` with entryId \"{one_line(source.summary_id)}\".\n"
    head, parts, more = "Before that, oldest first: ", [], False
    space = room - len(pointer) - len(head) - 4
    for said in source.earlier:
        text = one_line(said.text)
        if not text:
            continue
        part = f"“{cut(text, _CHAIN_EACH)}”"
        if len(part) + 3 > space:
            more = True
            break
        parts.append(part)
        space -= len(part) + 3
    line = head + ("… · " if more else "") + " · ".join(reversed(parts)) + "\n" if parts else ""
    text = pointer + line
    return text if len(text) <= room else ""


def _answer(answer: Said | None, room: int) -> str:
    if answer is None:
        return ""
    title = f"## The last answer before what follows [{_reference(answer)}]\n\n"
    text = printable(answer.text).strip()
    quoted = "\n".join(f"> {line}".rstrip() for line in text.splitlines())
    space = room - len(title) - 1
    return title + cut(quoted, space) + "\n" if text and space >= 20 else ""


def _running(agents: Sequence[Subagent], room: int) -> str:
    lines = [
        f"- **RUNNING** since {_time(agent.started)}: {_agent(agent)}" for agent in agents if agent.running
    ]
    return _fit("Subagents that have not come back", lines, room, lambda n: f"- ({n} more RUNNING)")


def _finished(agents: Sequence[Subagent], room: int) -> str:
    lines = []
    for agent in reversed([agent for agent in agents if not agent.running]):
        result = one_line(" ".join(printable(agent.result).strip().splitlines()[:6]))
        told = f": {cut(result, _AGENT_RESULT)}" if result else ""
        where = f" [{one_line(agent.entry_id)}]" if agent.entry_id else ""
        lines.append(f"- {cut(one_line(agent.state), 20)} {_agent(agent)}{where}{told}")
    return _fit("Subagents that have come back, newest first", lines, room, lambda n: f"- ({n} older ones)")


def _agent(agent: Subagent) -> str:
    parts = [f"`{cut(one_line(agent.id), 60)}`"]
    if agent.type:
        parts.append(cut(one_line(agent.type), 40))
    if agent.description:
        parts.append(f"“{cut(one_line(agent.description), 120)}”")
    if agent.worktree:
        parts.append(f"worktree {cut(one_line(agent.worktree), 160)}")
    if agent.branch:
        parts.append(f"branch {cut(one_line(agent.branch), 80)}")
    return ", ".join(parts)


def _files(files: Sequence[FileChange], room: int) -> str:
    lines = []
    for change in reversed(files):
        counts = Counter(edit=change.edits, write=change.writes)
        how = ", ".join(f"{number} {kind}{'s' if number > 1 else ''}" for kind, number in counts.items() if number)
        lines.append(f"- {cut(one_line(change.path), 200)} ({how})")
    return _fit("Files changed, the last first", lines, room, lambda n: f"- (and {n} more)")


def _commits(repositories: Sequence[RepositoryLog], room: int) -> str:
    lines = []
    for log in repositories:
        branch = f", branch {cut(one_line(log.branch), 80)}" if log.branch else ""
        lines.append(f"{cut(one_line(log.path), 200)}{branch}:")
        lines += [
            f"- {one_line(commit.hash)} {cut(one_line(commit.subject), 100)} ({_time(commit.time)})"
            for commit in log.commits
        ]
    return _fit("Commits since the session began", lines, room, lambda n: f"(and {n} more lines)")


def _extra(sections: Sequence[NoteSection], room: int) -> str:
    """The sections one after the other, until the room is used up."""
    text = ""
    for section in sections:
        title = f"## {cut(one_line(section.title), 80) or 'More'}\n\n"
        body = printable(section.text).strip().replace("\n#", "\n\\#")
        space = room - len(text) - len(title) - 1 - bool(text)
        if not body or space < 20:
            continue
        text += ("\n" if text else "") + title + cut(body, space) + "\n"
    return text


def _footer(source: NoteSource) -> str:
    return (
        "---\n"
        "Everything else is still in the session. `recall({\"query\": \"words\"})` searches it, "
        "`recall({\"entryId\": \"…\"})` gives one entry whole; ids stand in brackets above.\n"
        f"This note: `recall({{\"entryId\": \"note:{source.number}\"}})`, {cut(one_line(source.path), 300)}\n"
        f"Made {_time(source.made)}.\n"
    )


def _reference(said: Said) -> str:
    return f"{cut(one_line(said.entry_id), 40)}, {_time(said.time)}"


def _time(stamp: str) -> str:
    """An ISO time to the minute; anything else shortened as it is."""
    text = one_line(stamp)
    return text[:16].replace("T", " ") if len(text) >= 16 and text[10:11] == "T" else cut(text, 30)
