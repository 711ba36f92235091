"""``contexthost chat``: a conversation in a terminal, with every installed plugin: proof that `Host` is enough."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from contexthost import progress
from contexthost.cli.arguments import SESSION
from contexthost.cli.models import Client, client, model_options
from contexthost.context import Mode
from contexthost.errors import ContexthostError, SettingsError
from contexthost.host import Host
from contexthost.session.find import find_session
from contexthost.text import one_line, printable, said_by
from contexthost.watch import (
    CompactionEnded,
    CompactionStarted,
    Notified,
    Retrying,
    StatusSet,
    TextArrived,
    ToolStarted,
    WatchEvent,
)

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

__all__ = ["command"]


@click.command("chat")
@click.argument("session", type=SESSION, required=False)
@model_options
@click.option("--system-prompt", metavar="TEXT", help="Recorded in the session when it differs.")
def command(
    session: str | None,
    base_url: str | None,
    model: str | None,
    api: str,
    provider: str,
    context_window: int | None,
    system_prompt: str | None,
) -> None:
    """Talk to a model in SESSION (a new file if it does not exist; in memory without one).

    /help lists the slash commands. Ctrl-C aborts the answer, not the session; Ctrl-D leaves.
    """
    asker = client(base_url, model, api, provider, context_window)
    if asker is None:
        raise SettingsError("chat needs a model: give --base-url and --model")
    path = None
    if session is not None:
        path = Path(session).expanduser() if "/" in session or session.endswith(".jsonl") else find_session(session)
    progress.show_on(None)  # the terminal belongs to the conversation
    asyncio.run(_chat(path, asker, system_prompt))


async def _chat(path: Path | None, asker: Client, system_prompt: str | None) -> None:
    terminal = _Terminal()
    try:
        mode: Mode = "tui" if terminal.interactive else "rpc"
        host = Host.open(
            path, model=asker, mode=mode, system_prompt=system_prompt, ui=terminal if terminal.interactive else None
        )
        host.watch(terminal.show)
        async with host:
            terminal.attach(host)
            async for line in terminal.lines():
                await _answer(host, line, terminal)
    finally:
        await asker.aclose()


async def _answer(host: Host, line: str, terminal: _Terminal) -> None:
    text = line.strip()
    if not text:
        return
    if text == "/help":
        terminal.print(_help(host))
        return
    loop = asyncio.get_running_loop()
    # While an answer is being made Ctrl-C aborts it; at the prompt it only clears the line.
    loop.add_signal_handler(signal.SIGINT, host.abort)
    try:
        prompted = await host.prompt(text, source="interactive")
        if prompted.text:
            terminal.print(prompted.text)
        answer = await prompted.answer() if prompted.disposition == "started" else None
        if answer is not None and answer.get("stopReason") == "error":
            terminal.complain(str(answer.get("errorMessage") or "the model failed"))
        elif answer is not None and answer.get("stopReason") == "aborted":
            terminal.complain("aborted")
    except ContexthostError as error:
        terminal.complain(str(error))
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        terminal.end_answer()


def _help(host: Host) -> str:
    rows = {"help": "Show this list."} | {name: found.description for name, (_, found) in host.commands().items()}
    return "\n".join(f"/{name:<20} {text}" for name, text in sorted(rows.items()))


class _Terminal:
    """The user: `prompt_toolkit` at a terminal, plain lines from a pipe."""

    def __init__(self) -> None:
        self.interactive = sys.stdin.isatty() and sys.stdout.isatty()
        self._host: Host | None = None
        self._status: dict[str, str] = {}
        self._draft = ""
        self._column = 0
        self._prompt: PromptSession[str] | None = None

    def attach(self, host: Host) -> None:
        """Begins to show this host's status."""
        self._host = host
        if self.interactive:
            from prompt_toolkit import PromptSession
            from prompt_toolkit.completion import WordCompleter

            words = [f"/{name}" for name in (*host.commands(), "help")]
            completer = WordCompleter(sorted(words), sentence=True)
            self._prompt = PromptSession(completer=completer, bottom_toolbar=self._toolbar)

    async def lines(self) -> AsyncIterator[str]:
        """What the user enters, until the end of input."""
        while True:
            try:
                if self._prompt is not None:
                    draft, self._draft = self._draft, ""
                    yield await self._prompt.prompt_async("> ", default=draft)
                else:
                    line = await asyncio.to_thread(sys.stdin.readline)
                    if not line:
                        return
                    yield line
            except KeyboardInterrupt:
                continue
            except EOFError:
                return

    def show(self, event: WatchEvent) -> None:
        """Prints what happens."""
        if isinstance(event, TextArrived):
            self._write(printable(event.text))
        elif isinstance(event, ToolStarted):
            self.print(f"[{one_line(event.name)}]")
        elif isinstance(event, Retrying):
            self.complain(event.text)
        elif isinstance(event, CompactionStarted):
            self.complain(f"compacting ({event.reason})…")
        elif isinstance(event, CompactionEnded):
            if event.entry is not None and self._host is not None:
                self.complain(f"compacted: {self._host.snapshot.usage.tokens:,} tokens now")
        elif isinstance(event, Notified):
            self.complain(said_by(event.plugin, event.message))
        elif isinstance(event, StatusSet):
            if event.text is None:
                self._status.pop(event.plugin, None)
            else:
                self._status[event.plugin] = one_line(event.text)

    def print(self, text: str) -> None:
        """Prints lines, on a line of their own."""
        self.end_answer()
        self._write(printable(text) + "\n")

    def complain(self, text: str) -> None:
        """Prints a message that is not part of the conversation."""
        self.end_answer()
        print(f"· {one_line(text)}", file=sys.stderr, flush=True)

    def end_answer(self) -> None:
        """Ends the line that an answer may have left open."""
        if self._column:
            self._write("\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.write(text)
            sys.stdout.flush()
        self._column = len(text) - text.rfind("\n") - 1 if "\n" in text else self._column + len(text)

    def _toolbar(self) -> str:
        if self._host is None:
            return ""
        usage = self._host.snapshot.usage
        parts = [f"{usage.tokens:,} of {usage.window:,} tokens ({usage.percent:.0f} %)", *self._status.values()]
        return " · ".join(parts)

    async def confirm(self, title: str, message: str, timeout_seconds: float | None) -> bool:
        """Asks yes or no at the terminal."""
        self.complain(f"{title}: {message} (y/N)")
        if self._prompt is None:
            return False
        try:
            async with asyncio.timeout(timeout_seconds):
                return (await self._prompt.prompt_async("? ")).strip().lower() in ("y", "yes")
        except (TimeoutError, EOFError, KeyboardInterrupt):
            return False

    async def get_editor_text(self) -> str:
        """What will stand at the next prompt."""
        return self._draft

    def set_editor_text(self, text: str) -> None:
        """Puts text at the next prompt."""
        self._draft = text
