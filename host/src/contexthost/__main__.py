"""``python -m contexthost``."""

from contexthost.cli import main

main()
