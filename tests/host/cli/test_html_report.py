"""``contexthost context --html``: the page's figures are those of ``--json``, its picture ends where the context stands
and shows what masks and compactions did, nothing in a session becomes markup or is loaded from anywhere, no file is
replaced unasked, and Chromium shows it without errors, by keyboard, and without sideways scrolling on a phone."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from contexthost.cli import main
from contexthost.context import Context
from contexthost.estimates import Estimate, Prices
from contexthost.events import ContextEstimatesEvent
from contexthost.hookspecs import hookimpl
from contexthost.projection import MASK_PREFIX, ContextEditDraft, ProjectionAuthority
from contexthost.projection.breakdown import breakdown
from contexthost.projection.timeline import timeline
from contexthost.session import Session
from support.builder import SessionBuilder, tool_call, usage_of
from support.sessions import random_session

DEMO = (files("contexthost.data") / "demo.jsonl").read_bytes()
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
VOID = {"meta", "line", "polygon", "br", "link", "img", "input", "hr"}


class Characters:
    """One token a character."""

    def count(self, text: str) -> int:
        return len(text)


class Page(HTMLParser):
    """Elements with their attributes and text; complains about tags that do not match."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.ids: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        assert len(given) == len(attrs), f"an attribute twice: {tag} {attrs}"
        self.elements.append((tag, given))
        if "id" in given:
            self.ids.append(given["id"])
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.texts.append(data)

    def figures(self, name: str) -> list[dict[str, str]]:
        return [given for _, given in self.elements if given.get("data-figure") == name]

    def values(self, name: str) -> list[int]:
        return [int(given["data-value"]) for given in self.figures(name)]

    def with_class(self, name: str) -> list[dict[str, str]]:
        return [given for _, given in self.elements if name in given.get("class", "").split()]

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(autouse=True)
def _own_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTEXTHOST_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PI_CODING_AGENT_DIR", str(tmp_path / "pi"))


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[object, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return ended.value.code, out, err


def report(capsys: pytest.CaptureFixture[str], session: Path, target: Path, *options: str) -> str:
    """The page's HTML; the session file is as it was."""
    before = session.read_bytes()
    status, out, err = run(capsys, "context", session, "--html", target, *options)
    assert (status, err) == (0, "")
    assert out.startswith("Wrote ")
    assert session.read_bytes() == before
    return target.read_text(encoding="utf-8")


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    path = tmp_path / "demo.jsonl"
    path.write_bytes(DEMO)
    return path


def masked_and_compacted(path: Path) -> Path:
    """Two results, of which one is masked; a compaction that keeps the second; then one more message."""
    build = SessionBuilder()
    build.user("first question")
    for name in ("one", "two"):
        build.assistant(calls=[tool_call(name, "read", {"path": f"{name}.py"})], usage=usage_of(500))
        result = build.tool_result(name, f"{name} " * 600)
        if name == "one":
            build.edit(result, f"{MASK_PREFIX}read result")
            kept = build.user("second question")
    build.compaction("what was done", kept)
    build.user("third question")
    return build.write(path)


# Figures -------------------------------------------------------------------------------------------------------------


def test_the_figures_are_those_of_json(capsys: pytest.CaptureFixture[str], demo: Path, tmp_path: Path) -> None:
    _, out, _ = run(capsys, "context", demo, "--json")
    told = json.loads(out)
    page = Page(report(capsys, demo, tmp_path / "page.html"))
    assert page.values("usage") == [told["usage"]["tokens"]]
    assert page.values("category") == [one["tokens"] for one in told["categories"]]
    assert page.values("total") == [told["tokens"]]
    largest = [(one["data-entry"], int(one["data-value"])) for one in page.figures("largest")]
    assert largest == [(one["entryId"], one["tokens"]) for one in told["largest"]]
    assert page.values("masked") == [told["maskedResults"]]
    # The picture ends where the context stands now.
    assert int(page.with_class("point")[-1]["data-total"]) == told["tokens"]
    assert len(page.ids) == len(set(page.ids))


def test_the_what_if_table_says_what_the_commands_say(
    capsys: pytest.CaptureFixture[str], demo: Path, tmp_path: Path
) -> None:
    masks = json.loads(run(capsys, "mask", demo, "--dry-run", "--json")[1])
    relayed = json.loads(run(capsys, "relay", demo, "--dry-run", "--json")[1])
    page = Page(report(capsys, demo, tmp_path / "page.html"))
    rows = {(one["data-by"], int(one["data-value"])) for one in page.figures("what-if")}
    assert ("masking", masks["tokensAfter"]) in rows
    by = {plugin: tokens for plugin, tokens in rows if plugin}
    assert by.keys() == {"relay", "jev", "masking"}
    # The note names the time and the repository's commits: it may differ by some tokens.
    assert abs(by["relay"] - relayed["tokensAfter"]) < 200
    assert by["jev"] < masks["tokensBefore"]
    assert len(page.figures("what-if")) == 5  # and: as it is, the built-in summary
    assert "$0.30 per million tokens read, $3.75 written anew" in page.text


def test_below_its_trigger_masking_says_what_all_that_may_go_would_free(
    capsys: pytest.CaptureFixture[str], demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTEXTHOST_MASKING__MASK__TRIGGERTOKENS", "199000")
    monkeypatch.setenv("CONTEXTHOST_MASKING__MASK__TRIGGERRATIO", "1")
    assert not json.loads(run(capsys, "mask", demo, "--dry-run", "--json")[1])["results"]
    page = Page(report(capsys, demo, tmp_path / "page.html"))
    assert "Not yet: usage is 156,967 tokens, masking starts at 199,000. This masks all " in page.text
    assert "contexthost mask " not in page.text
    (tokens,) = (int(one["data-value"]) for one in page.figures("what-if") if one["data-by"] == "masking")
    assert tokens < page.values("total")[0] / 2


def test_masks_and_compactions_are_marked_and_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    session = masked_and_compacted(tmp_path / "session.jsonl")
    page = Page(report(capsys, session, tmp_path / "page.html"))
    assert [mark["data-kind"] for mark in page.with_class("mark")] == ["masks", "compaction"]
    assert "turn 1: 1 result masked, " in page.text
    assert "turn 2: compaction, " in page.text
    # Away: the first question, the first call and its result; that result came with 600 words and more.
    assert page.values("compacted") == [3]
    assert page.values("masked") == [0]


def test_what_a_plugin_answers_is_a_row_with_money(
    capsys: pytest.CaptureFixture[str], demo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Halver:
        plugin_name = "halver"

        @hookimpl(tryfirst=True)
        def context_estimates(self, event: ContextEstimatesEvent, ctx: Context) -> Estimate:
            tokens = event.snapshot.tokens - 50_000
            prices = Prices(read=2.0, write=10.0)
            return Estimate(what="take <50,000> away", tokens_after=tokens, rewritten_tokens=25_000, prices=prices)

    from contexthost.plugins import PluginManager

    load = PluginManager.load

    def with_halver(self: PluginManager, **options: object) -> None:
        load(self, disabled=["relay", "jev", "masking", "codex_native"], extra=[Halver()])

    monkeypatch.setattr(PluginManager, "load", with_halver)
    page = Page(report(capsys, demo, tmp_path / "page.html"))
    assert [one["data-by"] for one in page.figures("what-if")] == ["", "halver", ""]
    assert "take <50,000> away" in page.text
    # Once 25,000 tokens at 10 - 2 dollars a million; each turn 50,000 at 2 dollars less: paid back after 2 turns.
    assert "$0.2000 once for the cache, paid back after 2.0 turns" in page.text
    assert "pip install contexthost-masking" in page.text


# The timeline --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_the_timeline_of_any_session_ends_at_the_breakdown_and_never_strays(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(random_session(seed, size=40))
    with Session.open(path) as session:
        authority = ProjectionAuthority(session, counter=Characters())
        snapshot = authority.snapshot()
        life = timeline(snapshot, points=1_000)
        if not snapshot.branch:
            return
        sums: dict[str, int] = {}
        for one in breakdown(snapshot).categories:
            sums[one.name] = sums.get(one.name, 0) + one.tokens
        assert life.points[-1].tokens == {name: tokens for name, tokens in sums.items() if tokens}
        branch = snapshot.branch
        for point in life.points[:: max(1, len(life.points) // 8)]:
            assert point.total == authority.at(branch[point.position - 1].id).tokens


def test_a_batch_of_masks_is_one_change_with_the_figures_before_and_after() -> None:
    build = SessionBuilder()
    build.user("q" * 10)
    results = []
    for name in "abc":
        build.assistant(calls=[tool_call(name, "read", {})])
        results.append(build.tool_result(name, "x" * 1_000))
    session = Session.in_memory(
        entries=[json.loads(line) for line in build.bytes().splitlines()[1:]],
    )
    authority = ProjectionAuthority(session, counter=Characters())
    before = authority.snapshot().tokens
    mask = {"content": f"{MASK_PREFIX}x"}
    after = authority.commit([ContextEditDraft(target_id=one, replacement=mask) for one in results]).tokens
    life = timeline(authority.snapshot())
    (change,) = life.changes
    assert (change.kind, change.count, change.before, change.after) == ("masks", 3, before, after)
    assert life.points[-1].total == after
    assert life.peak == before


def test_a_session_made_of_compactions_is_given_up_on_rather_than_followed() -> None:
    build = SessionBuilder()
    first = build.user("q")
    for _ in range(1_500):
        build.compaction("s", first)
    session = Session.in_memory(entries=[json.loads(line) for line in build.bytes().splitlines()[1:]])
    snapshot = ProjectionAuthority(session, counter=Characters()).snapshot()
    life = timeline(snapshot)
    assert not life.complete
    assert life.points[-1].total == snapshot.tokens


# Hostile content -----------------------------------------------------------------------------------------------------

HOSTILE = (
    "</script><script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "' onmouseover='alert(1)", "<!--", "]]>",
    "&lt;b&gt;&amp;", "\x1b]0;title\x07\x1b[31mred", "\u202egnirts\u2066", "\x00\x01\x7f\x9b31m", "\ud800",
    "javascript:alert(1)", "http://tracker.example/x.png", "</style><style>*{display:none}", "{{7*7}}",
    "<svg/onload=alert(1)>",
)  # fmt: skip


def hostile(path: Path) -> Path:
    everything = "".join(HOSTILE)
    build = SessionBuilder(header={"id": "evil" + everything}, cwd=everything)
    build.entry("session_info", name=everything)
    build.system(everything, tools_added=[{"name": everything, "description": everything, "parameters": {}}])
    build.user(everything)
    for text in HOSTILE:
        call = tool_call(text, text, {"path": text, "command": text})
        build.assistant(text, calls=[call], provider=text, model=text, usage=usage_of(10**9))
        build.tool_result(text, text * 50, tool=text)
    build.bash(everything, everything)
    build.custom_message(everything, everything)
    target = build.user("x " * 3000)
    build.edit(target, f"{MASK_PREFIX}{everything}")
    build.entry("message", id=everything, timestamp=everything, message={"role": "user", "content": everything * 400})
    return build.write(path)


def test_nothing_in_a_session_becomes_markup(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    html = report(capsys, hostile(tmp_path / "evil.jsonl"), tmp_path / "page.html")
    page = Page(html)  # all tags match
    (tmp_path / "plain.jsonl").write_bytes(DEMO)
    plain = Page(report(capsys, tmp_path / "plain.jsonl", tmp_path / "plain.html"))
    assert {tag for tag, _ in page.elements} <= {tag for tag, _ in plain.elements}
    known = {name for _, given in plain.elements for name in given}
    assert {name for _, given in page.elements for name in given} <= known
    assert [tag for tag, _ in page.elements].count("script") == 1
    assert [tag for tag, _ in page.elements].count("style") == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", html)
    assert "<svg/onload=alert(1)>" in page.text  # as text


def test_the_page_loads_nothing_and_its_policy_forbids_it(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = Page(report(capsys, hostile(tmp_path / "evil.jsonl"), tmp_path / "page.html"))
    names = {name for _, given in page.elements for name in given}
    assert not names & {"src", "href", "srcset", "action", "data", "poster", "background", "xlink:href"}
    assert not {tag for tag, _ in page.elements} & {"link", "img", "iframe", "object", "embed", "base", "form", "a"}
    for style in [given["style"] for _, given in page.elements if "style" in given]:
        assert re.fullmatch(r"(left|top|width|flex-grow):[\d.]+%?(;width:[\d.]+%)?", style)
    (policy,) = [given["content"] for _, given in page.elements if "Policy" in given.get("http-equiv", "")]
    assert policy.startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")
    css = (files("contexthost.cli.report") / "page.css").read_text()
    assert "url(" not in css
    assert "@import" not in css


# Files ---------------------------------------------------------------------------------------------------------------


def test_an_existing_file_is_replaced_only_with_force(
    capsys: pytest.CaptureFixture[str], demo: Path, tmp_path: Path
) -> None:
    target = tmp_path / "page.html"
    target.write_text("mine")
    status, _, err = run(capsys, "context", demo, "--html", target)
    assert (status, err) == (1, f"Error: {target}: exists already; --force replaces it\n")
    assert target.read_text() == "mine"
    assert report(capsys, demo, target, "--force").startswith("<!DOCTYPE html>")
    assert target.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


@pytest.mark.parametrize("link", [False, True], ids=["itself", "through a link"])
def test_the_session_is_never_replaced(
    capsys: pytest.CaptureFixture[str], demo: Path, tmp_path: Path, link: bool
) -> None:
    target = demo
    if link:
        target = tmp_path / "link.html"
        target.symlink_to(demo)
    status, _, err = run(capsys, "context", demo, "--html", target, "--force")
    assert status == 1
    assert "that is the session itself" in err
    assert demo.read_bytes() == DEMO


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--html", "no/such/page.html"], "there is no directory no/such"),
        (["--html", "directory", "--force"], "is no regular file"),
        (["--force"], "--force is for --html"),
        (["--json", "--html", "page.html"], "give one of them"),
    ],
)
def test_what_cannot_be_is_told(
    capsys: pytest.CaptureFixture[str],
    demo: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "directory").mkdir()
    status, _, err = run(capsys, "context", demo, *options)
    assert status in (1, 2)
    assert told in err


# In a browser --------------------------------------------------------------------------------------------------------

# Runs in a copy of the page without its policy: errors, the widths, and what the keys do, told to the page around it,
# which is there because a window of Chromium is at least 500 pixels wide, a frame is not.
PROBE = """<script>
var errors = [];
window.addEventListener("error", function (event) { errors.push(event.message); });
</script>"""
ACT = """<script>
var points = document.querySelectorAll(".point"), tip = document.getElementById("tip");
var stops = Array.prototype.filter.call(points, function (point) { return point.tabIndex === 0; }).length;
function press(key) {
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key: key, bubbles: true, cancelable: true }));
}
points[points.length - 1].focus();
var last = tip.querySelector("b").textContent;
press("Home");
var first = document.activeElement === points[0] && !tip.hidden;
press("ArrowRight"); press("ArrowRight"); press("ArrowLeft");
var second = document.activeElement === points[1];
press("Escape");
document.querySelector("details").open = true;
parent.postMessage(JSON.stringify({
  errors: errors, stops: stops, last: last, first: first, second: second, hidden: tip.hidden,
  wide: Math.max(document.documentElement.scrollWidth, document.body.scrollWidth) - window.innerWidth,
  width: window.innerWidth
}), "*");
</script>"""
FRAME = """<!DOCTYPE html><title></title>
<script>window.addEventListener("message", function (event) { document.title = event.data; });</script>
<iframe src="probe.html" width="{width}" height="800" style="border:0"></iframe>"""
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--virtual-time-budget=5000",
)  # fmt: skip


def looked_at(page: Path, directory: Path, width: int) -> dict[str, object]:
    assert CHROMIUM is not None
    directory.mkdir()
    html = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', PROBE, page.read_text(encoding="utf-8"), count=1)
    copy = directory / "probe.html"
    copy.write_text(html.replace("</body>", f"{ACT}</body>"), encoding="utf-8")
    frame = directory / "frame.html"
    frame.write_text(FRAME.replace("{width}", str(width)), encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={directory / 'profile'}", "--dump-dom", frame.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    title = re.search(r"<title>(.*?)</title>", done.stdout, re.S)
    assert title is not None
    assert title[1] != "", "the page's script did not come to its end"
    seen: dict[str, object] = json.loads(unescape(title[1]))
    return seen


def test_chromium_shows_it_by_keyboard_and_on_a_phone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (apt-get install chromium)")
    for name, session in (
        ("plain", masked_and_compacted(tmp_path / "plain.jsonl")),
        ("evil", hostile(tmp_path / "evil.jsonl")),
    ):
        page = tmp_path / f"{name}.html"
        parsed = Page(report(capsys, session, page))
        total = int(parsed.with_class("point")[-1]["data-total"])
        seen = looked_at(page, tmp_path / name, 360)
        assert seen["errors"] == []
        assert seen["width"] == 360
        assert seen["wide"] == 0
        assert seen["last"] == f"{total:,} tokens"
        assert (seen["stops"], seen["first"], seen["second"], seen["hidden"]) == (1, True, True, True)
