"""The most that a compaction by jev could save, for the host's report; no request is made."""

from __future__ import annotations

from contexthost.config import HostSettings, load_settings
from contexthost.estimates import Estimate
from contexthost.projection import Snapshot
from contexthost.tokens import default_counter
from contexthost_jev.planning import plan_session
from contexthost_jev.settings import load, options_of

__all__ = ["estimate"]

_WHAT = "jev: keep what Jev says is needed"


def estimate(snapshot: Snapshot) -> Estimate:
    """What would be left if Jev let every call go that it is asked about."""
    host = load_settings(HostSettings, "host").values
    planned = plan_session(snapshot, host.compaction, options_of(load().values), default_counter(host.encoding))
    if planned.outcome != "planned":
        return Estimate(what=_WHAT, note=f"Nothing would be asked: {planned.detail}.")
    return Estimate(
        what=_WHAT,
        command="contexthost compact SESSION --with jev",
        tokens_after=max(snapshot.tokens - planned.reclaimable_tokens, 0),
        at_least=True,
        note=(
            f"The best case: all {len(planned.asked):,} calls that Jev is asked about go, in "
            f"{len(planned.requests):,} requests of {sum(planned.requests):,} tokens together. Needs a key."
        ),
    )
