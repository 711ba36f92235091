"""For work that makes very many objects at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["many_objects"]


@contextmanager
def many_objects() -> Iterator[None]:
    """Puts the cyclic garbage collector off while a session's entries or messages are made.

    They form no cycles, but every few hundred of them the collector would look at all that are there already: at
    40,000 entries that is half of the time.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
