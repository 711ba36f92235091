"""What holds for all tests: no stopwatch, and signals that do what they do at a terminal."""

from __future__ import annotations

import signal

import hypothesis
import pytest

# An example that takes long on a busy machine shows nothing; what must be fast is measured in tests/benchmarks.
hypothesis.settings.register_profile("no deadline", parent=hypothesis.settings.default, deadline=None)
hypothesis.settings.load_profile("no deadline")


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """A job in the background of a shell ignores SIGINT, and so would all that it starts, Ctrl-C's tests included."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
