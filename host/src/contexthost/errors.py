"""The error classes: one root, one subclass per thing a caller may want to catch.

Every message is written for the person who reads it: what happened, to which file, line, entry or key, and what to
do next. The command line prints the message on one line and exits with status 1.
"""

from __future__ import annotations

__all__ = [
    "AmbiguousSession",
    "CompactionCancelled",
    "CompactionFailed",
    "ContexthostError",
    "EntryNotFound",
    "InvalidDraft",
    "NothingToCompact",
    "ParentCycle",
    "PluginError",
    "SessionBusy",
    "SessionChanged",
    "SessionFormatError",
    "SessionLocked",
    "SessionNotFound",
    "SessionWriteError",
    "SettingsError",
    "Unsupported",
]


class ContexthostError(Exception):
    """The root of every error that contexthost raises on purpose."""


class SessionBusy(ContexthostError):
    """Something else goes on in the session; nothing was begun."""


class SessionNotFound(ContexthostError):
    """No session file at that path, or no session with that id."""


class AmbiguousSession(ContexthostError):
    """An id prefix that fits more than one session."""


class SessionFormatError(ContexthostError):
    """The file is not a Pi session (or is one that cannot be read); the file is left untouched."""


class ParentCycle(SessionFormatError):
    """The chain of parents comes back to an entry already passed.

    ``entry_id`` is the entry at which the cycle was met.
    """

    def __init__(self, message: str, *, entry_id: str) -> None:
        super().__init__(message)
        self.entry_id = entry_id


class SessionLocked(ContexthostError):
    """Another writer holds the session; the message says who it is and what to do."""


class SessionWriteError(ContexthostError):
    """An append did not reach the disk as a whole; memory is as it was before."""


class SessionChanged(ContexthostError):
    """The session file was replaced or shortened by somebody else since it was read."""


class EntryNotFound(ContexthostError):
    """No entry with that id in the session."""


class InvalidDraft(ContexthostError):
    """Drafts that must not be appended: the whole batch is refused and nothing is written."""


class NothingToCompact(ContexthostError):
    """Everything already fits, or the last entry is a compaction."""


class CompactionFailed(ContexthostError):
    """A compaction gave no usable result; the session is unchanged."""


NOBODY_COMPACTS = (
    "no plugin made a compaction and no model is configured for a summary: name one (--base-url and --model on the "
    "command line, Host.open(model=…) in a program), or ask a plugin that makes them when asked (--with relay)"
)
"""What to say when there is nobody to make a compaction."""


class CompactionCancelled(CompactionFailed):
    """A plugin or an abort stopped a compaction; the session is unchanged."""


class PluginError(ContexthostError):
    """A plugin could not be loaded or broke a rule of the host; the message names it."""


class SettingsError(ContexthostError):
    """A settings file cannot be used or written; the message names file and key."""


class Unsupported(ContexthostError):
    """The driver at hand cannot do what was asked."""
