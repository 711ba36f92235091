"""Which files a conversation read and changed, as Pi lists them at the end of a summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from contexthost.compaction.protocols import EntryLike
from contexthost.messages import Message, js_truthy, utf16_key

__all__ = ["FileLists", "FileOps", "collect_file_ops", "compute_file_lists", "format_file_operations"]


@dataclass(frozen=True, slots=True)
class FileOps:
    """Paths, as the tool calls ``read``, ``write`` and ``edit`` named them."""

    read: frozenset[str] = frozenset()
    written: frozenset[str] = frozenset()
    edited: frozenset[str] = frozenset()


class FileLists(NamedTuple):
    """Sorted paths; a file that was read and changed is only among the modified ones."""

    read_files: list[str]
    modified_files: list[str]


def collect_file_ops(messages: Iterable[Message], previous: EntryLike | None = None) -> FileOps:
    """The file operations of assistant tool calls, and of the nested calls that tool results record.

    ``previous`` is the compaction that the messages follow: the lists in its details are taken over, unless the
    compaction came from an extension, whose details are its own.
    """
    paths: dict[object, set[str]] = {"read": set(), "write": set(), "edit": set()}
    details = previous.data.get("details") if previous is not None else None
    if previous is not None and isinstance(details, Mapping) and not js_truthy(previous.data.get("fromHook")):
        paths["read"].update(_strings(details.get("readFiles")))
        paths["edit"].update(_strings(details.get("modifiedFiles")))
    for message in messages:
        for call in _calls(message):
            name, arguments = call.get("name"), call.get("arguments")
            path = arguments.get("path") if isinstance(arguments, Mapping) else None
            if isinstance(name, str) and name in paths and isinstance(path, str) and path:
                paths[name].add(path)
    return FileOps(read=frozenset(paths["read"]), written=frozenset(paths["write"]), edited=frozenset(paths["edit"]))


def compute_file_lists(ops: FileOps) -> FileLists:
    """The files only read, and the files changed, each sorted by UTF-16 unit."""
    modified = ops.edited | ops.written
    return FileLists(sorted(ops.read - modified, key=utf16_key), sorted(modified, key=utf16_key))


def format_file_operations(lists: FileLists) -> str:
    """The lists as the end of a summary, beginning with a blank line; empty if both are empty."""
    tagged = (("read-files", lists.read_files), ("modified-files", lists.modified_files))
    return "".join("\n\n<{0}>\n{1}\n</{0}>".format(tag, "\n".join(paths)) for tag, paths in tagged if paths)


def _strings(value: object) -> list[str]:
    return [element for element in value if isinstance(element, str)] if isinstance(value, list) else []


def _calls(message: Message) -> Iterator[Mapping[str, Any]]:
    found: object = None
    match message:
        case {"role": "assistant"}:
            content = message.get("content")
            if isinstance(content, list):
                found = [block for block in content if isinstance(block, dict) and block.get("type") == "toolCall"]
        case {"role": "toolResult", "nestedCalls": {"calls": calls}}:
            found = calls
    for call in found if isinstance(found, list) else ():
        if isinstance(call, dict):
            yield call
