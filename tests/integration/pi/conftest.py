"""What several files of these tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.stage import SharedPi


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedPi]:
    """A Pi that one test after another works in: starting it takes seconds."""
    made = SharedPi(tmp_path_factory)
    try:
        yield made
    finally:
        made.close()
