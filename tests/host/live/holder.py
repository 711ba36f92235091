"""A process that holds an input in a live session, says so, and waits to be killed: ``holder.py SESSION TEXT``."""

from __future__ import annotations

import asyncio
import sys

from contexthost.context import Context
from contexthost.events import Hold, InputEvent
from contexthost.hookspecs import hookimpl
from contexthost.host import Host
from contexthost.models.scripted import ScriptedModel

IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}


class Holder:
    plugin_name = "holder"

    @hookimpl
    def input(self, event: InputEvent, ctx: Context) -> Hold:
        return Hold()


async def main(path: str, text: str) -> None:
    async with Host.open(path, model=ScriptedModel(), plugins=[Holder()], installed_plugins=False) as host:
        await host.prompt(text, images=[IMAGE])
        print("held", flush=True)
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
