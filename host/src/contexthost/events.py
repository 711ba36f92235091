"""What happens in a session, and what a plugin may answer: one frozen class per hook, one per kind of answer.

Names and fields mirror Pi's events (snake_case here). `EVENTS` says which hook gets which class. An event class knows
which answers its hook takes (``results``; empty where answers are ignored) and, where implementations build on each
other, what the event looks like to the next one (``apply``).

Everything in an event is read-only, messages and entries included: they are the session's own objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from contexthost.estimates import Estimate

if TYPE_CHECKING:
    from contexthost.compaction import Preparation
    from contexthost.context import AbortSignal, ModelInfo
    from contexthost.messages import Message
    from contexthost.projection import Snapshot
    from contexthost.projection.drafts import CompactionDraft, Draft
    from contexthost.session import Entry

__all__ = [
    "EVENTS",
    "AgentBeforeSettleEvent",
    "AgentSettledEvent",
    "AgentStartEvent",
    "BeforeProviderHeadersEvent",
    "BeforeProviderRequestEvent",
    "Boundary",
    "BoundaryThresholdEvent",
    "Cancel",
    "CompactionReason",
    "CompactionResult",
    "ContextEstimatesEvent",
    "ContextEvent",
    "Continue",
    "Estimate",
    "Event",
    "Handled",
    "Hold",
    "Image",
    "InputEvent",
    "ModelSelectEvent",
    "Outcome",
    "ProviderHeadersWantedEvent",
    "SessionBeforeCompactEvent",
    "SessionBeforeForkEvent",
    "SessionBeforeSwitchEvent",
    "SessionCompactEvent",
    "SessionCompactFailedEvent",
    "SessionShutdownEvent",
    "SessionStartEvent",
    "SessionTreeEvent",
    "Transform",
    "TurnEndEvent",
]

Image = Mapping[str, Any]
"""An image block as Pi stores it: ``{"type": "image", "data": BASE64, "mimeType": …}``."""

CompactionReason = Literal["manual", "threshold", "overflow"]
"""What set a compaction off: a person or plugin, the context threshold, or a request that did not fit the window."""

Outcome = Literal["completed", "aborted", "error"]
"""How a turn or a run ended."""


# Answers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Continue:
    """``input``: nothing to say about this input; the same as returning None."""


@dataclass(frozen=True, slots=True)
class Transform:
    """``input``: go on with this text; ``images`` None keeps the input's images."""

    text: str
    images: tuple[Image, ...] | None = None


@dataclass(frozen=True, slots=True)
class Handled:
    """``input``: dealt with; the input is not sent, and later plugins do not see it."""


