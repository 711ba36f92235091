"""Planning a compaction, without effects: where to cut, what to summarise, how to write it down for a model."""

from contexthost.compaction.cut_point import CutPoint, find_cut_point, find_projected_cut_point
from contexthost.compaction.files import (
    FileLists,
    FileOps,
    collect_file_ops,
    compute_file_lists,
    format_file_operations,
)
from contexthost.compaction.prepare import (
    CompactionSettings,
    Preparation,
    drafted_preparation,
    prepare_compaction,
    should_compact,
)
from contexthost.compaction.protocols import ContextMessages, EntryLike, ProjectedEntryLike, ProjectionLike
from contexthost.compaction.serialize import TOOL_RESULT_MAX_CHARS, serialize_conversation, truncate

__all__ = [
    "TOOL_RESULT_MAX_CHARS",
    "CompactionSettings",
    "ContextMessages",
    "CutPoint",
    "EntryLike",
    "FileLists",
    "FileOps",
    "Preparation",
    "ProjectedEntryLike",
    "ProjectionLike",
    "collect_file_ops",
    "compute_file_lists",
    "drafted_preparation",
    "find_cut_point",
    "find_projected_cut_point",
    "format_file_operations",
    "prepare_compaction",
    "serialize_conversation",
    "should_compact",
    "truncate",
]
