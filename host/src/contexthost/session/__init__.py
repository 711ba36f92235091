"""Pi's session format: entries, the JSONL file, the tree, migration, the writer's lock."""

from contexthost.session.entries import Entry
from contexthost.session.load import Header, Problem
from contexthost.session.session import Session

__all__ = ["Entry", "Header", "Problem", "Session"]
