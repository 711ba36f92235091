"""The plugin of the tutorial in the real Pi: its command and the prefix set bookmarks, its tool tells the model of
them, and Pi shows its status."""

from __future__ import annotations

from pathlib import Path

from support.live_pi import custom, live_home, texts
from support.model_server import call, say

SOURCE = Path(__file__).parents[1] / "example_plugin" / "src" / "contexthost_bookmarks" / "__init__.py"


def test_bookmarks_are_set_by_command_and_by_prefix_and_reach_the_model(tmp_path: Path) -> None:
    script = [say("Noted."), call("list_bookmarks", {}), say("You marked two.")]
    with live_home(tmp_path, script) as home:
        home.plugin(SOURCE.read_text(), "bookmarks")
        home.install()
        with home.rpc() as pi:
            pi.prompt("remember: never deploy on a Friday")
            pi.event(
                "extension_ui_request",
                method="setStatus",
                statusKey="contexthost-bookmarks",
                statusText="bookmarks: 1",
            )
            assert pi.slash("/bookmark the answer").endswith(" is bookmarked as the answer")
            pi.until(lambda: len(custom(pi.entries(), "bookmarks:bookmark")) == 2, "the second bookmark")
            marked = custom(pi.entries(), "bookmarks:bookmark")
            pi.prompt("What did I mark?")
            (told,) = texts(home.server.requests[2], "tool")
            assert told.splitlines() == [
                f"- never deploy on a Friday [{marked[0]['entryId']}], in context: remember: never deploy on a Friday",
                f"- the answer [{marked[1]['entryId']}], in context: Noted.",
            ]
            assert len(custom(pi.entries(), "bookmarks:bookmark")) == 2
            assert pi.errors() == []
        assert home.server.problems == []
