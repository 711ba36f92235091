"""What crosses the bridge keeps Pi's shapes, whatever a plugin or another extension gives."""

from __future__ import annotations

from typing import Any

import pytest

from contexthost.events import Cancel
from contexthost.pi.wire import compaction_to_pi, draft_from_pi
from contexthost.projection import CompactionDraft
from support.builder import USAGE_ZERO


@pytest.mark.parametrize("reason", [5, None, ["x"]], ids=["number", "none", "list"])
def test_a_cancel_with_a_reason_that_is_no_text_counts_without_it(reason: Any) -> None:
    """Pi's extension takes no other; that the plugin wants it cancelled is clear."""
    assert compaction_to_pi("probe", Cancel(reason)) == {"cancel": True, "reason": ""}
    assert compaction_to_pi("probe", Cancel("not now")) == {"cancel": True, "reason": "probe: not now"}


def test_a_reason_cannot_command_the_terminal() -> None:
    """Pi shows it as it is, and it may quote what a provider or a session says."""
    cancel = Cancel("\x1b]0;title\x07not\x1b[2J now")
    assert compaction_to_pi("probe", cancel) == {"cancel": True, "reason": "probe: not now"}


@pytest.mark.parametrize(("usage", "kept"), [({"input": 1}, None), (None, None), (USAGE_ZERO, USAGE_ZERO)])
def test_another_extensions_usage_does_not_keep_plugins_from_their_boundary(usage: Any, kept: Any) -> None:
    """A draft of it that is refused would: what is wrong with its usage is for that extension and Pi."""
    given = {"type": "compaction", "summary": "s", "firstKeptEntryId": "00000001", "usage": usage}
    assert draft_from_pi(given) == CompactionDraft(summary="s", first_kept_entry_id="00000001", usage=kept)
