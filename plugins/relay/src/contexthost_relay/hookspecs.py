"""The hook that this plugin offers to others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from contexthost.hookspecs import hookspec

if TYPE_CHECKING:
    from contexthost.context import Context
    from contexthost.session import Entry
    from contexthost_relay.note import NoteSection

__all__ = ["RelayNoteEvent", "RelayNoteHooks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayNoteEvent:
    """A relay is about to write its note.

    Attributes:
        branch_entries: the current branch, from the root to the leaf.
        first_kept_entry_id: from this entry on the conversation is kept as it is.
        room: characters that the sections of all plugins may take together (``limits.extra``).
    """

    branch_entries: Sequence[Entry]
    first_kept_entry_id: str
    room: int


class RelayNoteHooks:
    """Other plugins implement these with ``@hookimpl(optionalhook=True)``."""

    @hookspec
    def relay_note_sections(self, event: RelayNoteEvent, ctx: Context) -> Sequence[NoteSection] | NoteSection | None:
        """Chain. Sections for the note, placed before its footer; in the order of the plugins as far as they fit."""
