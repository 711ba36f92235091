"""What can keep a native compaction from being made."""

from __future__ import annotations

from contexthost.errors import CompactionFailed

__all__ = ["Aborted", "NativeFailure", "Refused", "UnsupportedGateway"]


class NativeFailure(CompactionFailed):
    """The compaction was not made; the message says which request failed, how, and what to do. Holds no secrets."""


class Refused(NativeFailure):
    """Nothing was sent: the address or the credentials are not usable."""


class UnsupportedGateway(NativeFailure):
    """The endpoint answers, but not with a compaction; asking it again would give the same."""


class Aborted(NativeFailure):
    """Somebody stopped it."""
