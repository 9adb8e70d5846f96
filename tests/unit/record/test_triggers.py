"""Triggers: what they are, what is refused, and when they fire."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from support.recording import NOON, Busy, light_row

from zfstrace.types import Json
from zfstune.errors import UsageError
from zfstune.record import args
from zfstune.record.triggers import METRICS, UNITS, Watch, parse, require_views
from zfstune.term.units import MS, SECOND

TEN = 10 * SECOND


def fsync_row(pool: str = "tank", p99: int = MS, count: int = 5, **given: Any) -> Json:
    row = {"type": "fsync_summary", "pool": pool, "dataset": None, "count": count, "errors": 0}
    return {**row, "latency": {"p99": p99 if count else None}, "unfinished": 0, **given}


def fired(watch: Watch, *rows: Json, view: str = "light", ns: int = TEN) -> list[str]:
    return [one.reason for one in watch.ended({view: rows}, ns)]


@pytest.mark.parametrize(
    ("text", "name", "compare", "limit", "hold"),
    [
        ("fsync.p99>200ms for 30s", "fsync.p99", ">", 200 * MS, 30 * SECOND),
        (" fsync.p99 >= 1.5s ", "fsync.p99", ">=", 1500 * MS, 0),
        ("commit.rate<0.5/s for 1m", "commit.rate", "<", 0.5, 60 * SECOND),
        ("commit.rate<=5", "commit.rate", "<=", 5, 0),
        ("throttle.time>200%", "throttle.time", ">", 200, 0),
        ("lost>0", "lost", ">", 0, 0),
    ],
)
def test_what_a_trigger_is(text: str, name: str, compare: str, limit: float, hold: int) -> None:
    found = parse(text)
    assert (found.metric.name, found.compare, found.limit, found.hold_ns) == (
        name,
        compare,
        limit,
        hold,
    )
    assert parse(found.text) == found


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        ("", "'' is no trigger", "write it like"),
        ("fsync.p99", "is no trigger", "write it like"),
        ("fsync.p99=5ms", "is no trigger", "write it like"),
        ("fsync.p99>", "is no trigger", "write it like"),
        ("fsync.p99>200", "'200' has no unit", "write 'fsync.p99>200ms'"),
        ("fsync.p99>5%", "'5%' is not a time", "write 'fsync.p99>200ms'"),
        ("fsync.p99>-1ms", "is no trigger", "write it like"),
        ("lost>1e9", "'1e9' is not a number", "write 'lost>10'"),
        ("lost>" + "9" * 400, "is no trigger", "write it like"),
        ("fsync.p99>1ms for", "is no trigger", "write it like"),
        ("fsync.p99>1ms for 0s", "'0s' is zero", "use a time"),
        ("fsync.p99>1ms for 2h", "2h is more than an hour", "use 1h at most"),
        ("fsync.p99>1ms and lost>0", "is no trigger", "write it like"),
        (
            "fsync.p98>1ms",
            "no metric 'fsync.p98'",
            "did you mean fsync.p99? choose from: fsync.p50",
        ),
        ("zz", "no metric 'zz'", "choose from: fsync.p50"),
    ],
)
def test_what_is_refused_in_one_line(text: str, what: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(text)
    assert what in str(caught.value)
    assert caught.value.hint.startswith(hint)
    assert "\n" not in f"{caught.value}{caught.value.hint}"


def test_the_list_of_a_refusal_is_whole() -> None:
    with pytest.raises(UsageError) as caught:
        parse("x>1")
    _, _, names = caught.value.hint.partition(": ")
    assert names.split(", ") == list(METRICS)


def test_help_names_every_metric() -> None:
    found: list[str] = []
    for word in re.split(r"[\s,]+", args.METRICS.strip()):
        found.append(found[-1].rpartition(".")[0] + word if word.startswith(".") else word)
    assert found == list(METRICS)


@pytest.mark.parametrize(
    "text", ["fsync.p99<0s", "commit.rate<0/s", "lost<0", "arc.hit>100%", "arc.hit>=100.1%"]
)
def test_a_value_that_there_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="can never fire") as caught:
        parse(text)
    assert caught.value.hint.startswith("write '")
    name = METRICS[next(n for n in METRICS if text.startswith(n))]
    assert parse(caught.value.hint[len("write '") : -1]).metric is name


def test_the_ends_of_a_range_can_be_reached() -> None:
    for text in ("arc.hit>=100%", "arc.hit<=0%", "arc.hit<100%", "fsync.p99<=0s", "lost>0"):
        parse(text)


def test_a_trigger_without_its_view_is_refused() -> None:
    require_views([parse("fsync.p99>1ms"), parse("lost>0")], ["light", "txg"])
    with pytest.raises(UsageError, match=r"can never fire: txg\.sync needs the view txg") as caught:
        require_views([parse("txg.sync>1s")], ["light"])
    assert caught.value.hint == "add it: --views light,txg"


def test_fsync_can_take_the_place_of_light() -> None:
    """As where there are no light traces: no trigger may be one that never fires."""
    stages = [{"name": "log_write", "count": 5, "p99": 3 * MS}, {"name": "flush", "count": 0}]
    rows = {"fsync": [fsync_row("a", 9 * MS, commits=5, stages=stages)]}
    found = {
        name: metric.values(rows, TEN)
        for name, metric in METRICS.items()
        if "light" in metric.views and name != "lost"
    }
    assert all("fsync" in METRICS[name].views for name in found)
    assert found["commit.p99"] == found["fsync.p99"] == {"a": 9 * MS}
    assert found["commit.rate"] == {"a": 0.5}
    assert found["log.p99"] == {"a": 3 * MS}
    # nothing waited for one
    assert found["flush.p99"] == {}


def test_the_example_of_each_unit_can_be_read_and_shown() -> None:
    for unit in UNITS.values():
        assert unit.show(unit.read(unit.example))


def test_every_metric_has_a_value_on_a_busy_host() -> None:
    rows: dict[str, Sequence[Json]] = dict(Busy(1).rows(NOON))
    rows["device"] = [
        {"type": "device", "pool": "tank", "class": name, "device": {"p99": MS}}
        for name in ("sync_write", "flush")
    ]
    full = {"fsync": [fsync_row(unfinished=3, commits=5)]}
    for metric in METRICS.values():
        views: Mapping[str, Sequence[Json]] = rows if set(metric.views) & set(rows) else full
        assert metric.values(views, TEN), metric.name
        # without its views it is not known
        assert not metric.values({}, TEN) or metric.name == "lost"


def test_values_are_of_each_pool() -> None:
    rows = {"light": [light_row("a", 5 * MS), light_row("b", 7 * MS, commits=0)]}
    assert METRICS["commit.p99"].values(rows, TEN) == {"a": 5 * MS}
    assert METRICS["commit.rate"].values(rows, TEN) == {"a": 10.0, "b": 0.0}
    assert METRICS["fsync.p99"].values(rows, TEN) == {"a": 5 * MS}
    rows["fsync"] = [fsync_row("a", 9 * MS)]
    assert METRICS["fsync.p99"].values(rows, TEN) == {"a": 9 * MS}
    assert METRICS["fsync.rate"].values(rows, TEN) == {"a": 0.5}
    busy = {
        "throttle": [{"pool": "a", "count": 20, "total_ns": 2 * TEN}, {"pool": "a", "count": 5}]
    }
    assert METRICS["throttle.waits"].values(busy, TEN) == {"a": 2.5}
    assert METRICS["throttle.time"].values(busy, TEN) == {"a": 200.0}
    assert METRICS["throttle.waits"].values({"throttle": []}, TEN) == {"": 0.0}


def test_it_fires_once_when_it_was_true_long_enough_and_again_after_it_was_not() -> None:
    watch = Watch([parse("fsync.p99>200ms for 30s")])
    slow, fast = light_row(p99=300 * MS), light_row(p99=100 * MS)
    assert [fired(watch, slow) for _ in range(5)] == [
        [],
        [],
        ["trigger fsync.p99>200ms for 30s: 300 ms on tank"],
        [],
        [],
    ]
    assert watch.last == {"fsync.p99>200ms for 30s": 300 * MS}
    assert fired(watch, fast) == []
    assert [bool(fired(watch, slow)) for _ in range(3)] == [False, False, True]


def test_what_is_true_of_a_second_only_is_no_trigger() -> None:
    watch = Watch([parse("commit.p99>200ms")], 5 * SECOND)
    slow, fast = light_row(p99=300 * MS), light_row(p99=100 * MS)
    for row in (slow, fast, slow, slow, slow, slow):
        assert not fired(watch, row, ns=SECOND)
    assert fired(watch, slow, ns=SECOND)
    assert not fired(watch, fast) and fired(watch, slow)


def test_a_second_without_commits_ends_nothing() -> None:
    """Each `record dump` ends an interval."""
    watch = Watch([parse("commit.p99>200ms for 30s")], 5 * SECOND)
    slow, none = light_row(p99=300 * MS), light_row(commits=0)
    found = []
    for _ in range(4):
        found += fired(watch, slow) + fired(watch, none, ns=SECOND)
    assert len(found) == 1
    assert not fired(watch, none)
    assert watch.last["commit.p99>200ms for 30s"] is None
    # an interval of its length without a commit did end it
    assert not fired(watch, slow)


def test_each_pool_has_its_own_time() -> None:
    watch = Watch([parse("commit.p99>200ms for 20s")])
    slow, fast = 300 * MS, MS
    assert not fired(watch, light_row("a", slow), light_row("b", fast))
    assert not fired(watch, light_row("a", fast), light_row("b", slow))
    assert not fired(watch, light_row("a", slow), light_row("b", fast))
    assert fired(watch, light_row("a", slow), light_row("b", fast)) == [
        "trigger commit.p99>200ms for 20s: 300 ms on a"
    ]


def test_what_is_not_known_is_not_true() -> None:
    watch = Watch([parse("commit.p99>200ms for 20s")])
    assert not fired(watch, light_row(p99=SECOND))
    assert not fired(watch, light_row(commits=0))
    assert watch.last["commit.p99>200ms for 20s"] is None
    assert not fired(watch, light_row(p99=SECOND))
    assert not fired(watch)


def test_a_pool_that_hangs_has_a_latency() -> None:
    """Nothing ends there, so nothing is measured."""
    watch = Watch([parse("fsync.p99>15s")])
    hangs = light_row(commits=0, unfinished=3)
    # what has begun may have begun just now
    assert not fired(watch, light_row(unfinished=3))
    assert not fired(watch, hangs)
    assert fired(watch, hangs) == ["trigger fsync.p99>15s: 20.0 s on tank"]
    # no fsync is under way: the pool is idle
    assert not fired(watch, light_row(commits=0))
    assert watch.last["fsync.p99>15s"] is None


def test_a_busy_pool_beside_it_shows_that_others_are_idle() -> None:
    watch = Watch([parse("fsync.p99>5s")])
    for _ in range(3):
        idle = light_row("b", commits=0, unfinished=3)
        assert not fired(watch, light_row("a", unfinished=3), idle)


def test_hostile_rows_do_not_end_it() -> None:
    watch = Watch(
        [parse(f"{name}>0{'ms' if m.unit == 'time' else ''}") for name, m in METRICS.items()]
    )
    rows = {view: [{"pool": None, "type": "x", "lost": None}] for view in args.VIEWS}
    watch.ended(rows, 0)
    watch.ended({}, TEN)
