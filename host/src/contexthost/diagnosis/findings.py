"""`diagnose`: everything that is wrong with a session, each with what the model sees and what repair would do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from contexthost.bulk import many_objects
from contexthost.diagnosis.compactions import CompactionReport, examine_compaction
from contexthost.diagnosis.content import MAX_DEPTH, broken_edits, content_edits, nested_too_deeply
from contexthost.diagnosis.finding import Finding
from contexthost.diagnosis.lines import Survey, survey
from contexthost.diagnosis.pairs import PairFault, Replacement
from contexthost.diagnosis.structure import examine_structure
from contexthost.errors import ParentCycle
from contexthost.projection import ContextEditDraft, Draft, ProjectionAuthority
from contexthost.session import Entry, Session

__all__ = ["Diagnosis", "Finding", "diagnose", "examine"]


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What is wrong with a session.

    Attributes:
        findings: in the order of their lines.
        drafts: what a repair appends, all of it; mends every finding whose ``mend`` is ``append``.
    """

    findings: tuple[Finding, ...]
    drafts: tuple[Draft, ...]

    @property
    def problems(self) -> list[Finding]:
        """The findings that are more than notices."""
        return [finding for finding in self.findings if finding.severity == "problem"]


def examine(authority: ProjectionAuthority) -> Diagnosis:
    """`diagnose` with the lines of the session's own file.

    Raises:
        OSError: the file cannot be read any more.
    """
    path = authority.session.path
    if path is None:
        return diagnose(authority)
    with path.open("rb") as file:
        return diagnose(authority, survey(file, authority.session.entries))


@many_objects()
def diagnose(authority: ProjectionAuthority, lines: Survey | None = None) -> Diagnosis:
    """Looks at the lines, the tree, and the context at the session's leaf; other branches are not projected.

    Args:
        lines: the lines of the session's file; None for a session in memory.
    """
    session = authority.session
    lines = lines if lines is not None else Survey()
    try:
        branch = session.branch()
    except ParentCycle:
        branch = None
    found = list(examine_structure(session, branch, lines))
    drafts: tuple[Draft, ...] = ()
    if branch is not None:
        drafts, contextual = _examine_context(authority, lines.line_of)
        found += contextual
    if not drafts:  # any other draft gives the file a new last entry as well
        drafts = next((finding.drafts for finding in found if finding.drafts), ())
    return Diagnosis(tuple(sorted(found, key=lambda finding: finding.line)), drafts)


def _examine_context(
    authority: ProjectionAuthority, line_of: Mapping[int, int]
) -> tuple[tuple[Draft, ...], list[Finding]]:
    snapshot = authority.snapshot()
    report = examine_compaction(authority, snapshot)
    contents = content_edits(report.after.entries)
    broken = broken_edits(report.after.entries)
    edits: dict[str, Replacement] = {target: {"content": blocks} for target, blocks in contents.items()}
    edits |= dict.fromkeys(broken.values(), None)
    edits |= report.pairs.edits
    if edits:
        # Never sent by Pi, so this changes nothing for the model; but not every reader of the file knows that.
        edits |= {entry_id: None for entry_id in report.pairs.failed_with_calls if entry_id not in edits}
    if report.draft is None and not edits:
        return (), []
    drafts: list[Draft] = [] if report.draft is None else [report.draft]
    drafts += [ContextEditDraft(target_id=target, replacement=value) for target, value in edits.items()]
    findings = [*_of_compaction(report), *_of_pairs(report, edits), *_of_edits(broken)]
    findings += _of_content(authority.session, contents, edits)
    shown = {entry.source.id for entry in snapshot.entries}
    placed = []
    for finding in findings:
        entry = authority.session.get(finding.entry_id or "")
        if finding.entry_id not in shown:
            continue  # in history that only the new compaction brings back: mended with it, seen by nobody now
        line = line_of.get(entry.position, 0) if entry is not None else 0
        placed.append(replace(finding, line=line))
    return tuple(drafts), placed


def _of_compaction(report: CompactionReport) -> Iterator[Finding]:
    compaction, draft = report.compaction, report.draft
    if compaction is None or draft is None:
        return
    kept = draft.first_kept_entry_id
    keeps = f"keeps from entry {kept} on" if kept is not None else "keeps nothing before it"
    common: dict[str, Any] = {"mend": "append", "entry_id": compaction.id, "drafts": (draft,)}
    if report.unknown_kept:
        first = compaction.data.get("firstKeptEntryId")
        wrong = f"the compaction keeps what came from entry {first} on, but that is not on the branch before it"
        if not isinstance(first, str):
            wrong = "the compaction does not say from which entry on it keeps what came before it"
        yield Finding(
            kind="unknown-kept-id", **common,
            problem=wrong,
            model_sees="The summary, and nothing of the messages that were to be kept with it.",
            repair=f"Append a compaction with the same summary that {keeps}"
            + ("" if report.empty else ", where Pi's own cut of 20,000 tokens would be") + ".",
        )  # fmt: skip
    if report.empty:
        yield Finding(
            kind="empty-summary", **common,
            problem="the compaction has no summary",
            model_sees="An empty summary in place of the history before the compaction.",
            repair=f"Append a compaction that says so and {keeps}: as much of the history as leaves half of the "
            "window free.",
        )  # fmt: skip
    if report.split:
        many = len(report.split)
        yield Finding(
            kind="compaction-inside-pair", **common,
            problem=f"the compaction stands between {'a call and its result' if many == 1 else f'{many} results'}"
            f"{'' if many == 1 else ' and their calls'} ({', '.join(report.split)})",
            model_sees="Results without their calls: the provider refuses every request.",
            repair=f"Append a compaction with the same summary that {keeps}, with the calls.",
        )  # fmt: skip


