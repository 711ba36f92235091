"""Comparing what `inspect` says of a session file with what the real Pi says of it, value by value.

One difference is wanted: where metadata stands directly before the message that starts a turn, Pi takes the clean cut
in front of it for a split turn; contexthost does not.
"""

from __future__ import annotations

from typing import Any

from contexthost.messages import js_json

__all__ = ["differences"]

MAX_DEPTH = 40  # of a difference that is named: a value may be nested more deeply than Python compares
TURN_STARTS = {"user", "bashExecution", "custom", "branchSummary", "compactionSummary"}


def without_false_split(line: dict[str, Any]) -> dict[str, Any]:
    """The oracle's line as contexthost should have it: no split turn where a whole turn begins at the cut.

    The split is false if the first entry with messages at or after the cut starts a turn itself. Pi has then put what
    belongs to the history into the turn's prefix, which comes right after it.
    """
    cut, prepared = dict(line["cutPoint"]), line["preparation"]
    if TURN_STARTS & set(cut.pop("rolesFromCut")) and cut["isSplitTurn"]:
        cut |= {"turnStartPosition": None, "isSplitTurn": False}
    if prepared is not None:
        prepared = dict(prepared)
        if TURN_STARTS & set(prepared.pop("rolesFromCut")) and prepared["isSplitTurn"]:
            messages = prepared["messagesToSummarize"] + prepared["turnPrefixMessages"]
            prepared |= {"messagesToSummarize": messages, "turnPrefixMessages": [], "isSplitTurn": False}
    return {**line, "cutPoint": cut, "preparation": prepared}


def comparable(line: dict[str, Any]) -> dict[str, Any]:
    """JavaScript leaves an assistant's missing provider out of `model`; here it may as well be null."""
    model = line["model"] and {key: value for key, value in line["model"].items() if value is not None}
    return {**line, "model": model}


def first_difference(where: str, ours: Any, pis: Any) -> str | None:
    """Where and how `ours` differs first; objects may have keys that Pi's have not, but for those nested deeply."""
    if where.count("[") + where.count(".") > MAX_DEPTH:
        return None if js_json(ours) == js_json(pis) else f"{where} differs"
    if isinstance(pis, dict) and isinstance(ours, dict):
        pairs = [(f"{where}.{key}", ours.get(key, "no such key"), value) for key, value in pis.items()]
    elif isinstance(pis, list) and isinstance(ours, list) and len(pis) == len(ours):
        pairs = [(f"{where}[{at}]", *pair) for at, pair in enumerate(zip(ours, pis, strict=True))]
    else:
        return None if ours == pis else f"{where} is {ours!r}, but Pi says {pis!r}"
    return next(filter(None, (first_difference(*pair) for pair in pairs)), None)


def differences(name: str, ours: dict[str, Any], pis: dict[str, Any]) -> list[str]:
    """One text for each key of the contract in which the two differ."""
    ours, pis = comparable(ours), comparable(without_false_split(pis))
    found = (first_difference(f"{name}: {key}", ours.get(key, "no such key"), value) for key, value in pis.items())
    return [text for text in found if text is not None]
