"""A provider's key: from the environment, else from the command that the user set in ``host.json``."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from pathlib import Path

from contexthost.config import HostSettings
from contexthost.errors import SettingsError

__all__ = ["credential_variable", "resolve_credential"]

COMMAND_SECONDS = 10.0
"""How long a credential command may take."""


def credential_variable(provider: str) -> str:
    """The environment variable of a provider's key: ``openai`` → ``OPENAI_API_KEY``."""
    return re.sub(r"[^A-Z0-9]+", "_", provider.upper()) + "_API_KEY"


def resolve_credential(provider: str, settings: HostSettings) -> str | None:
    """The provider's key, or None when none is set up. Blocks for up to 10 s: call it from a thread.

    The environment comes first; a blank variable counts as unset. Else the command of ``credentials`` runs without a
    shell, in the root directory (so that a project's files cannot take part), without input; its output, stripped,
    is the key. Nothing of the output is logged or told. Raises SettingsError when the command fails, takes longer
    than 10 s, or prints nothing or more than one line.
    """
    if key := os.environ.get(credential_variable(provider), "").strip():
        return key
    entry = settings.credentials.get(provider)
    if entry is None:
        return None
    key = _output(entry.command, f"the command of credentials.{provider} in host.json").strip()
    if len(key.splitlines()) != 1:
        kind = "nothing" if not key else "more than one line"
        raise SettingsError(
            f"the command of credentials.{provider} in host.json printed {kind}; it should print the key"
        )
    return key


def _output(command: tuple[str, ...], what: str) -> str:
    try:
        process = subprocess.Popen(
            command,
            cwd=Path("/"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise SettingsError(f"{what} cannot be started ({reason})") from None
    with process:
        try:
            output, _ = process.communicate(timeout=COMMAND_SECONDS)
        except BaseException as error:
            # The whole group: a child of the command that holds the pipe would outlive it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise SettingsError(f"{what} took longer than {COMMAND_SECONDS:g} s and was ended") from None
            raise
    if process.returncode != 0:
        raise SettingsError(f"{what} ended with status {process.returncode}")
    try:
        return output.decode()
    except UnicodeDecodeError:
        raise SettingsError(f"{what} printed something that is not UTF-8") from None
