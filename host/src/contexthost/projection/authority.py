"""`ProjectionAuthority`: the only code that says what the model sees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from contexthost.messages import timestamp_ms
from contexthost.projection.drafts import CompactionDraft, ContextEditDraft, CustomDraft, CustomMessageDraft, Draft
from contexthost.projection.fold import Fold
from contexthost.projection.overlay import Overlay
from contexthost.projection.snapshot import Snapshot
from contexthost.projection.validate import check_draft, check_pairs
from contexthost.session import Entry, Session
from contexthost.session.session import now_iso
from contexthost.tokens import TokenCounter, default_counter
from contexthost.tokens.pi import estimate_projected_context_tokens

__all__ = ["DEFAULT_WINDOW", "ProjectionAuthority"]

DEFAULT_WINDOW: Final = 200_000
"""Tokens of context assumed when neither the model nor the settings say."""


class ProjectionAuthority:
    """Gives the one snapshot that everybody reads, and moves it along with the session.

    1. `snapshot` returns the same object until the session changed.
    2. After a change the next snapshot is made from the last one and what was added; older snapshots stay valid.
    3. The branch is walked as a whole only at the first call and where a move to another branch makes it unavoidable.
    4. Nothing here writes, except `commit`.

    Args:
        session: the session to project.
        counter: counts tokens; cl100k_base by default.
        window: the model's context window in tokens.
    """

    def __init__(self, session: Session, *, counter: TokenCounter | None = None, window: int = DEFAULT_WINDOW) -> None:
        if window <= 0:
            raise ValueError(f"a context window has more than {window} tokens")
        self.session = session
        self._counter = counter if counter is not None else default_counter()
        self._window = window
        self._fold = Fold(session, self._counter, window)
        self._snapshot: Snapshot | None = None
        self._seen = (-1, -1)
        self._revision = 0

    @property
    def visits(self) -> int:
        """How many entries were looked at so far; shows that steps do not scan the branch."""
        return self._fold.visits

    def snapshot(self) -> Snapshot:
        """What the model sees now.

        Raises:
            ParentCycle: the branch leads in a circle.
        """
        state = (self.session.revision, self.session.epoch)
        if self._snapshot is not None and state == self._seen:
            return self._snapshot
        known = self._snapshot if self._seen[1] == self.session.epoch else None
        made = self._advance(known, self.session.leaf)
        if made is not self._snapshot:
            self._revision += 1
            made = replace(made, revision=self._revision)
        self._snapshot, self._seen = made, state
        return made

    def set_window(self, window: int) -> None:
        """Goes over to another context window, in tokens.

        Raises:
            ValueError: not a positive number.
        """
        if window <= 0:
            raise ValueError(f"a context window has more than {window} tokens")
        self._window = window
        self._fold = Fold(self.session, self._counter, window)
        if self._snapshot is not None:
            self._revision += 1
            self._snapshot = replace(self._snapshot, revision=self._revision, window=window)

    def at(self, leaf_id: str) -> Snapshot:
        """What the model would see at another leaf; walks that branch and moves nothing.

        Raises:
            EntryNotFound: no such entry.
        """
        return self._fold.hydrate(self.session.require(leaf_id))

    def _advance(self, known: Snapshot | None, leaf: Entry | None) -> Snapshot:
        """From a known snapshot to the one at ``leaf``: back to where the branches part, then forward."""
        if known is None or known._leaf is None or leaf is None:
            return self._fold.hydrate(leaf)
        if known._leaf is leaf:
            return known
        ahead: list[Entry] = []
        old: Entry | None = known._leaf
        new: Entry | None = leaf
        while new is not None and old is not None and new is not old:
            if len(ahead) > len(known.entries):  # farther away than starting over
                return self._fold.hydrate(leaf)
            if new.depth > old.depth:
                ahead.append(new)
                new = self.session.parent(new)
            else:
                old = self.session.parent(old)
                if old is not None and new.depth == old.depth + 1 and new is not old:
                    ahead.append(new)
                    new = self.session.parent(new)
        if new is None or old is None:
            return self._fold.hydrate(leaf)
        snapshot: Snapshot | None = known
        if old is not known._leaf:
            snapshot = self._fold.pop(known, old)
        if snapshot is None:
            return self._fold.hydrate(leaf)
        for entry in reversed(ahead):
            snapshot = self._fold.push(snapshot, entry)
        return snapshot

    def preview(self, drafts: Sequence[Draft], *, check: bool = True) -> Snapshot:
        """The snapshot that appending the drafts would give; writes nothing.

        Args:
            check: False shows also what would be refused: a draft without the others that make it whole.

        Raises:
            InvalidDraft: they must not be appended.
        """
        return self._plan(drafts, check=check)[0]

    def validate(self, drafts: Sequence[Draft]) -> None:
        """Checks drafts as a whole.

        Raises:
            InvalidDraft: the first thing that is wrong with them.
        """
        self._plan(drafts)

    def commit(self, drafts: Sequence[Draft]) -> Snapshot:
        """Validates the drafts against the file as it is now and appends all of them by one write, or none.

        Raises:
            InvalidDraft, SessionLocked, SessionWriteError, SessionChanged: nothing was appended.
        """
        if drafts:
            with self.session.writing():
                self.session.refresh()
                self.session.append(self._plan(drafts)[1])
        return self.snapshot()

    def _plan(self, drafts: Sequence[Draft], *, check: bool = True) -> tuple[Snapshot, list[dict[str, Any]]]:
        before = self.snapshot()
        if not drafts:
            return before, []
        overlay = Overlay(self.session)
        fold = Fold(overlay, self._counter, self._window)
        snapshot = replace(before, revision=before.revision + 1, _session=overlay)
        payloads: list[dict[str, Any]] = []
        made: set[str] = set()
        for draft in drafts:
            if check:
                check_draft(draft, snapshot, overlay)
            payload = self._payload(draft, snapshot, self.session.new_id(made))
            made.add(payload["id"])
            entry = Entry.drafted(payload, parent=snapshot._leaf, position=len(self.session.entries) + len(payloads))
            payloads.append(payload)
            overlay.add(entry)
            snapshot = fold.push(snapshot, entry)
        self._fold.visits += fold.visits
        if check:
            check_pairs(before, snapshot, drafts)
        return snapshot, payloads

    def _payload(self, draft: Draft, snapshot: Snapshot, entry_id: str) -> dict[str, Any]:
        """The entry that a draft becomes, in the shape of the file; absent keys stay absent, as Pi writes them."""
        stamp = now_iso()
        base: dict[str, Any] = {"id": entry_id, "timestamp": stamp}
        if isinstance(draft, ContextEditDraft):
            return {
                "type": "context_edit",
                **base,
                "targetId": draft.target_id,
                "replacement": self._replacement(draft, snapshot),
            }
        if isinstance(draft, CustomDraft):
            return {"type": "custom", **base, "customType": draft.custom_type, "data": draft.data}
        if isinstance(draft, CustomMessageDraft):
            optional = {} if draft.details is None else {"details": draft.details}
            return {
                "type": "custom_message",
                **base,
                "customType": draft.custom_type,
                "content": draft.content,
                "display": draft.display,
                **optional,
            }
        return self._compaction_payload(draft, snapshot, base)

    def _replacement(self, draft: ContextEditDraft, snapshot: Snapshot) -> dict[str, Any] | None:
        if draft.replacement is None:
            return None
        replacement = dict(draft.replacement)
        target = snapshot._session.require(draft.target_id)
        if isinstance(replacement["content"], str) and target.role in ("assistant", "toolResult"):
            # These roles have no plain text content: Pi stores a text block, for "" as well.
            return {"content": [{"type": "text", "text": replacement["content"]}]}
        return replacement

    def _compaction_payload(self, draft: CompactionDraft, snapshot: Snapshot, base: dict[str, Any]) -> dict[str, Any]:
        tokens = draft.tokens_before
        if tokens is None:
            tokens = estimate_projected_context_tokens(snapshot.entries, snapshot.branch).tokens
        optional: dict[str, Any] = {"details": draft.details, "usage": draft.usage}
        system = snapshot.system_message
        if system is not None:
            # From here on the checkpoint is the prompt and tool state: older system messages never replay.
            optional["systemMessage"] = {**system, "timestamp": timestamp_ms(base["timestamp"])}
        return {
            "type": "compaction",
            **base,
            "summary": draft.summary,
            "firstKeptEntryId": draft.first_kept_entry_id if draft.first_kept_entry_id is not None else base["id"],
            "tokensBefore": tokens,
            **({"fromHook": True} if draft.from_hook else {}),
            **{key: value for key, value in optional.items() if value is not None},
        }
