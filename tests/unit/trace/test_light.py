"""`trace fsync --light` without a kernel."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from support.fake_host import FakeHost, FakeSession, FakeStop, args_of
from support.samples import from_values

from zfstrace.light import CommitCounts, Sample, SlowCommit, Window
from zfstrace.stages import NAMES
from zfstrace.types import LightOptions, Losses
from zfstune.errors import UsageError
from zfstune.term.units import MS, SECOND
from zfstune.trace import fsync, light
from zfstune.trace.live import Run

WHO = SlowCommit(1500 * MS, 12, "postgres")


def args(**given: Any) -> Any:
    defaults = {"light": True, "every": None, "window": None, "over": None}
    return args_of(**(defaults | given))


def db(*times: int) -> CommitCounts:
    hist = from_values(times)
    return CommitCounts("tank", 68, (0, 0), False, hist, hist, hist)


def window(cause: SlowCommit | None = None, lost: int = 0, **ns: int) -> Window:
    stages = tuple(ns.get(name, 0) for name in NAMES)
    sample = Sample("tank", 68, (0, 0), False, 30, stages)
    return Window("2026-11-26T11:59:58.000Z", 2 * SECOND, (sample,), cause, lost)


def run(*states: Any, **options: Any) -> str:
    out = io.StringIO()
    session = FakeSession([*states], losses=Losses(start=1))
    host = FakeHost()
    host.sessions["light"] = session
    given = args(**({"duration": 10 * SECOND, "pool": "tank"} | options))
    light.trace(Run(given, light.options_of(given), host, out, FakeStop()))
    assert session.closed
    return out.getvalue()


def state(windows: list[Window], kept: list[Window] | None = None) -> Any:
    return [db(*[5 * MS] * 99, 90 * MS)], windows, kept or []


def test_commits_are_exact_and_stages_about() -> None:
    windows = [window(flush=70, log_write=30), window(flush=90, log_write=10, issue=0)]
    text = run(state(windows))
    lines = text.splitlines()
    assert max(map(len, lines)) < 100
    assert lines[:2] == ["tank/db", "  100 commits in 10.0 s, 10.0/s"]
    assert lines[4].split()[:4] == ["commit", "100", "5.85", "ms"]
    words = [line.split() for line in lines]
    assert ["stage", "about", "from", "to"] in words
    (flush,) = (one for one in words if one[:1] == ["flush"])
    assert flush[1] == "80%" and flush[-2:] == ["0%", "100%"]
    assert "estimated from 60 fsyncs in 2 windows" in text
    assert not [one for one in words if one[:1] == ["issue"]]
    assert "lost 1 " in text


def test_without_a_window_nothing_is_estimated() -> None:
    assert "stages: not estimated yet, from 0 windows" in run(state([]))
    assert "from 60 fsyncs in 2 windows; 3 of these windows are missing" in run(
        state([window(flush=1), window(flush=1, lost=3)])
    )


def test_without_commits_it_says_so() -> None:
    assert run(([], [], [])).startswith("no commit seen in 10.0 s on tank\n\nlost 1")


def test_json_has_what_is_exact_and_what_is_estimated() -> None:
    rows = [json.loads(line) for line in run(state([window(flush=1)]), json=True).splitlines()]
    assert [(row["type"], row["dataset"]) for row in rows] == [
        ("light_summary", None),
        ("light_summary", "tank/db"),
    ]
    assert rows[1]["commits"] == 100 and rows[1]["latency"]["max"] == 90 * MS
    estimated = rows[1]["estimated"]
    assert (estimated["windows"], estimated["fsyncs"], estimated["lost"]) == (1, 30, 0)
    stage = estimated["stages"][NAMES.index("flush")]
    assert stage == {"name": "flush", "share": 1.0, "low": None, "high": None}
    assert rows[1]["lost"] == 1


def test_a_kept_window_is_told_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    kept = [window(WHO, flush=93, log_write=7)]
    rows = [json.loads(line) for line in run(state([], kept), json=True).splitlines()]
    assert rows[0]["type"] == "light_window"
    assert rows[0]["cause"]["comm"] == "postgres"
    assert rows[0]["stages"]["flush"] == 93
    run(state([], kept))
    said = "1.50 s for a commit of postgres (12); around it 30 fsyncs on tank/db: flush 93%"
    assert said in capsys.readouterr().err
    run(state([], [Window("2026-11-26T11:59:58.000Z", 2 * SECOND, (), WHO)]))
    assert "for a commit of postgres (12); around it no fsync in 2.0 s\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"every": 7 * SECOND}, "a window of 2.0 s every 7.0 s is no light trace"),
        ({"histogram": True}, "--histogram is not possible with --light"),
    ],
)
def test_what_is_not_light_is_refused(given: dict[str, Any], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        light.options_of(args(**given))


@pytest.mark.parametrize("name", ["every", "window", "over"])
def test_options_of_windows_need_light(name: str) -> None:
    with pytest.raises(UsageError, match=f"--{name} is about windows"):
        fsync.run(args(light=False, **{name: SECOND}))


def test_a_dataset_limits_the_pool() -> None:
    options = light.options_of(args(dataset="tank/db", over=SECOND, pid=12))
    assert options == LightOptions("tank", "tank/db", 12, SECOND, 60 * SECOND, 2 * SECOND)


class Going(FakeSession):
    """Detached by the third tick, attached by the sixth, seven commits after the import."""

    def __init__(self) -> None:
        super().__init__([state([])])
        self.ticks = 0

    def tick(self) -> None:
        self.ticks += 1
        self.waiting = 3 <= self.ticks < 6
        self._losses = Losses(missed=7 if self.ticks >= 6 else 0)


def test_it_says_when_it_detaches_and_when_it_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    session, host = Going(), FakeHost()
    host.sessions["light"] = session
    host.tick = session.tick  # type: ignore[method-assign]
    given = args(duration=10 * SECOND, pool="tank")
    stop = FakeStop()
    options = light.options_of(given)
    running = Run(given, options, host, io.StringIO(), stop)
    host.loaded_as = "boot:2"
    light.trace(running)
    said = capsys.readouterr().err
    assert "no pool is imported: detached until one is" in said
    assert "a pool is imported: attached again; commits missed meanwhile: 7" in said
    assert session.ticks > 8
