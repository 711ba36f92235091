"""Values of plugins that could not be sent or kept: they count as none in a live session, and their plugin is named."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pytest

from contexthost import Command, Tool, ToolResult, hookimpl
from contexthost.context import AbortSignal, Context, ModelRequest
from contexthost.errors import PluginError
from contexthost.events import BeforeProviderHeadersEvent, InputEvent, Transform
from contexthost.host import Host
from contexthost.messages import Message
from contexthost.models.scripted import Reply, ScriptedCall, ScriptedModel
from contexthost.watch import Notified
from support.live import run

IMAGE = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
IMAGES: list[tuple[Any, str]] = [
    ([5], "an image is not an object"),
    ([{"type": "image"}], "type image without data"),
    ([{**IMAGE, "mimeType": None}], "type image without mimeType"),
    ([{"type": "text", "text": "x"}], "an image is not an object"),
    ({"type": "image"}, "its images are no list"),
]


class Half:
    """Gives what the test wants it to give."""

    plugin_name = "half"

    def __init__(self, value: Any) -> None:
        self.value = value
        self.error: Exception | None = None

    async def _tool(self, arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
        made: ToolResult = self.value
        return made

    @hookimpl
    def register_tools(self) -> list[Tool]:
        return [Tool(name="half", description="half", parameters={"type": "object"}, handler=self._tool)]

    async def _send(self, arguments: str, ctx: Context) -> None:
        try:
            ctx.send_user_message("sent", self.value)
        except PluginError as error:
            self.error = error

    @hookimpl
    def register_commands(self) -> list[Command]:
        return [Command(name="half", description="half", handler=self._send)]

    @hookimpl(specname="input")
    def on_input(self, event: InputEvent) -> Transform | None:
        return self.value if isinstance(self.value, Transform) else None

    @hookimpl
    def before_provider_headers(self, event: BeforeProviderHeadersEvent) -> Any:
        return self.value if isinstance(self.value, dict) else None


class Next:
    """Is asked after the other."""

    plugin_name = "next"

    @hookimpl(specname="input")
    def on_input(self, event: InputEvent) -> Transform:
        return Transform(f"{event.text}, seen")

    @hookimpl
    def before_provider_headers(self, event: BeforeProviderHeadersEvent) -> Mapping[str, str]:
        return {"X-Next": "1"}


class Sending(ScriptedModel):
    """Asks for the headers of each request, as models over HTTP do."""

    headers: Mapping[str, str | None]

    async def respond(self, request: ModelRequest, signal: AbortSignal) -> Message:
        assert request.prepare_headers is not None
        self.headers = await request.prepare_headers({"x-y": "first"})
        return await super().respond(request, signal)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def opened(value: Any, model: ScriptedModel) -> tuple[Host, Half, list[str]]:
    """A live session with both plugins, and what it tells."""
    half, told = Half(value), []
    host = Host.open(model=model, plugins=[half, Next()], installed_plugins=False)
    host.watch(lambda event: told.append(event.message) if isinstance(event, Notified) else None)
    return host, half, told


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (ToolResult([{"type": "text"}]), "a block of the type text without text"),
        (ToolResult([{"type": "text", "text": 5}]), "a block of the type text without text"),
        (ToolResult(["a"]), "a content block is not an object with a type"),  # type: ignore[list-item]
        (ToolResult([{"text": "x"}]), "a content block is not an object with a type"),
        (ToolResult([{**IMAGE, "data": None}]), "a block of the type image without data"),
        (ToolResult("x", details=["a"]), "its details are not an object"),  # type: ignore[arg-type]
        ("x", "a str, not a ToolResult"),
        (ToolResult("x", details={"deep": nested(1_100)}), "it is nested more than a thousand deep"),
    ],
    ids=range(8),
)
def test_a_tool_result_that_is_half_there_is_an_error_that_names_the_plugin(value: Any, problem: str) -> None:
    """And not what every later request holds."""

    async def test() -> None:
        host, _, _ = opened(value, ScriptedModel([Reply(calls=[ScriptedCall("half")]), "done"]))
        async with host:
            await host.prompt("go")
            [result] = [entry.message for entry in host.session.entries if entry.role == "toolResult"]
            assert result is not None
            text = f"Tool half of plugin half gave a result that cannot be used: {problem}"
            assert (result["content"], result["isError"]) == ([{"type": "text", "text": text}], True)
            assert host.session.entries[-1].role == "assistant"

    run(test)


def test_a_result_of_the_programs_own_tool_names_no_plugin() -> None:
    """It belongs to none."""

    async def test() -> None:
        async def half(arguments: Mapping[str, Any], ctx: Context) -> ToolResult:
            return ToolResult([{"type": "text"}])

        own = Tool(name="own", description="own", parameters={"type": "object"}, handler=half)
        model = ScriptedModel([Reply(calls=[ScriptedCall("own")]), "done"])
        async with Host.open(model=model, tools=[own], installed_plugins=False) as host:
            await host.prompt("go")
            [result] = [entry.message for entry in host.session.entries if entry.role == "toolResult"]
            assert result is not None
            text = "Tool own gave a result that cannot be used: a block of the type text without text"
            assert result["content"] == [{"type": "text", "text": text}]

    run(test)


def test_blocks_and_details_of_any_mapping_are_kept() -> None:
    """`ToolResult` takes mappings; what is kept is plain."""

    async def test() -> None:
        block, details = MappingProxyType(IMAGE), MappingProxyType({"n": 1})
        value = ToolResult((block,), details=details)
        host, _, _ = opened(value, ScriptedModel([Reply(calls=[ScriptedCall("half")]), "done"]))
        async with host:
            await host.prompt("go")
            [result] = [entry.message for entry in host.session.entries if entry.role == "toolResult"]
            assert result is not None
            assert (result["content"], result["details"], result["isError"]) == ([IMAGE], {"n": 1}, False)

    run(test)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        *((Transform("changed", images=images), problem) for images, problem in IMAGES),
        (Transform(5), "its text is none"),  # type: ignore[arg-type]
    ],
    ids=range(6),
)
def test_an_input_that_nobody_can_send_is_not_made_of_another(value: Any, problem: str) -> None:
    """The plugin is named, the next one still sees the input, and it is sent."""

    async def test() -> None:
        host, _, told = opened(value, ScriptedModel(["done"]))
        async with host:
            await host.prompt("go", images=[IMAGE])
            [user] = [entry.message for entry in host.session.entries if entry.role == "user"]
            assert user is not None
            assert user["content"] == [{"type": "text", "text": "go, seen"}, IMAGE]
            [text] = told
            assert problem in text
            assert "plugin half, hook input: its answer cannot be used" in text

    run(test)


@pytest.mark.parametrize(("images", "problem"), IMAGES, ids=range(5))
def test_a_message_with_half_an_image_is_refused_where_the_plugin_sends_it(images: Any, problem: str) -> None:
    """By an error that says what is wrong; nothing is sent."""

    async def test() -> None:
        host, half, _ = opened(images, ScriptedModel(["done"]))
        async with host:
            await host.prompt("/half")
            assert str(half.error).startswith("half: this message cannot be sent: ")
            assert problem in str(half.error)
            assert [entry for entry in host.session.entries if entry.role == "user"] == []

    run(test)


SECRET = "sk-hidden"
REFUSED = "its answer cannot be used: the "


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ({"x-y": f"{SECRET}\nb"}, "value of the header x-y is not one that HTTP allows"),
        ({"x-y": f"{SECRET}\0"}, "value of the header x-y is not one that HTTP allows"),
        ({"x-y": f"{SECRET}€"}, "value of the header x-y is not one that HTTP allows"),
        ({"x-y": 5}, "value of the header x-y is not one that HTTP allows"),
        ({"x y": SECRET}, "name of a header is not one that HTTP allows"),
        ({f"x-y: {SECRET}": "v"}, "name of a header is not one that HTTP allows"),
        ({"x-z": "fine", 5: SECRET}, "name of a header is not one that HTTP allows"),
        ({"Content-Length": SECRET}, "header Content-Length is for who sends the request to set"),
    ],
    ids=range(8),
)
def test_headers_that_http_does_not_allow_are_left_out_and_not_shown(
    headers: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All of that plugin's, none of the next one's; neither what is told nor the log has the value."""

    async def test() -> None:
        model = Sending(["done"])
        host, _, told = opened(headers, model)
        async with host:
            await host.prompt("go")
            assert model.headers == {"x-y": "first", "X-Next": "1"}
            [text] = told
            assert "plugin half, hook before_provider_headers" in text
            assert text.endswith(f"{REFUSED}{problem}")
            assert SECRET not in text + caplog.text

    run(test)


def test_headers_may_hold_what_http_allows_and_be_taken_away() -> None:
    """Names of all characters of a token, values of Latin-1 with tabs, and None."""

    async def test() -> None:
        headers = {"X-Y": None, "x-empty": "", "x!#$%&'*+-.^_`|~9": "a\tb ~", "x-latin": "café"}
        model = Sending(["done"])
        host, _, told = opened(headers, model)
        async with host:
            await host.prompt("go")
            assert model.headers == {**headers, "X-Next": "1"}
            assert told == []

    run(test)
