"""The SESSION argument of every command, with its completion in the shell."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem

__all__ = ["SESSION", "SessionArgument"]


class SessionArgument(click.ParamType[str]):
    """A path, a session id or its unique beginning, or ``latest``; kept as text, for `find_session` to resolve."""

    name = "session"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """``latest``, the ids of Pi's sessions that begin so, and file names."""
        from contexthost.session.find import list_sessions

        found: list[CompletionItem] = []
        if "latest".startswith(incomplete):
            found.append(CompletionItem("latest", help="the session that changed last"))
        if "/" not in incomplete:
            ids = (info for info in list_sessions() if info.id.startswith(incomplete))
            found += [CompletionItem(info.id, help=info.cwd) for info, _ in zip(ids, range(20), strict=False)]
        return [*found, CompletionItem(incomplete, type="file")]


SESSION = SessionArgument()
"""For ``@click.argument("session", type=SESSION)``."""
