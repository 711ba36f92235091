# ruff: noqa: E501  (texts are quoted as they stand in the session)
"""The system message of the demo session: an invented prompt and the tools' declarations."""

from __future__ import annotations

from demo.tree import ROOT
from demo.writer import Json

PREAMBLE = (
    "You work on a software project together with its developers, through a terminal. You can look at files, change "
    "them and run commands. Say briefly what you are about to do, do it, and report what you saw, not what you expected."
)
TOOLS = {
    "read": "open a text file or an image",
    "bash": "run a shell command in the project",
    "edit": "replace exact pieces of a file",
    "write": "create a file or replace all of it",
    "grep": "search file contents with a regular expression",
    "ls": "list a directory",
}
RULES = (
    "Look before you change.",
    "Keep edits small; one purpose each.",
    "After a change run the narrowest test that could fail, then the suite.",
    "Never invent output. If a command failed, say so.",
    "Paths are relative to the project unless the user gives absolute ones.",
)
PROJECT = """## AGENTS.md

- Rules live in `services/`; `api/` only parses and answers; `repositories/` only speak SQL. `tests/test_layers.py` checks it.
- Money is integer cents. Dates of a stay are harbour-local; only `tariffs.local_date` converts.
- Every error a client may see has a stable `code`. Adding one means a row in `api/errors.py` and in `docs/API.md`.
- Migrations: follow the skill `db-migration`, always.
- Test names are sentences. No mocks of our own code.
- Run tests as `make test ARGS="..."` or `uv run pytest ...`; the database is started for you."""
SKILLS = """The following skills describe how some tasks are done in this project. Read the file when the task matches.

- db-migration (.agents/skills/db-migration/SKILL.md): How to write, name and check a database migration in Quayside. Use
  before touching models.py or migrations/."""


def _parameters(required: dict[str, str], optional: dict[str, str]) -> Json:
    properties = {name: {"type": "string", "description": text} for name, text in required.items()}
    properties |= {name: {"type": "number", "description": text} for name, text in optional.items()}
    return {"type": "object", "properties": properties, "required": list(required)}


def system_message() -> Json:
    """Role, content, sections and tools; the writer adds the timestamp."""
    listed = "\n".join(f"- {name}: {text}" for name, text in TOOLS.items())
    rules = "\n".join(f"- {rule}" for rule in RULES)
    sections = {"tools": listed, "rules": rules, "project_context": PROJECT, "skills": SKILLS, "cwd": ROOT}
    edits = {
        "type": "array",
        "items": _parameters({"oldText": "Text that occurs exactly once", "newText": "Its replacement"}, {}),
        "description": "Replacements, each matched against the file as it was",
    }
    edit = _parameters({"path": "File to change"}, {})
    edit["properties"]["edits"] = edits
    edit["required"].append("edits")
    parameters = {
        "read": _parameters({"path": "File to open"}, {"offset": "First line, from 1", "limit": "How many lines"}),
        "bash": _parameters({"command": "Command for the shell"}, {"timeout": "Seconds before it is stopped"}),
        "edit": edit,
        "write": _parameters({"path": "File to write", "content": "Its whole text"}, {}),
        "grep": _parameters({"pattern": "Regular expression", "path": "Where to look"}, {"context": "Lines around"}),
        "ls": _parameters({"path": "Directory to list"}, {}),
    }
    return {
        "content": "",
        "sections": {"preamble": PREAMBLE, **{n: f"<{n}>\n{text}\n</{n}>" for n, text in sections.items()}},
        "toolsAdded": [{"name": n, "description": text, "parameters": parameters[n]} for n, text in TOOLS.items()],
    }
