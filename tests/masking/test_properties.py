"""Masking random sessions: whatever is in them, a batch is safe, and planning again finds nothing to do."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path

from hypothesis import given, settings, strategies as st

from contexthost.messages import Message, js_json
from contexthost.projection import ProjectionAuthority, Snapshot
from contexthost.session import Session
from contexthost_masking.plan import plan_mask
from contexthost_masking.settings import MaskSettings
from support.builder import SessionBuilder, tool_call, usage_of
from support.masking import Characters
from support.sessions import sessions

limits = st.builds(
    MaskSettings,
    triggerTokens=st.integers(1, 3_000),
    targetTokens=st.integers(0, 3_000),
    triggerRatio=st.sampled_from([0.01, 0.5, 1.0]),
    targetRatio=st.sampled_from([0.01, 0.5, 1.0]),
    minClearTokens=st.sampled_from([0, 100, 1_000]),
    keepRecentTurns=st.integers(0, 4),
    minEntryTokens=st.sampled_from([0, 150, 400]),
    excludeTools=st.sampled_from([(), ("bash",), ("read", "edit")]),
    maskErrors=st.booleans(),
)


@st.composite
def working_sessions(draw: st.DrawFn) -> bytes:
    """Sessions with many large results, some of which answer the same assistant message."""
    build = SessionBuilder()
    number = 0
    for _ in range(draw(st.integers(1, 12))):
        if draw(st.booleans()):
            build.user("u" * draw(st.integers(0, 300)))
        calls = draw(st.lists(st.sampled_from(["read", "bash", "edit"]), max_size=3))
        names = [f"call-{number + at}" for at in range(len(calls))]
        number += len(calls)
        path = draw(st.sampled_from(["src/a.py", "skills/SKILL.md", ""]))
        usage = usage_of(draw(st.integers(10, 8_000)))
        build.assistant(
            calls=[tool_call(name, tool, {"path": path}) for name, tool in zip(names, calls, strict=True)], usage=usage
        )
        for name, tool in zip(names, calls, strict=True):
            text = "x" * draw(st.integers(0, 2_000))
            result = build.tool_result(name, text, tool=tool, is_error=draw(st.booleans()))
            if draw(st.integers(0, 9)) == 0:
                build.edit(result, draw(st.sampled_from([None, "redacted " * 40])))
    return build.bytes()


def protected(before: Snapshot, limits: MaskSettings) -> set[str]:
    """The ids that no batch may touch, worked out backwards from the end and without the planner."""
    found: set[str] = set()
    turns = 0
    for item in reversed(before.entries):
        role = item.source.role
        message = item.source.message or {}
        recent = turns < limits.keepRecentTurns
        excluded = message.get("toolName") in limits.excludeTools
        failed = bool(message.get("isError")) and not limits.maskErrors
        if (
            role != "toolResult"
            or recent
            or item.edit is not None
            or excluded
            or failed
            or item.tokens < limits.minEntryTokens
        ):
            found.add(item.source.id)
        turns += role == "assistant" and not item.omitted
    return found


def written(messages: Iterable[Message]) -> list[str]:
    """Messages as JSON: when an old file is migrated, an infinite number becomes null, as in Pi."""
    return [js_json(message) for message in messages]


def check(data: bytes, chosen: MaskSettings) -> int:
    """Masks a session file and checks all that must hold; how many results were masked."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "session.jsonl"
        path.write_bytes(data)
        authority = ProjectionAuthority(Session.open(path), counter=Characters(), window=10_000)
        before = authority.snapshot()
        shown = {item.source.id: written(item.messages) for item in before.entries}
        safe = protected(before, chosen)
        plan = plan_mask(before, chosen)
        masked = {draft.target_id for draft in plan.drafts}
        assert not masked & safe
        assert len(masked) == len(plan.drafts)
        assert plan_mask(before, chosen) == plan

        preview = authority.preview(plan.drafts)
        after = authority.commit(plan.drafts)
        assert written(preview.messages) == written(after.messages)
        assert plan_mask(after, chosen).drafts == ()
        assert after.usage.tokens == plan.tokens_after
        assert after.ledger.reclaimed_tokens - before.ledger.reclaimed_tokens == plan.reclaimed_tokens >= 0

        assert [(mend.kind, mend.tool_call_id) for mend in after.mended] == [
            (mend.kind, mend.tool_call_id) for mend in before.mended
        ]
        assert len(after.messages) == len(before.messages)
        for item in after.entries:
            assert item.masked if item.source.id in masked else written(item.messages) == shown.get(item.source.id, [])
        grown = path.read_bytes()
        backups = list(Path(directory).glob("*.bak"))
        assert [backup.read_bytes() for backup in backups] == [data] if backups else grown.startswith(data)
        assert masked or grown == data
        return len(masked)


@settings(max_examples=120)
@given(data=sessions(), chosen=limits)
def test_strange_sessions_are_masked_safely(data: bytes, chosen: MaskSettings) -> None:
    check(data, chosen)


@settings(max_examples=120)
@given(data=working_sessions(), chosen=limits)
def test_working_sessions_are_masked_safely(data: bytes, chosen: MaskSettings) -> None:
    check(data, chosen)


def test_the_property_is_not_empty() -> None:
    build = SessionBuilder()
    for number in range(4):
        build.assistant(calls=[tool_call(f"call-{number}", "bash", {"command": "ls"})], usage=usage_of(5_000))
        build.tool_result(f"call-{number}", "x" * 1_000, tool="bash")
    assert check(build.bytes(), MaskSettings(triggerTokens=100, minClearTokens=0, keepRecentTurns=1)) == 3
