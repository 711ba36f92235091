"""Each hook's message from Pi: made into the event that plugins get, dispatched, and answered in Pi's shapes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final, Literal, TypeVar

from contexthost.compaction import Preparation, prepare_compaction
from contexthost.context import AbortSignal, ModelInfo
from contexthost.errors import ContexthostError, InvalidDraft
from contexthost.events import (
    AgentBeforeSettleEvent,
    AgentSettledEvent,
    AgentStartEvent,
    BeforeProviderHeadersEvent,
    BeforeProviderRequestEvent,
    BoundaryThresholdEvent,
    Cancel,
    CompactionReason,
    ContextEvent,
    InputEvent,
    ModelSelectEvent,
    ProviderHeadersWantedEvent,
    SessionBeforeCompactEvent,
    SessionBeforeForkEvent,
    SessionBeforeSwitchEvent,
    SessionCompactEvent,
    SessionCompactFailedEvent,
    SessionTreeEvent,
    TurnEndEvent,
)
from contexthost.pi.driver import PiDriver, current_signal
from contexthost.pi.lanes import Lane
from contexthost.pi.protocol import Peer
from contexthost.pi.wire import (
    compaction_settings_from_pi,
    compaction_to_pi,
    draft_from_pi,
    draft_to_pi,
    failure_to_pi,
    images_from_pi,
    input_to_pi,
    message_of,
    model_from_pi,
    outcome_from_pi,
    text_or_none,
    text_to_pi,
)
from contexthost.plugins import PluginFailure
from contexthost.projection import Draft
from contexthost.projection.entries import context_messages
from contexthost.runtime import Runtime

__all__ = ["Hooks"]

_log = logging.getLogger(__name__)
_B = TypeVar("_B", TurnEndEvent, AgentBeforeSettleEvent)
Payload = Mapping[str, Any]

_LARGEST: Final = 2**53 - 1
"""The largest integer that JavaScript has exactly."""


class Hooks:
    """The hooks of one session; ``handlers`` gives each by its name."""

    def __init__(self, runtime: Runtime, driver: PiDriver, peer: Peer) -> None:
        self._runtime = runtime
        self._driver = driver
        self._peer = peer
        self._compactor: str | None = None
        self._boundaries: Mapping[str, Any] = {}
        self._watching = Lane()
        self.handlers: Mapping[str, Callable[[Payload], Coroutine[Any, Any, Any]]] = {
            "session_before_switch": self._before_switch,
            "session_before_fork": self._before_fork,
            "session_tree": self._tree,
            "session_before_compact": self._before_compact,
            "session_compact": self._compacted,
            "session_compact_failed": self._compact_failed,
            "model_select": self._model_select,
            "input": self._input,
            "agent_start": self._agent_start,
            "context": self._context,
            "before_provider_headers": self._headers,
            "before_provider_request": self._request,
            "turn_end": self._turn_end,
            "agent_before_settle": self._before_settle,
            "agent_settled": self._settled,
        }

    def take_model(self, event: Payload) -> ModelInfo | None:
        """Goes over to the model that a message names; None when it names none."""
        model = model_from_pi(event.get("model"))
        if model is not None:
            self._driver.take_model(model)
            if model.context_window is not None:
                self._runtime.authority.set_window(model.context_window)
        return model

    def take_compaction_settings(self, event: Payload) -> None:
        """Pi's own, which may be others for another model, and which the user may change at any time."""
        self._runtime.compaction = compaction_settings_from_pi(event.get("compaction"))

    def watch_boundaries(self, event: Payload) -> None:
        """Finds out from how many tokens of context on plugins want each boundary, and whether they want headers, and
        tells Pi what it does not know yet. ``event`` says which question of Pi's this answers: when it has asked again
        meanwhile, it drops this."""
        self._watching.enter(self._watch_boundaries(event.get("asked")))

    async def _watch_boundaries(self, asked: Any) -> None:
        found = {
            "asked": asked,
            "turn_end": await self._threshold("turn_end"),
            "agent_before_settle": await self._threshold("agent_before_settle"),
            "before_provider_headers": 0 if await self._wants_headers() else _LARGEST,
        }
        if found != self._boundaries:
            self._boundaries = found
            self._peer.notify("boundary/watch", found)

    async def _threshold(self, boundary: Literal["turn_end", "agent_before_settle"]) -> int:
        """The lowest of all plugins that listen to the boundary; who says nothing wants it in any case."""
        plugins = self._runtime.plugins
        asked = BoundaryThresholdEvent(boundary=boundary)
        said = dict((await plugins.chain("boundary_threshold", asked, self._runtime.context)).answers)
        lowest = min((said.get(each.plugin, 0) for each in plugins.implementations(boundary)), default=0)
        return min(max(lowest, 0), _LARGEST)

    async def _wants_headers(self) -> bool:
        """Whether some plugin listens to the headers of this model's requests; who says nothing does."""
        plugins = self._runtime.plugins
        asked = ProviderHeadersWantedEvent()
        said = dict((await plugins.chain("provider_headers_wanted", asked, self._runtime.context)).answers)
        return any(said.get(each.plugin, True) for each in plugins.implementations("before_provider_headers"))

    # The session -----------------------------------------------------------------------------------------------------

    async def _before_switch(self, event: Payload) -> Any:
        asked = SessionBeforeSwitchEvent(
            reason="new" if event.get("reason") == "new" else "resume",
            target_session_file=text_or_none(event.get("targetSessionFile")),
        )
        return self._cancel_answer(await self._runtime.ask_cancel("session_before_switch", asked))

    async def _before_fork(self, event: Payload) -> Any:
        asked = SessionBeforeForkEvent(
            entry_id=str(event.get("entryId")), position="at" if event.get("position") == "at" else "before"
        )
        return self._cancel_answer(await self._runtime.ask_cancel("session_before_fork", asked))

    def _cancel_answer(self, cancel: Cancel | None) -> Any:
        return {} if cancel is None else {"cancel": True, "reason": text_to_pi(cancel.reason)}

    async def _tree(self, event: Payload) -> Any:
        summary = event.get("summaryEntryId")
        told = SessionTreeEvent(
            new_leaf_id=text_or_none(event.get("newLeafId")),
            old_leaf_id=text_or_none(event.get("oldLeafId")),
            summary_entry=self._runtime.session.get(summary) if isinstance(summary, str) else None,
            from_extension=event.get("fromExtension") is True,
        )
        await self._runtime.notify("session_tree", told)

    async def _model_select(self, event: Payload) -> Any:
        model = self.take_model(event)
        if model is None:
            return
        source = event.get("source")
        told = ModelSelectEvent(
            model=model,
            previous_model=model_from_pi(event.get("previousModel")),
            source=source if source in ("set", "cycle", "restore") else "set",
        )
        await self._runtime.notify("model_select", told)
        self.watch_boundaries(event)

    # Compaction ------------------------------------------------------------------------------------------------------

    async def _before_compact(self, event: Payload) -> Any:
        self._compactor = None
        addressed = text_or_none(event.get("addressedTo"))
        preparation = self._preparation(event)
        if preparation is None:
            return {"problem": "there is nothing to compact here, although Pi has something"}
        asked = SessionBeforeCompactEvent(
            preparation=preparation,
            branch_entries=self._runtime.session.branch(),
            reason=_reason(event),
            signal=current_signal.get() or AbortSignal(),
            custom_instructions=text_or_none(event.get("customInstructions")),
            will_retry=event.get("willRetry") is True,
            addressed_to=addressed,
        )
        failures: list[PluginFailure] = []
        found = await self._runtime.before_compact(asked, failures=failures)
        if found is None:
            return {"problem": failure_to_pi("; ".join(map(str, failures))) or None}
        self._compactor, answer = found
        return {"plugin": self._compactor, **compaction_to_pi(self._compactor, answer)}

    def _preparation(self, event: Payload) -> Preparation | None:
        """Ours, from Pi's settings: equal to Pi's but for a split turn that is none. Pi's does not cross the bridge,
        because it holds the whole history."""
        settings = compaction_settings_from_pi(event.get("settings"))
        session = self._runtime.session
        made = prepare_compaction(
            self._runtime.authority.snapshot(), session.branch(), settings, context_messages=context_messages
        )
        if made is None:
            return None
        if made.first_kept_entry_id != event.get("firstKeptEntryId"):
            _log.info("cut at %s, Pi cuts at %s", made.first_kept_entry_id, event.get("firstKeptEntryId"))
        tokens = event.get("tokensBefore")
        return replace(made, tokens_before=int(tokens)) if isinstance(tokens, (int, float)) else made

    async def _compacted(self, event: Payload) -> Any:
        entry = self._runtime.session.get(str(event.get("entryId")))
        if entry is None:
            _log.error("the compaction entry %s did not arrive", event.get("entryId"))
            return
        plugin, self._compactor = self._compactor, None
        told = SessionCompactEvent(
            compaction_entry=entry,
            reason=_reason(event),
            from_extension=event.get("fromExtension") is True,
            will_retry=event.get("willRetry") is True,
            plugin=plugin if event.get("fromExtension") is True else None,
        )
        await self._runtime.notify("session_compact", told)

    async def _compact_failed(self, event: Payload) -> Any:
        plugin, self._compactor = self._compactor, None
        told = SessionCompactFailedEvent(
            reason=_reason(event),
            aborted=event.get("aborted") is True,
            from_extension=event.get("fromExtension") is True,
            error_message=text_or_none(event.get("errorMessage")),
            will_retry=event.get("willRetry") is True,
            plugin=plugin or text_or_none(event.get("addressedTo")),
        )
        await self._runtime.notify("session_compact_failed", told)

    # The run ---------------------------------------------------------------------------------------------------------

    async def _input(self, event: Payload) -> Any:
        source, behavior = event.get("source"), event.get("streamingBehavior")
        asked = InputEvent(
            text=str(event.get("text") or ""),
            images=images_from_pi(event.get("images")),
            source=source if source in ("interactive", "rpc", "extension") else "interactive",
            streaming_behavior=behavior if behavior in ("steer", "followUp") else None,
        )
        return input_to_pi(asked, await self._runtime.input(asked))

    async def _agent_start(self, event: Payload) -> Any:
        await self._runtime.notify("agent_start", AgentStartEvent())
        self.watch_boundaries(event)

    async def _context(self, event: Payload) -> Any:
        told = ContextEvent(snapshot=self._runtime.authority.snapshot())
        await self._runtime.notify("context", told)

    async def _settled(self, event: Payload) -> Any:
        await self._runtime.notify("agent_settled", AgentSettledEvent(aborted=event.get("aborted") is True))

    async def _turn_end(self, event: Payload) -> Any:
        message_id = str(event.get("messageEntryId"))
        entry = self._runtime.session.get(message_id)
        result_ids = [text for text in event.get("toolResultEntryIds") or () if isinstance(text, str)]
        results = [self._runtime.session.get(result_id) for result_id in result_ids]
        index = event.get("turnIndex")
        asked = TurnEndEvent(
            turn_index=index if isinstance(index, int) else 0,
            message=message_of(entry.message if entry is not None else None),
            tool_results=[result.message for result in results if result is not None and result.message is not None],
            message_entry_id=message_id,
            tool_result_entry_ids=result_ids,
            outcome=outcome_from_pi(event.get("outcome")),
            context=self._runtime.authority.snapshot(),
        )
        return await self._boundary("turn_end", asked, event)

    async def _before_settle(self, event: Payload) -> Any:
        asked = AgentBeforeSettleEvent(
            outcome=outcome_from_pi(event.get("outcome")), context=self._runtime.authority.snapshot()
        )
        return await self._boundary("agent_before_settle", asked, event)

    async def _boundary(self, hook: str, asked: _B, event: Payload) -> Any:
        """Our drafts only: the extension puts them behind those that other extensions proposed."""
        theirs: tuple[Draft, ...] = ()
        proposed = event.get("entries")
        if proposed:
            try:
                theirs = tuple(draft_from_pi(draft) for draft in proposed)
                asked = replace(asked, entries=theirs, context=self._runtime.authority.preview(theirs))
            except (InvalidDraft, ContexthostError) as error:
                _log.warning("another extension proposes entries that cannot be used: %s", error)
                return {}
        asked = replace(asked, continue_run=event.get("continue") is True)
        outcome = await self._runtime.boundary(
            hook, asked, timeout_seconds=self._runtime.settings.values.compactionTimeoutSeconds
        )
        drafts = outcome.drafts[len(theirs) :]
        return {"entries": [draft_to_pi(draft) for draft in drafts], "continue": bool(outcome.continue_run)}

    async def _headers(self, event: Payload) -> Any:
        given = event.get("headers")
        asked = BeforeProviderHeadersEvent(headers=given if isinstance(given, dict) else {})
        chained = await self._runtime.headers(asked)
        changed: dict[str, str | None] = {}
        for _, answer in chained.answers:
            changed.update(answer)
        return {"headers": changed}

    async def _request(self, event: Payload) -> Any:
        payload = event.get("payload")
        if not isinstance(payload, dict):
            return {}
        asked = BeforeProviderRequestEvent(payload=payload)
        chained = await self._runtime.plugins.chain("before_provider_request", asked, self._runtime.context)
        return {"payload": dict(chained.event.payload)} if chained.answers else {}


def _reason(event: Payload) -> CompactionReason:
    reason = event.get("reason")
    return reason if reason in ("manual", "threshold", "overflow") else "manual"
