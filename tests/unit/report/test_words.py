"""How a session's numbers are said."""

from __future__ import annotations

import pytest
from support.sample_session import session

from zfstune.report import words as report_words


@pytest.mark.parametrize(
    ("objective", "fewest", "words"),
    [
        ("fsync.p99", 99, ""),
        ("fsync.p99", 76, " A block had only 76 fsyncs: there p99 is the slowest of them, really"),
        ("fsync.p99", 76, " about p98.7."),
        ("fsync.p99=0.5,fsync.p999=0.5", 998, "there p99.9 is the slowest of them, really about"),
        ("fsync.p999", 500, " about p99.8."),
        ("fsync.mean", 12, "there p99 is the slowest of them, really about p92.3."),
        ("what no version knows", 12, "there p99 is"),
        ("fsync.p99", None, ""),
        ("fsync.p99", 0, ""),
    ],
)
def test_a_quantile_of_few_fsyncs_is_said_to_be_another(
    objective: str, fewest: int | None, words: str
) -> None:
    found = session(trials=1) | {"objective": objective, "tails": {"fewest": fewest}}
    said = report_words.few_fsyncs(found)
    assert words in said and bool(words) == bool(said)
    assert said in report_words.finding(found).evidence


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (-0.62, "62 % lower"),
        (0.004, "0.4 % higher"),
        (0.0, "unchanged"),
        (-0.0004, "unchanged"),
        (-0.996, "99.6 % lower"),
        (1.4, "2.4 times as high"),
        (None, "unknown"),
    ],
)
def test_changes_have_words(change: float | None, words: str) -> None:
    assert report_words.change(change) == words


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.7, -0.5, "50 % to 70 % lower"),
        (0.05, 0.1, "5.0 % to 10 % higher"),
        (-0.12, 0.05, "from 12 % lower to 5.0 % higher"),
        (-0.5, 0.0, "from 50 % lower to unchanged"),
        (0.2, 3.0, "from 20 % higher to 4.0 times as high"),
        (None, -0.5, "no interval"),
    ],
)
def test_intervals_have_words(low: float | None, high: float | None, words: str) -> None:
    assert report_words.interval(low, high) == words


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("zfs_dirty_data_max", 33554432, "32 MiB"),
        ("zfs_dirty_data_max", 411041792, "392 MiB"),
        ("zfs_delay_min_dirty_percent", 60, "60 %"),
        ("zfs_txg_timeout", 5, "5 s"),
        ("zfs_vdev_async_write_max_active", 10, "10"),
        ("zfs_of_a_later_version", 123456, "123,456"),
        ("zfs_dirty_data_max", "x", "x"),
        pytest.param("zfs_dirty_data_max", 10**400, str(10**400), id="huge"),
    ],
)
def test_values_have_their_units(name: str, value: object, words: str) -> None:
    assert report_words.value(name, value) == words
