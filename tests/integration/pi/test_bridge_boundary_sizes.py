"""In the real Pi, whatever gets into the context behind the provider's last word counts with all its tokens: the
boundary that follows is asked when a number is reached, though the content has as many tokens as it has bytes."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import pytest

from contexthost.projection import ProjectionAuthority
from contexthost.session import Session
from support.live_pi import LivePi, PiHome, live_home
from support.model_server import Answer, Call, say

NUMBER = 4_000
TOLD = 1_000  # tokens of the context, whatever is in it, by the provider's word
WIDE = "\U00013000"  # 4 tokens, 4 bytes, 2 units of UTF-16
LARGE, SMALL = WIDE * 750, WIDE * 8
IMAGE = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PICTURE = {"type": "image", "data": IMAGE, "mimeType": "image/png"}  # 1,200 tokens

ADDS = """
export default function (pi: any) {
  let adds: any;
  pi.registerCommand("add", { handler: async (what: string) => { adds = JSON.parse(what); } });
  pi.on("turn_end", (event: any, ctx: any) => {
    const { send, ...draft } = adds ?? {};
    adds = undefined;
    if (send) pi.sendMessage(send, { triggerTurn: false });
    if (draft.type === "context_edit") draft.targetId = event.messageEntryId;
    if (draft.type === "compaction") draft.firstKeptEntryId = ctx.sessionManager.getBranch()[0].id;
    return draft.type ? { entries: [...event.entries, draft] } : undefined;
  });
}
"""


def note(content: Any) -> dict[str, Any]:
    return {"customType": "note", "content": content, "display": False}


@pytest.fixture(scope="module")
def pi(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """One Pi for all, whose provider always tells the same number, with an extension that adds what it is told to."""
    script: list[Answer] = []
    with live_home(tmp_path_factory.mktemp("pi"), lambda _: script.pop(0)) as home:
        home.settings(compaction={"enabled": False})
        home.probe(**{"from": {"turn_end": NUMBER, "agent_before_settle": NUMBER}})
        (home.install().parent / "another.ts").write_text(ADDS)
        with home.rpc() as running:
            running.slash("/probe entries")
            assert asked(running, script, "Hello.") == []
            yield running, script
            assert running.errors() == []


def asked(pi: LivePi, script: list[Answer], text: str, *calls: Call) -> list[str]:
    """Runs a prompt, with these calls or none; the boundaries that are asked."""
    usage = (TOLD - 10, 0, 10, 0)
    script += [*([Answer(calls=calls, usage=usage)] if calls else []), say("Answer.", usage=usage)]
    mark = len(pi.home.seen())
    pi.prompt(text)
    assert script == []
    return [one["hook"] for one in pi.home.seen()[mark:] if one["hook"] in ("turn_end", "agent_before_settle")]


def tokens(pi: LivePi, last: str = "") -> int:
    """The tokens of the context, as plugins are told, up to the last message of a role or with all of the session."""
    lines = pi.file.read_bytes().splitlines(keepends=True)
    roles = [json.loads(line).get("message", {}).get("role") for line in lines]
    count = len(roles) - roles[::-1].index(last) if last else len(lines)
    part = pi.home.root / "part.jsonl"
    part.write_bytes(b"".join(lines[:count]))
    return ProjectionAuthority(Session.open(part), window=128_000).snapshot().usage.tokens


def reads(home: PiHome, contents: Sequence[str | bytes]) -> list[Call]:
    """Calls that read files with these contents."""
    calls = []
    for number, content in enumerate(contents):
        name = f"{number}.txt" if isinstance(content, str) else f"{number}.png"
        (home.project / name).write_bytes(content.encode() if isinstance(content, str) else content)
        calls.append(Call("read", {"path": name}, f"call_{number}"))
    return calls


@pytest.mark.parametrize(
    ("large", "small"),
    [([LARGE], [SMALL]), ([LARGE[:300], LARGE[300:]], [SMALL, SMALL]), ([base64.b64decode(IMAGE)] * 3, [SMALL])],
    ids=["text", "texts", "pictures"],
)
def test_a_tools_results_count_when_the_turn_ends(pi: Any, large: list[Any], small: list[str]) -> None:
    running, script = pi
    assert asked(running, script, "Read.", *reads(running.home, small)) == []
    assert asked(running, script, "Read.", *reads(running.home, large)) == ["turn_end"]
    assert NUMBER <= tokens(running, "toolResult") < NUMBER + 700


@pytest.mark.parametrize(
    ("large", "small"),
    [
        ({"type": "custom_message", **note(LARGE)}, {"type": "custom_message", **note(SMALL)}),
        *(
            ({"type": "custom_message", **note(content)}, {"type": "custom_message", **note([])})
            for content in ([{"type": "text", "text": LARGE}], [PICTURE] * 3)
        ),
        ({"send": note(LARGE)}, {"send": note(SMALL)}),
        ({"send": note([{"type": "text", "text": LARGE}])}, {"type": "custom", "customType": "note", "data": LARGE}),
    ],
    ids=["text", "a list", "pictures", "sent", "sent as a list"],
)
def test_what_another_extension_adds_at_the_end_of_a_turn_counts_when_the_run_settles(
    pi: Any, large: Any, small: Any
) -> None:
    running, script = pi
    running.slash(f"/add {json.dumps(small)}")
    assert asked(running, script, "Hello.") == []
    running.slash(f"/add {json.dumps(large)}")
    assert asked(running, script, "Hello.") == ["agent_before_settle"]
    assert NUMBER <= tokens(running) < NUMBER + 700


@pytest.mark.parametrize(
    "draft",
    [
        {"type": "context_edit", "replacement": {"content": "Changed."}},
        {"type": "compaction", "summary": "Nothing is left out."},
    ],
    ids=["an edit", "a compaction"],
)
def test_nobody_knows_behind_a_change_of_the_context_what_the_provider_would_say(pi: Any, draft: Any) -> None:
    """It has told less than plugins are told, who must count themselves then."""
    running, script = pi
    assert asked(running, script, f"Hello. {LARGE}{LARGE}") == []
    assert tokens(running) == TOLD
    running.slash(f"/add {json.dumps(draft)}")
    assert asked(running, script, "Hello.") == ["agent_before_settle"]
    assert tokens(running) > NUMBER
    assert asked(running, script, "Hello.") == []
