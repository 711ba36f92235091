"""Ctrl-C while the command starts or ends: nothing has begun, or all is done, so the process just ends: status 130.

A KeyboardInterrupt there would come out of the middle of an import, as a traceback, or out of a callback that Python
only reports and goes on. This module comes before everything else, so it must import nothing that takes time: `_signal`
is what `signal` wraps, and `signal` is slower than all of the rest up to here.
"""

import _signal  # type: ignore[import-not-found]
import os

__all__ = ["ends_quietly", "raises"]


def ends_quietly() -> None:
    """From here on Ctrl-C ends the process, at once; but one that was started to ignore it goes on ignoring it."""
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _end)


def raises() -> None:
    """From here on Ctrl-C is a KeyboardInterrupt again: what is being done can clean up."""
    if _signal.getsignal(_signal.SIGINT) is _end:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _end(number: int, frame: object) -> None:
    os._exit(130)