_WORDS: Final = {
    "orphan-result": (
        "a result of {tool} for {call}, without the call",
        "A result without a call: the provider refuses every request.",
    ),
    "duplicate-result": (
        "another result of {tool} for {call}, which has one",
        "Two results for one call: the provider refuses every request.",
    ),
    "late-result": (
        "the result of {tool} for {call} came after a later message",
        "\"No result provided\" behind the call, and the result after the message: the provider refuses every request.",
    ),
    "unanswered-call": (
        "the call of {tool} ({call}) has no result",
        "The call, and \"No result provided\", which Pi puts in at each request; other programs send the call alone.",
    ),
    "repeated-call": (
        "a call of {tool} whose id ({call}) its message has used already",
        "Two calls with one id: the provider refuses every request.",
    ),
}  # fmt: skip


def _of_pairs(report: CompactionReport, edits: Mapping[str, Replacement]) -> Iterator[Finding]:
    for fault in report.pairs.faults:
        problem, sees = _WORDS[fault.kind]
        names = {"tool": fault.tool or "a tool", "call": fault.call_id or "no id"}
        problem = problem.format(**names)
        if fault.failed_entry is not None and fault.kind == "orphan-result":
            problem += f": it belongs to the failed attempt {fault.failed_entry}, which Pi does not send"
        elif fault.failed_entry is not None:
            problem = f"between the result and its call {names['call']} stands the failed attempt {fault.failed_entry}"
        yield Finding(
            kind=fault.kind, mend="append", entry_id=fault.entry_id, problem=problem, model_sees=sees,
            repair=_repair_of(fault, edits),
            drafts=tuple(
                ContextEditDraft(target_id=target, replacement=edits[target])
                for target in fault.targets
                if target in edits
            ),
        )  # fmt: skip


def _repair_of(fault: PairFault, edits: Mapping[str, Replacement]) -> str:
    parts = []
    for target in fault.targets:
        if target not in edits:
            continue
        if edits[target] is not None:
            parts.append(f"take the call out of entry {target}; all else in it stays")
        elif target == fault.entry_id and fault.kind in ("unanswered-call", "repeated-call"):
            parts.append(f"omit entry {target}: nothing but the call is in it")
        else:
            parts.append(f"omit entry {target} from the context")
    return f"Append context edits: {'; '.join(parts)}. The file keeps all of it."


def _of_content(session: Session, contents: Iterable[str], edits: Mapping[str, Replacement]) -> Iterator[Finding]:
    for entry_id in contents:
        deep = _has_deep_call(session.get(entry_id))
        yield Finding(
            kind="bad-content", mend="append", entry_id=entry_id,
            problem=f"a call's arguments are nested more than {MAX_DEPTH:,} deep" if deep
            else "the message's content is not what Pi expects: a list of blocks with all their parts",
            model_sees="Nothing at all: Pi fails when it builds a request or counts tokens, or providers refuse it.",
            repair=f"Append a context edit that gives entry {entry_id} the same content as whole blocks"
            + (", and the call no arguments." if deep else "."),
            drafts=(ContextEditDraft(target_id=entry_id, replacement=edits[entry_id]),),
        )  # fmt: skip


def _has_deep_call(entry: Entry | None) -> bool:
    message = entry.message if entry is not None else None
    content = message.get("content") if message is not None else None
    return isinstance(content, list) and any(
        isinstance(block, dict) and block.get("type") == "toolCall" and isinstance(block.get("arguments"), dict)
        and nested_too_deeply(block["arguments"])
        for block in content
    )  # fmt: skip


def _of_edits(broken: Mapping[str, str]) -> Iterator[Finding]:
    for entry_id, target in broken.items():
        yield Finding(
            kind="bad-edit", mend="append", entry_id=entry_id,
            problem=f"a context edit of entry {target} that neither omits it nor says what stands in its place",
            model_sees="Nothing at all: Pi fails on it.",
            repair=f"Append a context edit that omits entry {target}.",
            drafts=(ContextEditDraft(target_id=target, replacement=None),),
        )  # fmt: skip
