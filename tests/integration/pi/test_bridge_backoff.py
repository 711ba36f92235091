"""When the Python side of the real Pi is started again: after each death later than after the one before, up to a
limit; anew after a minute of health; at once for a tool. By a clock that the test sets, and once by the real one."""

from __future__ import annotations

import itertools
import os
import signal
from pathlib import Path

from support.live_pi import LivePi, PiHome, at_start, change_extension, live_home, texts
from support.model_server import Answer, Received, call, say

DIES, LIVES = "os._exit(3)", ""
NOW = "const now = () => performance.now();"


def answer(request: Received) -> Answer:
    """Calls the plugin's tool when the last message asks for it."""
    if request.body["messages"][-1]["role"] == "user" and texts(request, "user")[-1] == "use the tool":
        return call("probe_look", {"what": "you"})
    return say("Answer.")


class Watched:
    """An installed extension that notes by its clock when it starts the Python side and when it knows of its death."""

    def __init__(self, home: PiHome) -> None:
        self._clock = home.root / "clock"
        self._notes = {"starts": home.root / "starts", "deaths": home.root / "deaths"}
        for path in self._notes.values():
            path.touch()
        model = {"id": "faux-1", "contextWindow": 128_000, "maxTokens": 1000}
        home.provider("faux", model, {**model, "id": "faux-2"}, apiKey="x")
        home.probe()
        home.install()
        change_extension(home, NOW, f'import {{ appendFileSync, readFileSync }} from "node:fs";\n{NOW}')
        self._note(home, "starts", "now()", before="this.child = spawn(")
        # The note comes behind its look at the clock for the next start: whoever reads the note may set the clock.
        change_extension(home, "const lived = ", "const died = now();\n    const lived = ")
        self._note(home, "deaths", "died", before="this.served.stopped();")
        self._home = home
        self._models = itertools.cycle(["faux-2", "faux-1"])

    def _note(self, home: PiHome, what: str, moment: str, *, before: str) -> None:
        note = f"appendFileSync({str(self._notes[what])!r}, `${{{moment}}}\\n`);"
        change_extension(home, before, f"{note}\n    {before}")

    def set_clock(self, milliseconds: int) -> None:
        """From the first time on it is the extension's clock."""
        new = self._clock.with_suffix(".new")
        new.write_text(str(milliseconds))
        if not self._clock.exists():
            clock = f"const now = () => Number(readFileSync({str(self._clock)!r}, 'utf8'));"
            change_extension(self._home, NOW, clock)
        new.rename(self._clock)

    def moments(self, what: str) -> list[float]:
        """The ``starts``, or the ``deaths``."""
        return [float(line) for line in self._notes[what].read_text().splitlines()]

    def event(self, pi: LivePi) -> None:
        """Something happens in Pi that plugins are told of, and that needs no answer."""
        assert pi.ask("set_model", provider="faux", modelId=next(self._models))["success"]

    def dead(self, pi: LivePi) -> None:
        """Waits until Pi has started it, and knows of the last one's death."""
        pi.until(lambda: 0 < len(self.moments("starts")) == len(self.moments("deaths")), "the death of the Python side")

    def kill(self, pi: LivePi) -> None:
        """Kills it."""
        python = pi.python_side()
        assert python is not None
        os.kill(python, signal.SIGKILL)
        self.dead(pi)


def test_each_death_makes_the_next_start_later_up_to_five_minutes(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        watched = Watched(home)
        watched.set_clock(0)
        at_start(home, DIES)
        with home.rpc() as pi:
            watched.dead(pi)
            moments = [0]
            for seconds in (1, 4, 16, 64, 256, 300, 300):
                due = moments[-1] + seconds * 1000
                for moment in (due - 1, due):
                    watched.set_clock(moment)
                    watched.event(pi)
                    moments += [moment] if moment == due else []
                    assert watched.moments("starts") == moments
                watched.dead(pi)
            assert watched.moments("deaths") == moments
            assert pi.errors() == []


def test_a_minute_of_health_starts_that_anew_and_a_tool_waits_for_no_moment(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        watched = Watched(home)
        watched.set_clock(0)
        with home.rpc() as pi:
            pi.slash("/probe entries")
            for moment in (10, 20):  # two deaths: the next start is 4 s after the second
                watched.set_clock(moment)
                watched.kill(pi)
                pi.slash("/probe entries")  # a command starts it before its time
            assert watched.moments("starts") == [0, 10, 20]

            # A minute is not more than a minute: the third death, hence 16 s.
            watched.set_clock(60_020)
            watched.kill(pi)
            watched.set_clock(76_019)
            watched.event(pi)
            assert len(watched.moments("starts")) == 3
            watched.set_clock(76_020)
            watched.event(pi)
            assert watched.moments("starts")[3:] == [76_020]
            assert pi.slash("/probe entries").startswith("probe: ")  # waits for it

            watched.set_clock(76_020 + 60_001)
            watched.kill(pi)
            watched.set_clock(137_020)
            watched.event(pi)
            assert len(watched.moments("starts")) == 4
            watched.set_clock(137_021)
            watched.event(pi)
            assert watched.moments("starts")[4:] == [137_021]
            assert pi.slash("/probe entries").startswith("probe: ")

            watched.kill(pi)
            pi.prompt("use the tool")
            assert texts(home.server.requests[-1], "tool")[-1].startswith("looked at you among ")
            assert watched.moments("starts")[5:] == [137_021]

            # A start that somebody asked for, and that fails, counts as one more: 64 s after it.
            watched.kill(pi)
            at_start(home, DIES)
            assert "is not running" in pi.slash("/probe entries")
            watched.dead(pi)
            assert watched.moments("starts")[6:] == [137_021]
            at_start(home, LIVES)
            for moment, count in ((201_020, 7), (201_021, 8)):
                watched.set_clock(moment)
                watched.event(pi)
                assert len(watched.moments("starts")) == count
            assert pi.errors() == []


def test_by_the_real_clock_no_start_comes_before_its_time(tmp_path: Path) -> None:
    with live_home(tmp_path, answer) as home:
        watched = Watched(home)
        shortened = "first: 300, factor: 2, longest: 1000,"
        change_extension(home, "first: 1000, factor: 4, longest: 300_000,", shortened)
        at_start(home, DIES)
        with home.rpc() as pi:

            def poked_until_five() -> bool:
                watched.event(pi)
                return len(watched.moments("starts")) >= 5

            pi.until(poked_until_five, "five starts")
            watched.dead(pi)
            starts, deaths = watched.moments("starts"), watched.moments("deaths")
            waits = [start - death for start, death in zip(starts[1:], deaths, strict=False)]
            assert [wait >= least for wait, least in zip(waits, (300, 600, 1000, 1000), strict=True)] == [True] * 4
            assert len(pi.notes()) == 1
            assert pi.errors() == []
