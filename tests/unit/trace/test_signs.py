"""The rules of signs.toml; those on devices are in test_device.py."""

from __future__ import annotations

import re
from typing import Any

import pytest
from support.fake_host import FakeHost
from support.samples import arc, counts, txg, waits

from zfstrace import arc as cache
from zfstrace import throttle
from zfstrace.summary import Span, summarize
from zfstrace.throttle import ThrottleCounts
from zfstrace.types import Losses
from zfstune.term.units import MS, SECOND
from zfstune.trace.signs import Sign, SignRule, of_arc, of_fsync, of_throttle, of_txg, sign_rules

TEN = 10 * SECOND


def named(signs: list[Sign]) -> dict[str, bool]:
    assert all(sign.row is not None for sign in signs)
    assert all(sign.sentence.endswith(".") for sign in signs)
    return {sign.name: sign.urgent for sign in signs}


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        ({}, {}),
        ({"sync_ns": 5 * SECOND}, {"long_sync": True}),
        ({"quiesce_ns": SECOND}, {"long_quiesce": True}),
        ({"sync_ns": None, "quiesce_ns": None}, {}),
    ],
)
def test_txgs_stand_out_by_their_rules(fields: dict[str, Any], want: dict[str, bool]) -> None:
    assert named(of_txg([txg(1), txg(2, **fields)])) == want
    assert of_txg([]) == []


@pytest.mark.parametrize(
    ("found", "want"),
    [
        ([], {}),
        ([waits(dirty_delay=[MS])], {"delays": False}),
        ([waits(dirty_delay=[SECOND])], {"delays": True}),
        ([waits(dirty_delay=[MS], dirty_hard=[MS])], {"dirty_hard": True}),
        ([waits(dirty_delay=[3 * MS], dirty_hard=[MS])], {"delays": False}),
    ],
)
def test_throttled_writers_stand_out_by_their_rules(
    found: list[ThrottleCounts], want: dict[str, bool]
) -> None:
    assert named(of_throttle(throttle.rows(found, "t", TEN, None, Losses()))) == want


@pytest.mark.parametrize(
    ("waited", "throttled", "want"),
    [
        ([], 0, {}),
        ([MS], 0, {}),
        ([SECOND], 0, {"eviction": True}),
        ([], 1, {"memory": True}),
    ],
)
def test_arc_waits_stand_out_by_their_rules(
    waited: list[int], throttled: int, want: dict[str, bool]
) -> None:
    state = arc(2, waited, memory_throttle_count=throttled)
    assert named(of_arc([cache.row(state, arc(1), "t", TEN, Losses())])) == want


@pytest.mark.parametrize("rule", sign_rules().values(), ids=sign_rules())
def test_conditions_are_over_facts_and_thresholds(rule: SignRule) -> None:
    for text in (rule.when, rule.urgent):
        # a number beyond "any or none" is a threshold with a reason and a source
        assert set(re.findall(r"\b[0-9]+\b", text)) <= {"0", "1"}, text
    assert not rule.text.endswith(".") and not rule.advice.endswith(".")


def test_texts_have_units() -> None:
    (sign,) = of_txg([txg(7, sync_ns=6 * SECOND)])
    assert sign.text == "txg 7 of tank took 6.00 s to sync"
    rows = throttle.rows([waits(dirty_hard=[2 * SECOND])], "t", TEN, None, Losses())
    assert of_throttle(rows)[0].text == (
        "writers are stopped at zfs_dirty_data_max (fio 4711 on tank, up to 2.00 s)"
    )
    escape = waits(comm="\x1b[2J", dirty_hard=[2 * SECOND])
    rows = throttle.rows([escape], "t", TEN, None, Losses())
    assert "(?[2J 4711 on tank" in of_throttle(rows)[0].text
    state = arc(2, [], memory_throttle_count=1234)
    (sign,) = of_arc([cache.row(state, arc(1), "t", TEN, Losses())])
    assert sign.text == "memory is short: the ARC delayed writers 1,234 times"


def test_a_dataset_with_slow_fsyncs_stands_out() -> None:
    span = Span("t", TEN, Losses(), ())
    quick = counts(objset=68, stages={"flush": [MS] * 10})
    slow = counts(objset=70, stages={"issue": [90 * MS] * 10, "flush": [MS] * 10})
    assert of_fsync(summarize([quick], FakeHost(), span)) == []
    (sign,) = of_fsync(summarize([quick, slow], FakeHost(), span))
    assert named([sign]) == {"slow_fsync": True}
    assert "on tank/home" in sign.text
    assert "99 % of it in `issue`" in sign.text
