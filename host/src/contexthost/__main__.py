"""The ``contexthost`` command, also as ``python -m contexthost``."""

import os

from contexthost import _interrupt

__all__ = ["main"]


def main() -> None:
    """Runs the command line and exits."""
    _interrupt.ends_quietly()
    from contexthost.cli import main as run  # only now: these imports are most of the time that a start takes

    try:
        run()
    except KeyboardInterrupt:  # between two steps of the command line's own
        os._exit(130)
    finally:
        _interrupt.ends_quietly()


if __name__ == "__main__":
    main()
