"""The ledger of masks is the snapshot's: after every move, compaction and reopening it is what the branch says.

One token is one character.
"""

from __future__ import annotations

from pathlib import Path

from contexthost.projection import CompactionDraft, MaskLedger, ProjectionAuthority
from contexthost.session import Session
from contexthost_masking.plan import plan_mask
from contexthost_masking.settings import MaskSettings
from support.builder import SessionBuilder
from support.masking import Characters, answer, masks, turn


def fresh(session: Session) -> MaskLedger:
    return ProjectionAuthority(session, counter=Characters()).snapshot().ledger


def masked(path: Path) -> tuple[Session, ProjectionAuthority, str, int]:
    """Four results, the first three masked; the session, the entry before the batch, what the batch freed."""
    build = SessionBuilder()
    for _ in range(4):
        turn(build)
    leaf = answer(build)
    session = Session.open(build.write(path / "session.jsonl"))
    authority = ProjectionAuthority(session, counter=Characters())
    plan = plan_mask(authority.snapshot(), masks(keepRecentTurns=2))
    authority.commit(plan.drafts)
    return session, authority, leaf, plan.reclaimed_tokens


def test_at_the_start_of_a_session_it_is_rebuilt_from_the_branch(tmp_path: Path) -> None:
    session, authority, _, reclaimed = masked(tmp_path)
    assert authority.snapshot().ledger == MaskLedger(3, reclaimed)
    path = session.path
    session.close()
    assert path is not None
    with Session.open(path) as again:
        assert fresh(again) == MaskLedger(3, reclaimed)


def test_after_a_move_in_the_tree_it_is_that_of_the_branch(tmp_path: Path) -> None:
    session, authority, before, reclaimed = masked(tmp_path)
    end = session.leaf_id
    session.move_leaf(before)
    assert authority.snapshot().ledger == fresh(session) == MaskLedger(0, 0)
    session.move_leaf(end)
    assert authority.snapshot().ledger == fresh(session) == MaskLedger(3, reclaimed)
    session.close()


def test_after_a_compaction_it_counts_what_is_still_in_the_context(tmp_path: Path) -> None:
    session, authority, _, reclaimed = masked(tmp_path)
    third = [entry for entry in session.entries if entry.role == "assistant"][2]
    authority.commit([CompactionDraft(summary="what was", first_kept_entry_id=third.id)])
    ledger = authority.snapshot().ledger
    assert ledger == fresh(session) == MaskLedger(1, reclaimed // 3)
    authority.commit([CompactionDraft(summary="all of it", first_kept_entry_id=None)])
    assert authority.snapshot().ledger == fresh(session) == MaskLedger(0, 0)
    session.close()


def test_masks_of_other_settings_count_as_well(tmp_path: Path) -> None:
    session, authority, _, reclaimed = masked(tmp_path)
    assert plan_mask(authority.snapshot(), MaskSettings()).drafts == ()
    assert authority.snapshot().ledger == MaskLedger(3, reclaimed)
    session.close()
