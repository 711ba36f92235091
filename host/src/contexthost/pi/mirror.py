"""Pi's session as this process has it: hydrated once, then moved along by what Pi sends."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from contexthost.errors import SessionFormatError, SessionLocked, SessionNotFound, SessionWriteError
from contexthost.pi.protocol import Message, Sync
from contexthost.session.mirrored import MirroredSession

__all__ = ["OWNER", "Gap", "Mirror", "NotWhole"]

OWNER: Final = "a live Pi session: use its slash commands (such as /relay) there"
"""Who holds the session, as commands that are refused tell it."""

_log = logging.getLogger(__name__)


class NotWhole(Exception):
    """The file does not hold what Pi has in memory; Pi must send the entries."""


class Gap(Exception):
    """Entries are missing between what is here and what has come: the session must be sent anew."""


class Mirror:
    """The session and how many of Pi's entries it holds. Writes nothing.

    ``count`` is in Pi's counting, which includes entries that cannot be used here.
    """

    def __init__(self, session: MirroredSession, count: int) -> None:
        self.session = session
        self.count = count
        self.lost = False  # entries are missing
        self._put_off: list[Message] = []

    @classmethod
    def hydrate(cls, event: Mapping[str, Any], sync: Sync | None) -> Mirror:
        """From ``session/start``: from the entries that came with it, or else from the file.

        Raises:
            NotWhole: no entries came, and the file is not there, not readable, or not what Pi has.
        """
        name = event.get("file")
        path = Path(name) if isinstance(name, str) and name else None
        header = event.get("header")
        header = header if isinstance(header, dict) else {}
        if "id" not in header:
            header = {**header, "id": str(event.get("sessionId") or "unknown")}
        if sync is not None:
            session = MirroredSession.mirror(path, owner=OWNER, header=header, lines=map(bytes, sync.entries))
            mirror = cls(session, len(sync.entries))
            mirror.session.adopt((), sync.leaf)
            return mirror
        if path is None:
            raise NotWhole
        try:
            session = MirroredSession.mirror(path, owner=OWNER, header=header)
        except (SessionNotFound, SessionFormatError) as error:
            _log.info("the session is taken from Pi's memory: %s", error)
            raise NotWhole from None
        last = session.entries[-1].id if session.entries else None
        if session.id != header["id"] or len(session.entries) != event.get("count") or last != event.get("lastId"):
            _log.info("the session is taken from Pi's memory: %s does not hold what Pi has", path)
            raise NotWhole
        leaf = event.get("leaf")
        session.adopt((), leaf if isinstance(leaf, str) else None)
        return cls(session, len(session.entries))

    def apply(self, sync: Sync) -> bool:
        """Takes new entries and the leaf; whether anything changed.

        Raises:
            Gap: the entries do not go on from where this mirror is.
        """
        known = self.count - sync.start  # how many of these entries are here already
        if known < 0 or known > len(sync.entries):
            self.lost = True
            raise Gap(f"{self.count} entries are here, and Pi sends on from {sync.start}")
        before = self.session.revision
        self.session.adopt((bytes(raw) for raw in sync.entries[known:]), sync.leaf)
        self.count = sync.start + len(sync.entries)
        self.lost = False
        return self.session.revision != before

    def put_off(self, message: Message) -> None:
        """Keeps a message until the entries that are missing have come; what it says of the session is too little."""
        self._put_off.append(replace(message, sync=None, state=None))

    def due(self) -> list[Message]:
        """What was put off, in order, once no entry is missing any more."""
        if self.lost or not self._put_off:
            return []
        due, self._put_off = self._put_off, []
        return due

    def hold(self) -> str | None:
        """Takes the writer's lock for as long as the session is open; why not, where that is impossible."""
        try:
            self.session.hold()
        except (SessionLocked, SessionWriteError) as error:
            return str(error)
        return None
