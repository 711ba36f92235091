"""``contexthost pi serve``: the Python side of one Pi session, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import io
import logging
import logging.handlers
import os
import selectors
import signal
import sys
import threading
import time
from typing import Final

from contexthost import paths
from contexthost.pi.bridge import Bridge
from contexthost.pi.protocol import Peer

__all__ = ["serve"]

_END_SECONDS: Final = 5.0
"""How long this process may go on after Pi has gone: plugins end their work, then it ends in any case."""

_TERM_SECONDS: Final = 2.0
"""How long a SIGTERM waits for Pi to end the session: Pi may have got it too."""

_LEFT_TO_PI: Final = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)

_LOG_BYTES: Final = 1_000_000

_log = logging.getLogger(__name__)


def serve() -> None:
    """Serves one Pi session over standard input and output; returns when Pi closes them.

    Before any plugin is imported standard output is pointed at standard error, and standard input at nothing: what a
    plugin prints, or a program that it starts reads, must not get into the protocol.
    """
    read_fd, write_fd = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    _log_to_file()
    _let_pi_go_first()
    # Not epoll, which refuses to watch files and /dev/null: who tries this command by hand gets an end, no traceback.
    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(selectors.PollSelector())) as runner:
        runner.run(_serve(read_fd, write_fd))


def _let_pi_go_first() -> None:
    """A process of this kind does not push another one off its processor when it wakes up: without it Pi stands still
    for about a millisecond at each message that it sends here, also those that need no answer."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a container may forbid it; everything works without
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


async def _serve(read_fd: int, write_fd: int) -> None:
    over = asyncio.Event()
    peer = Peer(
        read_fd, write_fd, receive=lambda message: bridge.receive(message), closed=over.set, ended=_end_in_any_case
    )
    if not os.isatty(read_fd):
        _leave_signals_to_pi(asyncio.get_running_loop(), over)
    peer.start()  # before plugins are imported, which may take for ever: its threads must know when Pi has gone
    bridge = Bridge(peer)
    await over.wait()
    await bridge.close()
    peer.finish(1.0)


def _leave_signals_to_pi(loop: asyncio.AbstractEventLoop, over: asyncio.Event) -> None:
    """What a closed terminal, a shell or a supervisor sends goes to the whole group of processes. It is meant for Pi,
    which then ends the session; here it would cost plugins their `session_shutdown`.

    Nothing is ignored, because programs that plugins start would inherit that. A thread waits for the signals: the
    kernel may give one to any thread, and Python's own handlers run in the main one, which sleeps on meanwhile or is
    held up by a plugin.
    """
    told, telling = os.pipe()
    os.set_blocking(telling, False)

    def wait() -> None:
        while signal.SIGTERM not in os.read(told, 64):
            pass
        _end_in_any_case()
        with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended by itself
            loop.call_soon_threadsafe(loop.call_later, _TERM_SECONDS, over.set)

    signal.set_wakeup_fd(telling, warn_on_full_buffer=False)
    for number in _LEFT_TO_PI:
        signal.signal(number, lambda *_: None)
    os.register_at_fork(after_in_child=_take_signals_again)
    threading.Thread(target=wait, name="bridge-signals", daemon=True).start()


def _take_signals_again() -> None:
    """In a process that a plugin forks, of `multiprocessing` for example: it must end when it is told to, and must not
    tell this one to."""
    signal.set_wakeup_fd(-1)
    for number in _LEFT_TO_PI:
        signal.signal(number, signal.SIG_DFL)


def _end_in_any_case() -> None:
    """Ends this process some seconds after Pi has gone, whatever the event loop is doing."""

    def end() -> None:
        time.sleep(_END_SECONDS)
        os._exit(0)

    threading.Thread(target=end, name="bridge-end", daemon=True).start()


class _PrivateLog(logging.handlers.RotatingFileHandler):
    """A log that only its owner may read (0600): what fails in a plugin may quote the session."""

    def _open(self) -> io.TextIOWrapper:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        return io.TextIOWrapper(os.fdopen(descriptor, "ab"), encoding=self.encoding, errors=self.errors)

    def handleError(self, record: logging.LogRecord) -> None:
        """A disk that is full is nothing to fill Pi's screen with."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def _log_to_file() -> None:
    """The log of this process: the one place where all of a plugin's failures can be read."""
    handler: logging.Handler
    try:
        directory = paths.private_dir(paths.state_dir())
        handler = _PrivateLog(
            directory / "pi-bridge.log", maxBytes=_LOG_BYTES, backupCount=1, encoding="utf-8", errors="backslashreplace"
        )
    except OSError:
        handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    _log.info("contexthost %s serves process %d", importlib.metadata.version("contexthost"), os.getppid())
