"""The key: where it is found, and an object around it that never shows it."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, NoReturn

from contexthost.config import HostSettings
from contexthost.credentials import credential_variable
from contexthost_jev.errors import JevFailure

__all__ = ["KEY_HELP", "PROVIDERS", "Key", "KeySource", "Provider", "find_key", "key_from_environment", "key_source"]

Provider = Literal["typesafe", "openrouter"]
PROVIDERS: Final[tuple[Provider, ...]] = ("typesafe", "openrouter")
"""In the order in which their keys are looked for."""

KEY_HELP: Final = (
    "get a key at https://console.typesafe.ai/settings/keys and set TYPESAFE_API_KEY (or OPENROUTER_API_KEY)"
)

_OPENROUTER_PREFIX: Final = "sk-or-"


class Key:
    """A provider's key. Only `reveal` gives it out; ``repr``, ``str`` and pickling do not."""

    __slots__ = ("_reveal", "provider")

    def __init__(self, provider: Provider, secret: str) -> None:
        """Raises JevFailure (``configuration``) for a key that no HTTP header can carry: a library's error would
        quote it."""
        if not secret or not all("!" <= character <= "~" for character in secret):
            raise JevFailure("configuration", f"the key of {provider} holds characters that no key has")
        # A key of OpenRouter must not be sent to TypeSafe, whatever variable it was put into.
        self.provider: Provider = "openrouter" if secret.startswith(_OPENROUTER_PREFIX) else provider
        self._reveal: Callable[[], str] = lambda: secret

    def reveal(self) -> str:
        """The key itself, for the one header that needs it."""
        return self._reveal()

    def within(self, text: str) -> bool:
        """Whether a text holds the key."""
        return self._reveal() in text

    def __repr__(self) -> str:
        return f"Key({self.provider})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a key is not to be stored")


@dataclass(frozen=True, slots=True)
class KeySource:
    """Where a key would come from; nothing was run to find out."""

    provider: Provider
    origin: str


def key_from_environment() -> Key | None:
    """The key of TYPESAFE_API_KEY, else of OPENROUTER_API_KEY. Raises JevFailure when it cannot be a key."""
    for provider in PROVIDERS:
        if secret := os.environ.get(credential_variable(provider), "").strip():
            return Key(provider, secret)
    return None


async def find_key(credentials: Callable[[str], Awaitable[str | None]]) -> Key | None:
    """The key that ``ctx.credentials`` finds: environment or a command of ``host.json``.

    Raises JevFailure for what cannot be a key, SettingsError when a credential command fails.
    """
    if (key := key_from_environment()) is not None:  # before any command is run
        return key
    for provider in PROVIDERS:
        if secret := await credentials(provider):
            return Key(provider, secret)
    return None


def key_source(settings: HostSettings) -> KeySource | None:
    """Where the key would come from, without running a command: that may ask for a passphrase."""
    for provider in PROVIDERS:
        if os.environ.get(variable := credential_variable(provider), "").strip():
            return KeySource(provider, variable)
    for provider in PROVIDERS:
        if provider in settings.credentials:
            return KeySource(provider, f"credentials.{provider} in host.json")
    return None
