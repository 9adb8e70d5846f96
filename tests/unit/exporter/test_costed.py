"""The sessions of Linux are such as the budget can measure."""

from __future__ import annotations

import pytest

from zfs_linux.light import LightTrace
from zfs_linux.reads import TracedReads
from zfs_linux.traces import ArcStats, ThrottleWithParams, TracedFsyncs, TracedTxgs
from zfstrace.bpf.pools import DeviceTrace
from zfstrace.kstat.txgs import KstatTxgs
from zfstune.record.costed import costed

TRACED = (
    *(LightTrace, TracedFsyncs, TracedTxgs, ThrottleWithParams, ArcStats, DeviceTrace),
    TracedReads,
)


@pytest.mark.parametrize("kind", TRACED)
def test_what_has_programs_can_be_measured(kind: type) -> None:
    # nothing is attached: it is asked for its methods only
    assert costed(object.__new__(kind)) is not None


def test_kstats_cannot() -> None:
    assert costed(object.__new__(KstatTxgs)) is None