@dataclass(frozen=True, slots=True)
class Hold:
    """``input``: the driver keeps this input and what arrives meanwhile until ``ctx.release_held()``, then sends it
    exactly once."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """``session_before_switch``, ``session_before_fork``, ``session_before_compact``: do not do it.

    ``reason`` is told to the user; empty says nothing.
    """

    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionResult:
    """``session_before_compact``: the compaction to append.

    ``summary`` must not be empty; ``first_kept_entry_id`` names an entry of the branch that is not inside a call and
    its results; ``tokens_before`` is 0 or more. ``details`` is the plugin's own JSON; ``usage`` is what making the
    summary cost, in Pi's shape.
    """

    summary: str
    first_kept_entry_id: str
    tokens_before: int
    details: Mapping[str, Any] | None = None
    usage: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Boundary:
    """``turn_end``, ``agent_before_settle``: drafts to append, all of them or none.

    ``continue_run`` asks for one more request to the model; it needs a context that ends with something to answer.
    """

    drafts: tuple[Draft, ...] = ()
    continue_run: bool = False


# Events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Event:
    """The base of the events."""

    results: ClassVar[tuple[type, ...]] = ()
    """The classes that an implementation may return besides None; empty: the answer is ignored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStartEvent(Event):
    """A session is open and hydrated."""

    reason: Literal["startup", "reload", "new", "resume", "fork"]
    previous_session_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionShutdownEvent(Event):
    """The session is about to end; ``target_session_file`` is the one that replaces it."""

    reason: Literal["quit", "reload", "new", "resume", "fork"]
    target_session_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBeforeSwitchEvent(Event):
    """Another session is about to take this one's place."""

    results: ClassVar[tuple[type, ...]] = (Cancel,)
    reason: Literal["new", "resume"]
    target_session_file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBeforeForkEvent(Event):
    """A fork is about to be made, before or at an entry."""

    results: ClassVar[tuple[type, ...]] = (Cancel,)
    entry_id: str
    position: Literal["before", "at"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTreeEvent(Event):
    """The leaf has moved to another place in the tree; None is the empty branch. ``summary_entry`` is the summary of
    the branch that was left, if one was made."""

    new_leaf_id: str | None
    old_leaf_id: str | None
    summary_entry: Entry | None = None
    from_extension: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionBeforeCompactEvent(Event):
    """A compaction is about to be made.

    ``addressed_to`` names the plugin that alone may answer, None leaves it to all in order. ``will_retry``: the
    request that did not fit is sent again afterwards. ``signal`` tells when the compaction is aborted. ``draft``: a
    plugin has made this compaction already, at the end of a turn; only Cancel counts then.
    """

    results: ClassVar[tuple[type, ...]] = (Cancel, CompactionResult)
    preparation: Preparation
    branch_entries: Sequence[Entry]
    reason: CompactionReason
    signal: AbortSignal
    custom_instructions: str | None = None
    will_retry: bool = False
    addressed_to: str | None = None
    draft: CompactionDraft | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCompactEvent(Event):
    """A compaction was appended: ``compaction_entry`` is it. ``plugin`` made it, or the built-in summary (None)."""

    compaction_entry: Entry
    reason: CompactionReason
    from_extension: bool
    will_retry: bool = False
    plugin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCompactFailedEvent(Event):
    """A compaction was started and nothing was appended.

    ``aborted``: cancelled by a plugin or aborted by the user, ``error_message`` is then None. ``plugin`` is the one
    whose compaction it was, as far as that is known.
    """

    reason: CompactionReason
    aborted: bool
    from_extension: bool = False
    error_message: str | None = None
    will_retry: bool = False
    plugin: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSelectEvent(Event):
    """Another model was chosen."""

    model: ModelInfo
    previous_model: ModelInfo | None
    source: Literal["set", "cycle", "restore"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputEvent(Event):
    """The user, a program or a plugin has entered something; raw, before templates are expanded. ``streaming_behavior``
    is there only while a run is going on."""

    results: ClassVar[tuple[type, ...]] = (Continue, Transform, Handled, Hold)
    text: str
    images: tuple[Image, ...] = ()
    source: Literal["interactive", "rpc", "extension"] = "interactive"
    streaming_behavior: Literal["steer", "followUp"] | None = None

    def apply(self, result: Continue | Transform | Handled | Hold) -> InputEvent:
        """The input as the next plugin sees it."""
        if not isinstance(result, Transform):
            return self
        return replace(self, text=result.text, images=self.images if result.images is None else tuple(result.images))


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStartEvent(Event):
    """A run begins, or begins again after a compaction, a retry or a continuation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEstimatesEvent(Event):
    """Somebody looks at this context and asks what each way to make room would leave of it."""

    results: ClassVar[tuple[type, ...]] = (Estimate,)
    snapshot: Snapshot
    preview: Callable[[Sequence[Draft]], Snapshot]  # what appending drafts would give; raises InvalidDraft


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundaryThresholdEvent(Event):
    """The host wants to know from how many tokens of context on a plugin has something to do at a boundary."""

    results: ClassVar[tuple[type, ...]] = (int,)
    boundary: Literal["turn_end", "agent_before_settle"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderHeadersWantedEvent(Event):
    """The host wants to know whether a plugin has something to do with the headers of the model in use."""

    results: ClassVar[tuple[type, ...]] = (bool,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEvent(Event):
    """A request is about to be built from this snapshot; it cannot be changed here."""

    snapshot: Snapshot

    @property
    def messages(self) -> Sequence[Message]:
        """What the model sees, in Pi's roles, system messages included."""
        return self.snapshot.messages


@dataclass(frozen=True, slots=True, kw_only=True)
class _BoundaryEvent(Event):
    results: ClassVar[tuple[type, ...]] = (Boundary,)
    outcome: Outcome
    context: Snapshot
    entries: tuple[Draft, ...] = ()
    continue_run: bool = False

    def apply(self, result: Boundary) -> Self:
        """The boundary as the next plugin sees it; whoever dispatches renews ``context``."""
        drafts = (*self.entries, *result.drafts)
        return replace(self, entries=drafts, continue_run=self.continue_run or result.continue_run)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEndEvent(_BoundaryEvent):
    """One assistant message and its tool results are in the session.

    ``turn_index`` counts from 0 within the run. ``entries`` and ``continue_run`` are what plugins before this one
    proposed; ``context`` is the snapshot that this would give.
    """

    turn_index: int
    message: Message
    tool_results: Sequence[Message]
    message_entry_id: str
    tool_result_entry_ids: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentBeforeSettleEvent(_BoundaryEvent):
    """A run that was not aborted is about to settle; fields as in ``turn_end``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettledEvent(Event):
    """The run is over: nothing is retried, compacted or continued any more."""

    aborted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeProviderHeadersEvent(Event):
    """The headers of a request to the model. They hold credentials, hence no ``repr``."""

    results: ClassVar[tuple[type, ...]] = (Mapping,)
    headers: Mapping[str, str | None]

    def __repr__(self) -> str:
        return f"BeforeProviderHeadersEvent({len(self.headers)} headers)"

    def apply(self, result: Mapping[str, str | None]) -> BeforeProviderHeadersEvent:
        """The headers with those of ``result`` set (case does not matter); None takes one away."""
        wanted = {name.lower() for name in result}
        kept = {name: value for name, value in self.headers.items() if name.lower() not in wanted}
        return replace(self, headers={**kept, **result})


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeProviderRequestEvent(Event):
    """The decoded JSON body of a request to the model."""

    results: ClassVar[tuple[type, ...]] = (Mapping,)
    payload: Mapping[str, Any]

    def apply(self, result: Mapping[str, Any]) -> BeforeProviderRequestEvent:
        """The request with ``result`` as its whole body."""
        return replace(self, payload=result)


EVENTS: Mapping[str, type[Event]] = {
    "session_start": SessionStartEvent,
    "session_shutdown": SessionShutdownEvent,
    "session_before_switch": SessionBeforeSwitchEvent,
    "session_before_fork": SessionBeforeForkEvent,
    "session_tree": SessionTreeEvent,
    "session_before_compact": SessionBeforeCompactEvent,
    "session_compact": SessionCompactEvent,
    "session_compact_failed": SessionCompactFailedEvent,
    "context_estimates": ContextEstimatesEvent,
    "model_select": ModelSelectEvent,
    "input": InputEvent,
    "agent_start": AgentStartEvent,
    "context": ContextEvent,
    "before_provider_headers": BeforeProviderHeadersEvent,
    "before_provider_request": BeforeProviderRequestEvent,
    "boundary_threshold": BoundaryThresholdEvent,
    "provider_headers_wanted": ProviderHeadersWantedEvent,
    "turn_end": TurnEndEvent,
    "agent_before_settle": AgentBeforeSettleEvent,
    "agent_settled": AgentSettledEvent,
}
"""Hook → the class of its event."""
