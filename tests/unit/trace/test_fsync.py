"""`trace fsync` without a kernel: its tables (against golden files) and its loop."""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import subprocess
import sys
from typing import Any

import pytest
from support.fake_host import FakeHost, FakeSession, FakeStop, Terminal, args_of
from support.paths import DATA
from support.samples import PROBES, counts

from zfstrace.stages import STAGES
from zfstrace.summary import Span, summarize
from zfstrace.types import DatasetCounts, FsyncOptions, Losses
from zfstune.term.table import Style
from zfstune.term.units import SECOND
from zfstune.trace.footer import footer
from zfstune.trace.fsync import options_of, trace, view
from zfstune.trace.live import Run

TIME = "2026-11-21T09:49:12.000Z"


def busy() -> list[DatasetCounts]:
    """As of a database on a disk with slow cache flushes."""
    rng = random.Random(1)

    def times(mean_us: float) -> list[int]:
        return [int(rng.lognormvariate(0, 0.5) * mean_us * 1000) for _ in range(2000)]

    stages = {
        "async_to_sync": times(2),
        "issuer_lock": times(40)[:300],
        "issue": times(30),
        "batch_wait": times(60)[:900],
        "log_write": times(450),
        "flush": times(1900),
        "wakeup": times(12),
        "other": times(3),
    }
    return [
        counts(objset=68, stages=stages),
        counts(objset=70, stages={"issue": times(20)[:20], "log_write": times(300)[:20]}),
        counts("", 0, dev=(0, 50), total=times(4)[:100], no_zil=100),
    ]


def lines_of(
    slots: list[DatasetCounts], style: Style, losses: Losses | None = None, **kwargs: Any
) -> list[str]:
    span = Span(TIME, 10 * SECOND, losses or Losses(unfinished=1), PROBES)
    limits = {name: kwargs.pop(name) for name in ("pool", "dataset") if name in kwargs}
    rows = summarize(slots, FakeHost(), span, **limits)
    body = view(rows, style, kwargs.pop("histogram", False), **kwargs)
    return [*body, *footer(span.losses, PROBES, style)]


def golden(name: str, lines: list[str]) -> None:
    """Compares with tests/data/NAME; UPDATE_GOLDEN=1 writes it."""
    path = DATA / name
    text = "\n".join(lines) + "\n"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
    assert max(len(line) for line in lines) < 100


def test_a_busy_pool_is_shown_as_recorded() -> None:
    golden("table_busy.txt", lines_of(busy(), Style(blocks=True), histogram=True))


def test_a_busy_pool_is_shown_in_ascii_as_recorded() -> None:
    lines = lines_of(busy(), Style())
    golden("table_busy_ascii.txt", lines)
    assert "\n".join(lines).isascii()


def test_a_dataset_with_losses_is_shown_as_recorded() -> None:
    losses = Losses(3, 1, 2, 40, 500, 7)
    lines = lines_of(busy()[:1], Style(), losses, pool="tank")
    golden("table_one_dataset.txt", lines)


def test_sync_disabled_is_explained() -> None:
    lines = lines_of(busy()[2:], Style(), pool="tank")
    golden("table_sync_disabled.txt", lines)
    assert "zfs get sync tank/nosync" in " ".join(lines)


def test_an_idle_pool_is_shown_as_recorded() -> None:
    golden("table_idle.txt", lines_of([], Style(), pool="tank", who=" of process 7"))


def test_every_stage_can_dominate() -> None:
    for stage in STAGES:
        text = " ".join(lines_of([counts(stages={stage.name: [1000]})], Style()))
        assert f"Most of the time (100 %) goes to `{stage.name}`: " in text
        assert stage.advice.split()[-1] in text


def test_there_is_colour_only_when_asked() -> None:
    assert "\x1b" not in "".join(lines_of(busy(), Style(blocks=True)))
    assert "\x1b[1m" in "".join(lines_of(busy(), Style(color=True)))


def run(args: argparse.Namespace, session: FakeSession, out: io.StringIO | None = None) -> str:
    out = out or io.StringIO()
    trace(Run(args, options_of(args), FakeHost(session), out, FakeStop()))
    assert session.closed
    return out.getvalue()


def test_prints_once_at_the_end() -> None:
    text = run(args_of(pool="tank", duration=10 * SECOND), FakeSession([busy()]))
    assert text.count("operations in 10.0 s") == 4
    assert "lost 0" in text


def test_intervals_are_differences() -> None:
    one = [counts(stages={"flush": [100]})]
    two = [counts(stages={"flush": [100, 500, 600]})]
    session = FakeSession([one, two, two])
    args = args_of(pool="tank", duration=5 * SECOND, interval=2 * SECOND, json=True)
    lines = [json.loads(line) for line in run(args, session).splitlines()]
    of_pool = [line for line in lines if line["dataset"] is None]
    assert [line["count"] for line in of_pool] == [1, 2, 0]
    assert [line["duration_ns"] // SECOND for line in of_pool] == [2, 2, 1]


def test_idle_pool_says_so() -> None:
    text = run(args_of(pool="idle", duration=10 * SECOND), FakeSession())
    assert text.startswith("no fsync seen in 10.0 s on idle\n")


def test_a_stop_prints_what_was_measured() -> None:
    args = args_of(pool="tank")
    stop = FakeStop()
    stop.asked = True
    out = io.StringIO()
    trace(Run(args, options_of(args), FakeHost(FakeSession([busy()])), out, stop))
    assert "flush" in out.getvalue()


def test_nothing_is_printed_when_nobody_reads() -> None:
    stop, out, session = FakeStop(), io.StringIO(), FakeSession([busy()])
    stop.reader_gone = True
    args = args_of(pool="tank")
    trace(Run(args, options_of(args), FakeHost(session), out, stop))
    assert out.getvalue() == ""
    assert session.closed


def test_the_trace_ends_with_the_process(capsys: pytest.CaptureFixture[str]) -> None:
    run(args_of(pid=99), FakeSession([busy()]))
    assert "process 99 has ended" in capsys.readouterr().err


def test_a_terminal_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    text = run(args_of(duration=5 * SECOND), FakeSession([busy()]), out)
    assert text.count("\x1b[J") == 2
    # the last table has what did not fit
    assert "more lines at the end" in text
    assert text.count("lost 0") == 3
    assert "missing probe cv_timedwait" in text.rpartition("\x1b[J")[2]


def test_a_dumb_terminal_is_not_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in run(args_of(duration=5 * SECOND), FakeSession([busy()]), Terminal())


def test_options_of_the_command_reach_the_trace() -> None:
    args = args_of(dataset="tank/db", pid=4711, no_fentry=True)
    assert options_of(args) == FsyncOptions("tank", "tank/db", 4711, 0, True)


def test_other_views_are_not_loaded() -> None:
    """They took most of the time until an emulated trace attached."""
    code = "import sys; import zfstune.trace.fsync; print(*sys.modules)"
    env = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=True)
    loaded, others = done.stdout.decode().split(), ("arc", "device", "light", "read", "throttle")
    assert "zfstrace.types" in loaded
    assert [name for name in others if f"zfstrace.{name}" in loaded] == []
