"""One session entry: its envelope decoded, its content left as bytes until someone looks at it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final, NoReturn

import msgspec

from contexthost.errors import SessionFormatError
from contexthost.messages import js_json
from contexthost.session.deep import loads_deep

__all__ = ["Entry", "MalformedLine", "decode_json", "encode_json", "is_deep"]

CURRENT_VERSION: Final = 3
"""The version of Pi's session format that is written (Pi 1.6.0)."""

_ABSENT: Final = msgspec.UNSET


class MalformedLine(ValueError):
    """A line that is not JSON as JavaScript reads it."""


class Envelope(msgspec.Struct):
    """The keys of a line that the tree is built from; all the rest is skipped without being decoded."""

    type: Any = _ABSENT
    id: Any = _ABSENT
    parentId: Any = _ABSENT
    timestamp: Any = _ABSENT
    version: Any = _ABSENT


class _MessageProbe(msgspec.Struct, frozen=True):
    """Texts, as the decoder sees to; one that is made from a whole message holds whatever stands there."""

    role: str | None = None
    provider: str | msgspec.UnsetType | None = _ABSENT
    model: str | msgspec.UnsetType | None = _ABSENT
    stopReason: str | None = None


class _LineProbe(msgspec.Struct):
    message: _MessageProbe | None = None


class _UsageProbe(msgspec.Struct):
    usage: Any = None


class _LineUsageProbe(msgspec.Struct):
    message: _UsageProbe


_decode_envelope = msgspec.json.Decoder(Envelope).decode
_decode_probe = msgspec.json.Decoder(_LineProbe).decode
_decode_usage = msgspec.json.Decoder(_LineUsageProbe).decode
_decode_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode

_probes: Final[dict[_MessageProbe, _MessageProbe]] = {}
"""Messages have few roles, models and stop reasons: entries share what is equal."""

_MOST_PROBES: Final = 256


def _shared(probe: _MessageProbe) -> _MessageProbe:
    """For texts only: other things may have no hash, or be equal to what is written in another way (1, 1.0, true)."""
    known = _probes.get(probe)
    if known is None:
        if len(_probes) >= _MOST_PROBES:
            _probes.clear()
        known = _probes[probe] = probe
    return known


def _refuse_constant(name: str) -> NoReturn:
    raise MalformedLine(f"{name} is not JSON")


def _parse_int(digits: str) -> int | float:
    try:
        return int(digits)
    except ValueError:  # past Python's limit of 4,300 digits; JavaScript reads it as Infinity
        return float(digits)


def decode_json(raw: bytes) -> Any:
    """The value of one line, read as JavaScript reads it.

    Invalid UTF-8 becomes U+FFFD, lone surrogate escapes survive, NaN and Infinity are refused. Any depth will do.

    Raises:
        MalformedLine: not JSON.
    """
    try:
        return _decode_any(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        # The fast decoder refuses what JavaScript accepts (lone surrogates, invalid UTF-8, 1e999): the slow one judges.
        return _decode_slowly(raw)


def _decode_slowly(raw: bytes) -> Any:
    text = raw.decode("utf-8", "replace")
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_parse_int)
    except RecursionError:
        pass  # nested too deeply for Python, but not for Node
    except ValueError as error:
        raise MalformedLine(str(error)) from None
    try:
        return loads_deep(text, _parse_int)
    except ValueError as error:
        raise MalformedLine(str(error)) from None


def encode_json(value: Any) -> bytes:
    """``value`` as one line of JSON without spaces, as JavaScript writes it: lone surrogates are escaped, so that they
    can be written at all, and infinities, which 1e999 in a file is read as, become null. Any depth will do.

    Raises:
        SessionFormatError: the value is not JSON (an object of some class, a key that is not text, …).
    """
    try:
        return _encode(value)
    except (UnicodeEncodeError, RecursionError):
        try:
            _refuse_circles(value)
            return js_json(value).encode()
        except (TypeError, ValueError) as error:
            raise SessionFormatError(f"this value cannot be written as JSON: {error}") from None
    except (TypeError, ValueError, OverflowError) as error:
        raise SessionFormatError(f"this value cannot be written as JSON: {error}") from None


def is_deep(value: Any) -> bool:
    """Whether a value is JSON that is nested about a thousand deep or deeper.

    Pi reads any depth and can print four thousand; what it cannot print costs it the run that it belongs to.
    """
    try:
        try:
            _encode(value)
        except RecursionError:
            _refuse_circles(value)
            return True
    except (TypeError, ValueError, OverflowError):  # no JSON: whoever writes it says so
        pass
    return False


def _refuse_circles(value: Any) -> None:
    """Raises ValueError for a value that holds itself, which would be printed for ever."""
    path: list[tuple[int, Iterator[Any]]] = [(0, iter([value]))]
    open_ids: set[int] = set()
    while path:
        for child in path[-1][1]:
            if isinstance(child, dict | list | tuple):
                if id(child) in open_ids:
                    raise ValueError("it holds itself")
                open_ids.add(id(child))
                path.append((id(child), iter(child.values() if isinstance(child, dict) else child)))
                break
        else:
            open_ids.discard(path.pop()[0])


