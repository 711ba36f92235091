"""Appending what mends a session: nothing in the file changes, and nothing is appended that was not agreed to."""

from __future__ import annotations

from contexthost.diagnosis.findings import Diagnosis, examine
from contexthost.errors import SessionChanged
from contexthost.projection import ProjectionAuthority

__all__ = ["repair"]


def repair(authority: ProjectionAuthority, diagnosis: Diagnosis) -> Diagnosis:
    """Appends the drafts of a diagnosis by one write, and looks again; what is still wrong.

    The drafts pass the authority's validation like anybody's: as a whole they leave no call without its result and no
    result without its call. A version 1 or 2 file is migrated on the way, its original kept beside it.

    Raises:
        SessionChanged: another program appended since the diagnosis, which may be wrong now; nothing was appended.
        InvalidDraft, SessionLocked, SessionWriteError: nothing was appended.
    """
    if not diagnosis.drafts:
        return diagnosis
    session = authority.session
    with session.writing():
        if session.refresh():
            raise SessionChanged(
                f"{session.path}: another program wrote to the session meanwhile (is Pi still running?); nothing was "
                "repaired: close it and try again"
            )
        authority.commit(diagnosis.drafts)
    return examine(authority)
