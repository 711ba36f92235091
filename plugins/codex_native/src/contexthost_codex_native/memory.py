"""What is remembered of an open session, and which gateways cannot compact it. The session is not written to."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from contexthost.paths import write_private
from contexthost_codex_native.eligibility import model_key

if TYPE_CHECKING:
    from contexthost.context import Context, ModelInfo

__all__ = ["Memory", "place_of"]

_FILE: Final = "unsupported.json"
_SESSIONS_MAX: Final = 200
"""The newest sessions that are remembered with their gateways."""

_log = logging.getLogger(__name__)


def place_of(model: ModelInfo, url: str) -> str:
    """What stands for a model at an address; a digest, because addresses may hold a credential."""
    return hashlib.sha256(f"{model_key(model)} {url}".encode()).hexdigest()[:16]


@dataclass(slots=True)
class Memory:
    """What is known of one open session."""

    shapes: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Model key → the last ordinary request without its conversation."""
    unsupported: dict[str, str] = field(default_factory=dict)
    """Place (see `place_of`) of gateways that cannot compact → what was told. Kept in the plugin's data directory: a
    reload or a resume in Pi is a new process, and they are not asked again there either."""
    told: set[str] = field(default_factory=set)
    paused: bool = False
    """Whether compacting within a run failed; the next compaction of any kind or another model ends that."""

    @classmethod
    def of(cls, ctx: Context) -> Memory:
        """The memory of a session that begins or goes on."""
        return cls(unsupported=dict(_read(ctx).get(ctx.session.id, {})))

    def cannot_compact(self, ctx: Context, place: str, told: str) -> None:
        """Remembers a gateway, for this process in any case."""
        self.unsupported[place] = told
        known = _read(ctx)
        known.pop(ctx.session.id, None)
        known[ctx.session.id] = self.unsupported  # the newest stands last
        kept = dict(list(known.items())[-_SESSIONS_MAX:])
        try:
            write_private(ctx.data_dir / _FILE, json.dumps(kept, indent=1).encode())
        except OSError as error:
            _log.warning("which gateways cannot compact is not kept: %s", error)


def _read(ctx: Context) -> dict[str, dict[str, str]]:
    """Session id → place → what was told; whatever is not readable is as good as not there."""
    try:
        found = json.loads(Path(ctx.data_dir / _FILE).read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        _log.warning("which gateways cannot compact is not known: %s", error)
        return {}
    if not isinstance(found, dict):
        return {}
    return {
        session: {place: told for place, told in places.items() if isinstance(told, str)}
        for session, places in found.items()
        if isinstance(places, dict)
    }
