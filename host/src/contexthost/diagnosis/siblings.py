"""Branches that a second process wrote: two Pis on one file each follow their own leaf, and one of them is lost.

The rule. At an entry of the branch in use, another child begins a *dead sibling* when

1. what hangs on it is a chain (no further fork) with at least one message of the user or the model,
2. no entry of the chain is a branch summary (which would show that somebody went there and came back), and
3. in the file the chain and what the branch in use has behind the fork alternate: at least one entry of one stands
   between two of the other. Going back to try something else leaves them one after the other.

One process can leave the same trace, by going to the sibling and coming back, so this is only a notice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from contexthost.diagnosis.finding import Finding
from contexthost.session import Entry, Session

__all__ = ["dead_siblings"]


def dead_siblings(session: Session, branch: Sequence[Entry], line_of: Mapping[int, int]) -> Iterator[Finding]:
    """A notice for each dead sibling of the branch in use, naming the sibling's last entry."""
    last = list(accumulate((entry.position for entry in reversed(branch)), max))[::-1]  # from each entry on
    for at, parent in enumerate(branch[:-1]):
        children = session.children(parent.id)
        if len(children) < 2:
            continue
        own = range(branch[at + 1].position, last[at + 1] + 1)
        for child in children:
            if child is branch[at + 1]:
                continue
            chain = _chain(session, child)
            if chain is None or not any(entry.role in ("user", "assistant") for entry in chain):
                continue
            if any(entry.type == "branch_summary" for entry in chain):
                continue
            theirs = range(chain[0].position, chain[-1].position + 1)
            if theirs.stop <= own.start or own.stop <= theirs.start:
                continue
            tip = chain[-1]
            yield Finding(
                kind="dead-sibling", severity="notice", mend="none", entry_id=tip.id,
                line=line_of.get(tip.position, 0),
                problem=f"{len(chain)} {'entry' if len(chain) == 1 else 'entries'} from {child.id} on "
                f"{'was' if len(chain) == 1 else 'were'} written beside the branch in use, turn by turn: "
                "probably by a second process on the same session",
                model_sees="Nothing of them.",
                repair=f"Nothing by itself. In Pi, /tree leads to entry {tip.id}; work on one session in one process.",
            )  # fmt: skip


def _chain(session: Session, entry: Entry) -> list[Entry] | None:
    """The entry and what follows it, up to a leaf; None if it forks."""
    chain = [entry]
    seen = {entry.id}
    while True:
        children = session.children(chain[-1].id)
        if not children:
            return chain
        if len(children) > 1 or children[0].id in seen:
            return None
        chain.append(children[0])
        seen.add(children[0].id)