def decode_envelope(raw: bytes) -> Envelope | None:
    """The envelope of a line; None when the line's value is not an object.

    Raises:
        MalformedLine: the line is not JSON.
    """
    try:
        return _decode_envelope(raw)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        value = _decode_slowly(raw)
        if not isinstance(value, dict):
            return None
        return Envelope(**{key: value[key] for key in Envelope.__struct_fields__ if key in value})


class Entry:
    """One entry of a session, immutable but for what it remembers of its own decoding.

    Attributes:
        position: place among the session's entries in file order, from 0; the header and skipped lines do not count.
        type: Pi's entry type; "" when the file has something other than a string there.
        id: as in the file, or made up for version 1 files (the same at every opening).
        parent_id: None for a root.
        timestamp: ISO 8601 text as stored ("" when the file has something else there).
        raw: the line's bytes, without the line feed.
        depth: how many entries lie between this one and its root; -1 inside a parent cycle.
    """

    __slots__ = ("_data", "_patch", "_probe", "depth", "id", "parent_id", "position", "raw", "timestamp", "type")

    def __init__(
        self,
        *,
        position: int,
        type: str,
        id: str,
        parent_id: str | None,
        timestamp: str,
        raw: bytes,
        patch: dict[str, Any] | None = None,
    ) -> None:
        self.position = position
        self.type = sys.intern(type)  # a handful of types, thousands of entries
        self.id = id
        self.parent_id = parent_id
        self.timestamp = timestamp
        self.raw = raw
        self.depth = 0
        self._patch = patch  # what migration changes in the decoded line; a None value removes the key
        self._data: dict[str, Any] | None = None
        self._probe: _MessageProbe | None = None

    @classmethod
    def drafted(cls, payload: dict[str, Any], *, parent: Entry | None, position: int) -> Entry:
        """An entry that is not in any file yet, as it would stand behind ``parent``.

        Args:
            payload: the whole entry but for ``parentId``; ``type`` and ``id`` are required.
        """
        data = {**payload, "parentId": parent.id if parent is not None else None}
        entry = cls(
            position=position,
            type=data["type"],
            id=data["id"],
            parent_id=data["parentId"],
            timestamp=data.get("timestamp", ""),
            raw=encode_json(data),
        )
        entry.depth = parent.depth + 1 if parent is not None else 0
        return entry

    def __repr__(self) -> str:
        return f"Entry({self.position}, {self.type!r}, {self.id!r})"

    @property
    def data(self) -> dict[str, Any]:
        """The whole entry in the shape of version 3, decoded once; to be read, not written."""
        if self._data is None:
            self._data = self.read()
        return self._data

    def read(self) -> dict[str, Any]:
        """As `data`, but not kept: decoded, an entry takes several times its bytes, so whoever looks through a whole
        session looks at it in this way."""
        if self._data is not None:
            return self._data
        data: dict[str, Any] = decode_json(self.raw)
        if self._patch is not None:
            data.update(self._patch)
            for key, value in self._patch.items():
                if value is None and key != "parentId":
                    del data[key]
            message = data.get("message")
            # Version 2 called the role of extensions' messages "hookMessage".
            if self.type == "message" and isinstance(message, dict) and message.get("role") == "hookMessage":
                message["role"] = "custom"
        return data

    def migrated_line(self) -> bytes:
        """The line as version 3 has it: byte for byte the same where the version makes no difference."""
        if self._patch is None:
            return self.raw
        if not self._patch:
            message = decode_json(self.raw).get("message") if self.type == "message" else None
            if not isinstance(message, dict) or message.get("role") != "hookMessage":
                return self.raw
        return encode_json(self.data)

    @property
    def message(self) -> dict[str, Any] | None:
        """The message of a ``message`` entry; None for other types and where the file has no object there."""
        if self.type != "message":
            return None
        message = self.data.get("message")
        return message if isinstance(message, dict) else None

    def read_message(self) -> dict[str, Any] | None:
        """As `message`, but not kept (see `read`)."""
        if self.type != "message":
            return None
        message = self.read().get("message")
        return message if isinstance(message, dict) else None

    @property
    def probe(self) -> _MessageProbe | None:
        """Role, model and stop reason of a message, without decoding its content."""
        if self.type != "message":
            return None
        if self._probe is None:
            probe: _MessageProbe | None = None
            if self._data is None:
                try:
                    probe = _decode_probe(self.raw).message
                except (msgspec.MsgspecError, RecursionError, UnicodeError):
                    probe = None
            if probe is not None:
                if self._patch is not None and probe.role == "hookMessage":
                    probe = msgspec.structs.replace(probe, role="custom")
                self._probe = _shared(probe)
            else:
                message = self.read_message()
                if message is None:
                    return None
                self._probe = _MessageProbe(**{k: message[k] for k in _MessageProbe.__struct_fields__ if k in message})
        return self._probe

    def read_usage(self) -> Any:
        """The usage that a message records, whatever the file has there, without decoding its content; not kept."""
        if self.type != "message":
            return None
        if self._data is None:
            try:
                return _decode_usage(self.raw).message.usage
            except (msgspec.MsgspecError, RecursionError, UnicodeError):
                pass  # a line that only the slow decoder can read, or no message
        message = self.read_message()
        return message.get("usage") if message is not None else None

    @property
    def role(self) -> str | None:
        """The role of a message; None for other types and where the file has no text there."""
        probe = self.probe
        return probe.role if probe is not None and isinstance(probe.role, str) else None
