"""Inputs on their way to the model: queued while a run goes on, or held for a plugin; none lost, none sent twice."""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol

from contexthost.errors import ContexthostError
from contexthost.messages import Message
from contexthost.session import Entry, Session

__all__ = [
    "HELD_TYPE",
    "SENT_TYPE",
    "Editor",
    "Inbox",
    "Input",
    "give_back",
    "hold",
    "join",
    "sent_payload",
    "unsent_inputs",
]

HELD_TYPE: Final = "contexthost:held"
"""The custom entry that records an input when it is held: ``{id, text, images, sha256}``."""

SENT_TYPE: Final = "contexthost:sent"
"""The custom entry that records that held inputs were sent, or given back: ``{ids, how}``."""


class Editor(Protocol):
    """Where a user types."""

    async def get_editor_text(self) -> str:
        """What is there."""
        ...

    def set_editor_text(self, text: str) -> None:
        """Replaces it."""
        ...


@dataclass(eq=False, slots=True)
class Input:
    """One input of the user, a program or a plugin.

    Attributes:
        text, images: as they will be sent.
        kind: ``steer`` is sent between two turns of a run, ``followUp`` when it would end.
        answer: resolved with the last assistant message of the run's part that answered it; None when it was not sent.
        held_ids: of its records in the session, once it was held.
        sent: whether it is in the session as a message.
        run: the run that it began.
    """

    text: str
    images: tuple[Mapping[str, Any], ...] = ()
    kind: Literal["steer", "followUp"] = "followUp"
    answer: asyncio.Future[Message | None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    held_ids: tuple[str, ...] = ()
    sent: bool = False
    run: asyncio.Task[None] | None = None

    def settle(self, message: Message | None) -> None:
        """Resolves the answer, once."""
        if not self.answer.done():
            self.answer.set_result(message)


class Inbox:
    """The queues of one live session."""

    def __init__(self) -> None:
        self._steering: deque[Input] = deque()
        self._following: deque[Input] = deque()
        self.held: list[Input] = []

    def __len__(self) -> int:
        return len(self._steering) + len(self._following)

    @property
    def waiting(self) -> bool:
        """Whether anything is queued."""
        return bool(self._steering or self._following)

    def queue(self, item: Input) -> None:
        """Puts an input at the end of the queue of its kind."""
        (self._steering if item.kind == "steer" else self._following).append(item)

    def put_back(self, item: Input) -> None:
        """Puts an input that could not be sent back at the head of the queue of its kind."""
        (self._steering if item.kind == "steer" else self._following).appendleft(item)

    def next_steering(self) -> Input | None:
        """The next input to send between two turns."""
        return self._steering.popleft() if self._steering else None

    def next_following(self) -> Input | None:
        """The next input to send when the run would end: what was meant to steer it comes first."""
        return self.next_steering() or (self._following.popleft() if self._following else None)

    def drain(self) -> list[Input]:
        """Takes everything that is queued, in the order in which it would have been sent."""
        taken = [*self._steering, *self._following]
        self._steering.clear()
        self._following.clear()
        return taken

    def take_held(self) -> list[Input]:
        """Takes everything that is held, in order."""
        held, self.held = self.held, []
        return held


def join(items: Sequence[Input]) -> Input:
    """One input of several: texts with a blank line between, images in order; whoever waits gets the one answer."""
    if len(items) == 1:
        return items[0]
    text = "\n\n".join(item.text for item in items if item.text)
    joined = Input(text, tuple(image for item in items for image in item.images))
    joined.held_ids = tuple(record for item in items for record in item.held_ids)

    def pass_on(done: asyncio.Future[Message | None]) -> None:
        for item in items:
            item.settle(None if done.cancelled() else done.result())

    joined.answer.add_done_callback(pass_on)
    return joined


def hold(session: Session, item: Input) -> None:
    """Records an input that is held, with all that is needed to send it after a crash.

    Raises:
        SessionWriteError, SessionLocked: it could not be recorded.
    """
    if item.held_ids:
        return
    record = uuid.uuid4().hex
    digest = hashlib.sha256(item.text.encode("utf-8", "surrogatepass")).hexdigest()
    data = {"id": record, "text": item.text, "images": [dict(image) for image in item.images], "sha256": digest}
    # A new session gets its file now, even if nobody has spoken in it yet: a crash must not lose what is held.
    session.append([{"type": "custom", "customType": HELD_TYPE, "data": data}], create=True)
    item.held_ids = (record,)


def sent_payload(item: Input, how: str) -> list[dict[str, Any]]:
    """The entry that says that a held input left the hold; to be appended by the same write as what it became."""
    if not item.held_ids:
        return []
    return [{"type": "custom", "customType": SENT_TYPE, "data": {"ids": list(item.held_ids), "how": how}}]


async def give_back(session: Session, items: Sequence[Input], editor: Editor | None) -> None:
    """Gives inputs that were not sent back to the user: into the editor, in front of what is there; without an editor
    they are recorded, to be found at the session's next start. So are inputs with images, which no editor takes.

    Raises:
        SessionWriteError, SessionLocked: some could not be recorded; the message says which. The others were.
    """
    into_editor = {item for item in items if editor is not None and not item.images}
    if editor is not None and into_editor:
        draft = await editor.get_editor_text()
        texts = [item.text for item in items if item in into_editor and item.text]
        editor.set_editor_text("\n\n".join([*texts, draft] if draft else texts))
    lost: list[str] = []
    failed: ContexthostError | None = None
    for item in items:
        try:
            if item in into_editor:
                session.append(sent_payload(item, "editor"))
            else:
                hold(session, item)
        except ContexthostError as error:
            failed = error
            if item not in into_editor:
                lost.append(item.text)
        item.settle(None)
    if failed is not None and lost:
        raise type(failed)(f"{failed}; these inputs were not sent and could not be recorded: {lost}") from failed


def unsent_inputs(session: Session) -> list[Input]:
    """Inputs that an earlier run of this session held and never sent, in order.

    Looks at the entries of every branch: a leaf move must not lose them.
    """
    held: dict[str, Entry] = {}
    for entry in session.entries:
        if entry.type != "custom":
            continue
        data = entry.data.get("data")
        kind = entry.data.get("customType")
        if not isinstance(data, dict):
            continue
        if kind == HELD_TYPE and isinstance(data.get("id"), str):
            held[data["id"]] = entry
        elif kind == SENT_TYPE and isinstance(data.get("ids"), list):
            for sent in data["ids"]:
                if isinstance(sent, str):
                    held.pop(sent, None)
    found = []
    for record_id, entry in held.items():
        data = entry.data["data"]
        text = data.get("text")
        images = data.get("images")
        pictures = tuple(i for i in images if isinstance(i, dict)) if isinstance(images, list) else ()
        item = Input(text if isinstance(text, str) else "", pictures)
        item.held_ids = (record_id,)
        found.append(item)
    return found
