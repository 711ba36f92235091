"""How long the first prompt in a real Pi waits for Python to start is a setting."""

from __future__ import annotations

import re
from pathlib import Path

from support.live_pi import at_start, live_home, texts
from support.model_server import say


def test_the_first_prompt_goes_on_after_the_time_of_the_settings(tmp_path: Path) -> None:
    """Python does not start before the test lets it, and the prompt is answered before that: Pi gave up after the one
    second that the installation wrote into the extension, and says so."""
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.host_settings(pi={"startSeconds": 1})
        home.install()
        go = home.root / "go"
        at_start(home, f"while not os.path.exists({str(go)!r}): time.sleep(0.05)")
        with home.rpc() as pi:
            pi.prompt("Hello.")
            told = pi.note("no answer to initialize")
            go.touch()
            # 1 s is left to ask in, or less when Pi stood still before it asked.
            assert re.search(r"\(no answer to initialize within (1|0(\.\d)?) s\)\. Pi goes on without it", told)
            assert texts(home.server.requests[0], "user") == ["Hello."]
            assert pi.errors() == []


def test_a_time_that_was_changed_after_the_installation_is_told_of(tmp_path: Path) -> None:
    """The extension still has the old one, which would be in force without a word."""
    with live_home(tmp_path, lambda _: say("Answer.")) as home:
        home.probe()
        home.install()
        home.host_settings(pi={"startSeconds": 20})
        with home.rpc() as pi:
            pi.prompt("Hello.")
            changed = "contexthost: the setting pi.startSeconds has changed; run `contexthost pi install` and /reload."
            assert pi.notes() == [changed]
