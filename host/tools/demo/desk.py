"""The agent's tools over the virtual file tree, and the turns that use them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from demo.tree import EditRefused, Tree, edit_details
from demo.writer import Json, SessionWriter, priced

TINY_PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGNgYPgPAAEDAQAIicLsAAAAAElFTkSuQmCC"


@dataclass(frozen=True)
class Step:
    """A tool call and what came back."""

    name: str
    arguments: Json
    content: list[Json]
    is_error: bool = False
    details: Json | None = None
    seconds: float = 0.05


@dataclass
class Desk:
    """Writes turns into a session. Tool methods act on the tree at once and return the step for `turn`."""

    writer: SessionWriter
    tree: Tree
    rng: random.Random
    marks: dict[str, str] = field(default_factory=dict)

    # Tools

    def read(self, path: str, *, offset: int = 0, limit: int = 0) -> Step:
        if offset:
            return _text("read", {"path": path, "offset": offset, "limit": limit}, self.tree.slice(path, offset, limit))
        return _text("read", {"path": path}, self.tree.files[path])

    def read_image(self, path: str) -> Step:
        content: list[Json] = [
            {"type": "text", "text": "Read image file [image/png]"},
            {"type": "image", "data": TINY_PNG, "mimeType": "image/png"},
        ]
        return Step("read", {"path": path}, content)

    def edit(self, path: str, *edits: tuple[str, str]) -> Step:
        arguments = {"path": path, "edits": [{"oldText": old, "newText": new} for old, new in edits]}
        old, new = self.tree.edit(path, edits)
        text = f"Successfully replaced {len(edits)} block(s) in {path}."
        return _text("edit", arguments, text, details=edit_details(path, old, new))

    def edit_that_misses(self, path: str, old: str, new: str) -> Step:
        """An edit from memory that the file does not bear out."""
        try:
            self.tree.edit(path, [(old, new)])
        except EditRefused:
            text = (
                f"Could not find the exact text in {path}. "
                "The old text must match exactly including all whitespace and newlines."
            )
            return _text("edit", {"path": path, "edits": [{"oldText": old, "newText": new}]}, text, is_error=True)
        raise AssertionError(f"the text does occur in {path}")

    def write(self, path: str, content: str) -> Step:
        self.tree.files[path] = content
        return _text("write", {"path": path, "content": content}, f"Successfully wrote to {path}")

    def bash(self, command: str, output: str, *, seconds: float = 0.4, details: Json | None = None) -> Step:
        return _text("bash", {"command": command}, output or "(no output)", seconds=seconds, details=details)

    def grep(self, pattern: str, under: str, *, context: int = 0) -> Step:
        arguments: Json = {"pattern": pattern, "path": under}
        if context:
            arguments["context"] = context
        return _text("grep", arguments, self.tree.grep(pattern, under, context=context))

    def ls(self, path: str) -> Step:
        return _text("ls", {"path": path}, self.tree.listing(path))

    # Turns

    def user(self, text: str, *, after: tuple[float, float] = (35, 200)) -> str:
        self.writer.wait(*after)
        return self.writer.message("user", content=[{"type": "text", "text": text}])

    def turn(self, text: str, *steps: Step, thinking: str = "") -> str:
        """One assistant message, and the results of its calls. Without calls it ends the run."""
        content: list[Json] = []
        if thinking:
            content.append({"type": "thinking", "thinking": thinking, "thinkingSignature": self.writer.signature()})
        if text:
            content.append({"type": "text", "text": text})
        ids = [self.writer.call_id() for _ in steps]
        content += [
            {"type": "toolCall", "id": call_id, "name": step.name, "arguments": step.arguments}
            for call_id, step in zip(ids, steps, strict=True)
        ]
        entry = self.writer.assistant(content, stop="toolUse" if steps else "stop")
        for call_id, step in zip(ids, steps, strict=True):
            self.writer.now += int(step.seconds * 1000) + self.rng.randint(6, 60)
            extra = {"details": step.details} if step.details is not None else {}
            self.writer.message(
                "toolResult",
                toolCallId=call_id,
                toolName=step.name,
                content=step.content,
                **extra,
                isError=step.is_error,
                age_ms=2,
            )
        self.writer.wait(0.01, 0.08)
        return entry

    def overloaded(self) -> None:
        """A request that the provider refuses; Pi leaves the attempt out of the context and tries again."""
        none = priced({"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0})
        error = '529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'
        failed = self.writer.assistant([], stop="error", usage=none, errorMessage=error)
        self.writer.append("context_edit", targetId=failed, replacement=None)
        self.writer.wait(2.0, 2.4)

    def aborted(self, text: str) -> None:
        """The user presses Escape while the answer streams."""
        content: list[Json] = [{"type": "text", "text": text}]
        self.writer.assistant(content, stop="aborted", errorMessage="Request was aborted.")

    def shell(self, command: str, output: str) -> None:
        """The user's own `!` command."""
        self.writer.wait(20, 60)
        self.writer.message(
            "bashExecution", command=command, output=output, exitCode=0, cancelled=False, truncated=False
        )


def _text(
    name: str, arguments: Json, text: str, *, is_error: bool = False, details: Json | None = None, seconds: float = 0.05
) -> Step:
    return Step(name, arguments, [{"type": "text", "text": text}], is_error, details, seconds)
