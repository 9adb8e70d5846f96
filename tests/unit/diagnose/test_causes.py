"""The causes of causes.toml: each entry is whole, and each is found where it applies."""

from __future__ import annotations

import re
import string
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sample_pool import TWENTY, observed, pool
from support.samples import PROBES, ios, txg, vdev

from pages import diagnose_tables
from zfstrace import device
from zfstrace.device import DeviceRow
from zfstrace.stages import NAMES as STAGES
from zfstrace.types import Losses, Probe, merged
from zfstune import cli
from zfstune.diagnose import causes
from zfstune.diagnose.causes import CERTAINTIES, Cause
from zfstune.diagnose.judge import VERDICTS, Diagnosis, judge
from zfstune.diagnose.quantities import NAMES, SCOPED, Single, Value, measure
from zfstune.diagnose.text import view
from zfstune.rules import language
from zfstune.rules.thresholds import threshold, thresholds
from zfstune.term.table import Style
from zfstune.term.units import MS, SECOND, US

CAUSES = causes.load()
IDS = [cause.id for cause in CAUSES]
# Causes of docs/tools/zfstune-diagnose.md, the first fourteen of which come from bug reports.
NUMBERS = range(1, 18)


def conditions(cause: Cause) -> list[str]:
    return [text for text in (cause.when, cause.sure, cause.likely) if text]


def among_quiet(full: dict[str, Value]) -> dict[str, Value]:
    """These measurements, and those of a quiet pool for what they lack."""
    quiet = pool()
    return full | {n: quiet[n] for n in quiet if full[n] is None}


def found(one: Diagnosis) -> list[str]:
    return [finding.cause.id for finding in one.findings]


@pytest.mark.parametrize("cause", CAUSES, ids=IDS)
def test_conditions_are_over_what_is_measured(cause: Cause) -> None:
    assert bool(cause.when) != bool(cause.never)
    for text in conditions(cause):
        names = set(language.names(text))
        assert names <= {*NAMES, *thresholds()}, text
        assert all(name in thresholds() or NAMES[name].unit != "text" for name in names)
        # a number beyond "any or none" is a threshold with a reason and a source
        assert set(re.findall(r"\b[0-9]+\b", text)) <= {"0", "1"}, text


@pytest.mark.parametrize("cause", CAUSES, ids=IDS)
def test_a_cause_explains_stages_of_the_trace(cause: Cause) -> None:
    assert set(cause.explains) <= set(STAGES)
    allowed = {*SCOPED, "scope_operations", *NAMES, *thresholds()}
    for text in cause.explains.values():
        assert set(language.names(text)) <= allowed


@pytest.mark.parametrize("cause", CAUSES, ids=IDS)
def test_texts_name_measurements_and_commands_that_exist(cause: Cause) -> None:
    for text in (cause.title, *cause.evidence, *cause.next):
        fields = {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}
        assert fields <= set(NAMES), text
        assert not text.endswith(".")
    assert cause.next
    assert cause.evidence or cause.never
    for text in cause.next:
        # a name alone is a command of ours only when it exists
        for command in re.findall(r"`zfstune ([a-z]+)", text):
            assert command in ("trace", "tune", "flame", "params"), text


@pytest.mark.parametrize("cause", CAUSES, ids=IDS)
def test_each_cause_has_a_reason_and_a_source(cause: Cause) -> None:
    assert cause.sources
    assert bool(cause.lab) != bool(cause.not_produced), "a lab scenario, or why there is none"
    if not cause.never:
        assert set(cause.why) == set(cause.certainties)
    assert cause.number in NUMBERS
    for other in cause.alike:
        assert other != cause.id
        assert other in IDS or " " in other, other


def test_no_known_cause_is_missing() -> None:
    assert len(set(IDS)) == len(IDS)
    assert {cause.number for cause in CAUSES} == set(NUMBERS)


# What makes each cause apply: stages, and what else is measured. Nothing else may be found first.
CASES: dict[str, tuple[dict[str, list[int]] | None, dict[str, Value]]] = {
    "suspended": ({}, {"pool_suspended": 1, "pool_state": "SUSPENDED"}),
    "fallback_error": (
        {"txg_fallback": [2 * SECOND] * 3, "flush": [MS] * 20},
        {"fallback_errors": 3, "fallback_reasons": 3},
    ),
    "fallback_suspend": (
        {"txg_fallback": [2 * SECOND] * 3, "flush": [MS] * 20},
        {"fallback_suspends": 3, "fallback_reasons": 3},
    ),
    "fallback_stall": (
        {"txg_fallback": [2 * SECOND] * 3, "flush": [MS] * 20},
        {"fallback_stalls": 3, "fallback_reasons": 3},
    ),
    "first_commit": ({"txg_fallback": [2 * SECOND], "flush": [MS] * 20}, {}),
    "fallback_unknown": (
        {"txg_fallback": [2 * SECOND], "flush": [MS] * 20},
        dict.fromkeys(("fallback_reasons", "fallback_errors", "fallback_stalls")),
    ),
    "mmap": (
        {"writeback": [SECOND] * 5, "issue": [SECOND] * 5, "flush": [MS] * 5},
        {"commit_bytes": 24 << 20},
    ),
    "dragged_data": (
        {"issue": [200 * MS] * 20, "log_write": [400 * MS] * 20, "flush": [MS] * 20},
        {"commit_bytes": 32 << 20},
    ),
    "dragged_records": ({"async_to_sync": [200 * MS] * 20, "flush": [MS] * 20}, {}),
    "throttled_commit": (
        {"tx_assign": [90 * MS] * 20, "flush": [MS] * 20},
        {"zfs_version": 20111, "dirty_delays": 20, "throttle_waits": 20},
    ),
    "quiesce_held": (
        {"tx_assign": [90 * MS] * 20, "flush": [MS] * 20},
        {"txg_quiesce_max_ns": 3 * SECOND},
    ),
    "commit_timeout": (
        {"batch_wait": [9 * MS] * 20, "flush": [MS] * 20},
        {"commit_timeout_pct": 500},
    ),
    "batch_inflated": ({"batch_wait": [9 * MS] * 20, "flush": [MS] * 20}, {}),
    "log_bypassed": (
        {"log_write": [40 * MS] * 20, "flush": [MS] * 20},
        {"log_vdevs": 1, "off_slog_permille": 1000, "indirect_records": 20, "commit_bytes": 8192},
    ),
    "slog_limit": (
        {"log_write": [40 * MS] * 20, "flush": [MS] * 20},
        {"log_vdevs": 1, "off_slog_permille": 1000, "indirect_records": 0},
    ),
    "slow_vdev": (
        {"log_write": [9 * MS] * 20, "flush": [MS] * 20},
        {"slow_vdev": "sdb", "slow_vdev_times": 9, "slow_vdev_p50_ns": 9 * MS},
    ),
    "background": (
        {"log_write": [90 * MS] * 20, "flush": [MS] * 20},
        {"background": "a scrub", "background_permille": 700},
    ),
    "txg_saturates": (
        {"log_write": [90 * MS] * 80 + [4 * MS] * 20, "flush": [MS] * 100},
        {"txg_sync_permille": 800, "async_write_permille": 900},
    ),
    "slow_flush": ({"flush": [40 * MS] * 20}, {"device_flush_p50_ns": 40 * MS}),
    "slow_log_write": (
        {"log_write": [40 * MS] * 20, "flush": [MS] * 20},
        {"device_log_p50_ns": 39 * MS},
    ),
    "committers": (
        {"flush": [9 * MS] * 160, "log_write": [MS] * 160, "issuer_lock": [4 * MS] * 160},
        {"threads": 16, "device_flush_mean_ns": MS, "company_permille": 857},
    ),
    "cpu": ({"wakeup": [9 * MS] * 20, "flush": [MS] * 20}, {}),
    "issue": ({"issue": [90 * MS] * 20, "flush": [MS] * 20}, {}),
    "throttled_writers": (
        None,
        {
            "throttled_permille": 900,
            "throttle_waits": 100,
            "throttle_ns": 18 * SECOND,
            "throttle_max_ns": SECOND,
            "throttle_program": "fio 4711",
        },
    ),
    "zvol_serial": (
        None,
        {"zvol_permille": 1000, "in_flight_permille": 950, "zvol_threads": 1},
    ),
    "arc_room": (None, {"arc_waiting_permille": 400, "arc_waits": 9, "arc_wait_ns": 8 * SECOND}),
    "serial_batches": (None, {"zfs_version": 605}),
}  # fmt: skip


def case(name: str) -> dict[str, Value]:
    stages, given = CASES[name]
    if name != "txg_saturates":
        return pool(stages, **given) if stages != {} else _none(given)
    assert stages is not None
    seen = observed(stages, syncing=[True] * 80 + [False] * 20)
    full = measure(seen)
    return among_quiet(full) | given


def _none(given: dict[str, Value]) -> dict[str, Value]:
    quiet = pool()
    return quiet | measure(observed({})) | {"fallback_reasons": 0} | given


@pytest.mark.parametrize("name", [cause.id for cause in CAUSES if not cause.never])
def test_each_is_found_first(name: str) -> None:
    one = judge(case(name))
    assert found(one)[:1] == [name], found(one)
    first = one.findings[0]
    assert first.evidence
    assert first.certainty == first.cause.certainties[0]
    assert one.status == 1
    assert not [text for text in (*first.evidence, *first.next) if "{" in text or "?" in text]


def test_quiet_pools_are_not_accused() -> None:
    assert judge(pool()).verdict == "healthy"
    assert judge(_none({})).verdict == "idle"
    many = pool({"log_write": [MS] * 100, "flush": [MS] * 100, "batch_wait": [MS // 2] * 100})
    assert judge(many | {"threads": 4}).verdict == "healthy"


def test_quick_pools_are_not_accused_of_slow_fsyncs() -> None:
    """They may be accused of delaying writers outside their fsyncs."""
    slow = case("mmap")
    quick = threshold("quick")
    assert found(judge(slow | {"p99_ns": quick})) == ["mmap"]
    assert judge(slow | {"p99_ns": quick - 1}).verdict == "healthy"
    held_up = case("throttled_writers") | {"p99_ns": quick - 1}
    assert found(judge(held_up)) == ["throttled_writers"]


# Stages in per mille as the lab measured them with nothing wrong, on Debian 12 and 13 under
# emulation on a busy host, and the p50 of wakeup in us.
CALM = (
    ({"issue": 250, "log_write": 220, "flush": 250, "wakeup": 180, "batch_wait": 50}, 2228),
    ({"issue": 320, "log_write": 270, "flush": 200, "wakeup": 90, "batch_wait": 80}, 884),
    ({"issue": 180, "log_write": 300, "flush": 280, "wakeup": 200}, 1450),
    ({"issue": 460, "log_write": 140, "flush": 260, "wakeup": 100}, 550),
    ({"issue": 330, "log_write": 160, "flush": 210, "wakeup": 250}, 516),
    ({"issue": 160, "log_write": 320, "flush": 250, "wakeup": 120, "batch_wait": 120}, 352),
)


@pytest.mark.parametrize(("shares", "wakeup_us"), CALM)
def test_calm_pools_of_the_lab_are_not_accused(shares: dict[str, int], wakeup_us: int) -> None:
    times = {stage: [share * 12 * US] * 100 for stage, share in shares.items()}
    assert found(judge(pool(times, wakeup_p50_ns=wakeup_us * US))) == []


def test_sixteen_threads_of_the_lab_are_committers() -> None:
    """Sixteen threads on Debian 13; each also waits for a CPU, but less."""
    shares = {
        "issuer_lock": 100, "issue": 80, "batch_wait": 200, "log_write": 190, "flush": 230,
        "wakeup": 200,
    }  # fmt: skip
    times = {stage: [share * 29 * US] * 160 for stage, share in shares.items()}
    given = {"threads": 16, "device_flush_mean_ns": 3 * MS, "company_permille": 427}
    assert found(judge(pool(times, **given)))[:1] == ["committers"]


def test_a_wait_for_a_cpu_afterwards_hides_no_committers() -> None:
    """24 threads on Debian 13, whose host was busy: a quarter of all time is the way back."""
    shares = {
        "issuer_lock": 21, "issue": 26, "batch_wait": 195, "log_write": 222, "flush": 285,
        "wakeup": 251,
    }  # fmt: skip
    times = {stage: [share * 23 * US] * 240 for stage, share in shares.items()}
    disk = vdev(1, flush=ios([5600 * US] * 240))
    full = measure(observed(times, threads=24, devices=rows(disk)))
    assert full["company_permille"] == 343
    one = judge(among_quiet(full))
    assert found(one)[:1] == ["committers"]
    assert one.findings[0].evidence[1].startswith("waits for each other take 34 % of the time")


def test_a_busy_cpu_of_the_lab_is_named() -> None:
    """On Debian 12 the blocks are also held open longer, because their threads do not run."""
    shares = {"issue": 80, "batch_wait": 400, "log_write": 50, "flush": 20, "wakeup": 380}
    times = {stage: [share * 120 * US] * 60 for stage, share in shares.items()}
    (first,) = judge(pool(times)).findings
    assert first.cause.id == "cpu"
    assert first.share_total == 838


@pytest.mark.parametrize(("threads", "named"), [(1, "cpu"), (48, "committers")])
def test_who_waits_for_a_cpu_holds_the_block_open_longer(threads: int, named: str) -> None:
    """Debian 12, most of the time in batch_wait; of many threads it is what they wait for."""
    shares = {"issue": 41, "batch_wait": 537, "log_write": 103, "flush": 40, "wakeup": 279}
    times = {stage: [share * 85 * US] * 137 for stage, share in shares.items()}
    full = measure(observed(times, threads=threads))
    assert full["wakeup_alone_permille"] == 1000 * 279 // (1000 - 537)
    one = judge(among_quiet(full))
    assert found(one)[:1] == [named]


def test_a_slow_fsync_without_a_known_cause_is_not_healthy() -> None:
    one = judge(pool({"other": [90 * MS] * 20, "flush": [MS] * 20}))
    assert (one.verdict, one.status) == ("unknown", 1)
    assert "in `other`" in one.summary


def test_a_failing_log_device_is_not_called_full() -> None:
    """In the lab (Debian 13) 60 % of the log went past it, and one write to it took 0.9 s."""
    past = {"log_vdevs": 1, "off_slog_permille": 599, "indirect_records": 0}
    slow = pool({"log_write": [2 * MS] * 27 + [900 * MS], "txg_fallback": [100 * MS] * 2})
    failing = {"fallback_errors": 2, "fallback_reasons": 2}
    assert found(judge(slow | past | failing)) == ["fallback_error"]


@pytest.mark.parametrize("name", ["dragged_data", "log_bypassed", "slog_limit"])
def test_counters_of_other_pools_accuse_nobody(name: str) -> None:
    """zil kstats cover the whole host: where other pools make most commits, they describe those."""
    assert name not in found(judge(case(name) | {"own_commits_permille": 100}))
    (finding,) = (f for f in judge(case(name) | {"own_commits_permille": 600}).findings)
    assert (finding.cause.id, finding.certainty) == (name, finding.cause.certainties[1])


def test_without_a_log_nothing_is_judged() -> None:
    one = judge(pool(no_zil=100))
    assert (one.verdict, one.status) == ("no_log", 0)


def test_causes_that_were_not_measured_are_named() -> None:
    one = judge(pool({"flush": [40 * MS] * 20}, device_flush_p50_ns=None))
    assert ("slow_flush", "device_flush_p50_ns") in [(c.id, name) for c, name in one.not_judged]


def test_without_single_operations_there_is_no_share_of_the_p99() -> None:
    seen = observed({"flush": [40 * MS] * 20}, single=False)
    quiet = {n: v for n, v in pool().items() if n.startswith("device_")}
    one = judge(measure(seen) | quiet | {"device_flush_p50_ns": 40 * MS})
    assert one.findings[0].share_p99 is None
    assert one.findings[0].share_total == 1000
    assert one.rest_p99 is None


def test_two_causes_share_a_stage() -> None:
    """Syncs take the time that flushes last longer than without one, slow flushes the rest."""
    times = {"flush": [90 * MS] * 60 + [30 * MS] * 40}
    seen = observed(times, syncing=[True] * 60 + [False] * 40)
    full = measure(seen)
    given = {"device_flush_p50_ns": 30 * MS, "txg_sync_permille": 700, "async_write_permille": 800}
    one = judge(among_quiet(full) | given)
    assert found(one) == ["txg_saturates", "slow_flush"]
    assert [finding.share_total for finding in one.findings] == [545, 454]
    assert [finding.share_p99 for finding in one.findings] == [666, 333]


@pytest.mark.parametrize(("missed", "enough"), [(0, True), (3, True), (50, False)])
def test_nearly_all_operations_are_enough_for_a_median(missed: int, enough: bool) -> None:
    """In the lab 2,273 of 2,310 were reported singly: some ended while the sum was taken."""
    seen = observed({"flush": [90 * MS] * 60 + [30 * MS] * 40}, syncing=[True] * 60 + [False] * 40)
    full = measure(replace(seen, singles=seen.singles[missed:]))
    assert (full["calm_flush_p50_ns"] == 30 * MS) is enough


NUMBER = st.one_of(st.none(), st.integers(0, 5000), st.integers(0, 10**12))


@given(st.data())
def test_shares_of_any_numbers_sum_to_one_at_most(data: st.DataObject) -> None:
    """Any file that was saved: shares are shares, and never sum to more than the whole."""
    names = st.sampled_from([n for n in NAMES if NAMES[n].unit != "text"])
    wild: dict[str, Value] = dict(data.draw(st.dictionaries(names, NUMBER, max_size=30)))
    times = st.lists(st.integers(0, 10 * SECOND), min_size=5, max_size=12)
    stages = data.draw(st.dictionaries(st.sampled_from(STAGES), times, max_size=4))
    wild = {n: v for n, v in wild.items() if not n.endswith("_ns")}
    one = judge(pool(stages or None) | wild)
    assert one.verdict in VERDICTS
    for attribute in ("share_total", "share_p99"):
        shares = [getattr(finding, attribute) or 0 for finding in one.findings]
        assert all(0 <= share <= 1000 for share in shares)
        rest = one.rest_total if attribute == "share_total" else one.rest_p99
        assert sum(shares) + (rest or 0) <= 1000
    assert all(finding.certainty in CERTAINTIES for finding in one.findings)


def rows(*vdevs: Any) -> list[DeviceRow]:
    return device.rows(vdevs, {1: "sda", 2: "sdb", 3: "sdc"}, "t", TWENTY, Losses())


def test_a_disk_behind_a_slog_is_not_its_sibling() -> None:
    slog = vdev(1, sync_write=ios([MS // 10] * 200), flush=ios([MS // 10] * 200))
    disk = vdev(2, sync_write=ios([20 * MS] * 12), flush=ios([20 * MS] * 12))
    slow = vdev(3, sync_write=ios([20 * MS] * 190))
    got = measure(observed({"flush": [MS] * 9}, devices=rows(slog, disk)))
    assert got["slow_vdev_times"] == 0
    got = measure(observed({"flush": [MS] * 9}, devices=rows(slog, disk, slow)))
    assert got["slow_vdev"] == "sdc"


def test_txgs_count_for_the_measured_span_only() -> None:
    txgs = [txg(1, sync_ns=4 * SECOND), txg(2, sync_ns=None), txg(3, sync_ns=60 * SECOND)]
    got = measure(observed({"flush": [MS] * 9}, txgs=txgs[:2]))
    assert got["txg_sync_permille"] == 200
    assert got["txg_sync_max_ns"] == 4 * SECOND
    got = measure(observed({"flush": [MS] * 9}, txgs=txgs))
    assert got["txg_sync_permille"] == 1000


def test_counters_of_the_log_become_shares() -> None:
    zil = {
        "zil_commit_count": 10, "zil_commit_writer_count": 4, "zil_itx_indirect_count": 5,
        "zil_itx_indirect_bytes": 40960, "zil_itx_metaslab_slog_bytes": 4096,
        "zil_itx_metaslab_normal_bytes": 0,
    }  # fmt: skip
    got = measure(observed({"flush": [MS] * 9}, zil=zil, log_vdevs=1))
    assert got["commits_per_100_writers"] == 250
    assert got["commit_bytes"] == 4096
    assert got["indirect_mean_bytes"] == 8192
    assert got["off_slog_permille"] == 909
    assert got["own_commits_permille"] == 900
    # before 2.3 the reasons are not counted
    assert got["fallback_reasons"] is None
    assert measure(observed({}, zil=zil))["off_slog_permille"] is None


def test_the_slowest_hundredth_is_the_tail() -> None:
    got = measure(observed({"flush": [MS] * 290, "issue": [9 * MS] * 3}))
    assert got["tail_operations"] == 3
    assert got["tail_issue_permille"] == 900
    assert got["total_issue_permille"] == 85


def test_threads_are_counted_within_a_dataset() -> None:
    seen = observed({"flush": [MS] * 9}, threads=3)
    others = [Single(1, (0,) * len(STAGES), "tank/home", tid, None) for tid in range(5)]
    got = measure(observed({"flush": [MS] * 9}, singles=[*seen.singles, *others]))
    assert got["threads"] == 5


def test_a_stage_without_its_probe_is_unknown() -> None:
    seen = observed({"flush": [MS] * 9})
    without = replace(seen, fsync=replace(seen.fsync, probes=PROBES))
    assert measure(seen)["total_batch_wait_permille"] == 0
    got = measure(without)
    assert got["total_batch_wait_permille"] is None
    quiet = pool()
    known = {name: quiet[name] for name in quiet if got[name] is None and "batch" not in name}
    one = judge(got | known | {"p99_ns": 9 * MS})
    assert [cause.id for cause, _ in one.not_judged] == ["batch_inflated"]


def test_slow_flushes_without_their_probe_are_not_called_quick() -> None:
    merges = ("flush", "log_write")
    probe = Probe("zil_lwb_write_done", "", "missing", False, merged(merges), "?", merges=merges)
    seen = observed({"log_write": [40 * MS] * 20})
    got = measure(replace(seen, fsync=replace(seen.fsync, probes=(probe,))))
    assert (got["calm_flush_p50_ns"], got["calm_flush_mean_ns"]) == (None, None)
    assert got["calm_log_write_p50_ns"] == 40 * MS
    quiet = pool()
    known = {name: quiet[name] for name in quiet if got[name] is None and "flush" not in name}
    one = judge(got | known | {"device_flush_count": 20, "device_flush_p50_ns": 39 * MS})
    assert ("slow_flush", "calm_flush_p50_ns") in [(c.id, name) for c, name in one.not_judged]


@pytest.mark.parametrize("cost", ["its time is counted elsewhere", "`flush` is part of `issue`"])
def test_the_wording_of_a_probe_decides_nothing(cost: str) -> None:
    seen = observed({"flush": [MS] * 9})

    def found(*probes: Probe) -> Any:
        return measure(replace(seen, fsync=replace(seen.fsync, probes=probes)))

    (missing,) = (probe for probe in PROBES if probe.missing)
    assert found(replace(missing, cost=cost)) == found(missing) != measure(seen)
    assert found(replace(missing, merges=())) == measure(seen)


def test_suggested_commands_parse() -> None:
    parser = cli.build_parser()
    texts = [text.replace("{pool}", "tank") for cause in CAUSES for text in cause.next]
    commands = {found for text in texts for found in re.findall(r"`zfstune ([^`]*)`", text)}
    assert len(commands) > 5
    for command in commands:
        parser.parse_args(command.split())


def test_every_measurement_is_described() -> None:
    units = {"ns", "bytes", "count", "permille", "percent", "flag", "text"}
    assert {one.unit for one in NAMES.values()} == units
    assert all(one.what for one in NAMES.values())


def test_the_page_has_the_current_tables() -> None:
    page = diagnose_tables.PAGE.read_text(encoding="utf-8")
    assert diagnose_tables.rendered(page) == page


def test_the_page_has_the_current_example() -> None:
    """To write it again: what this compares, indented by four."""
    times = {
        "flush": [38 * MS + i * MS // 10 for i in range(480)],
        "log_write": [MS] * 480,
        "issue": [MS // 2] * 480,
        "wakeup": [MS // 10] * 480,
    }
    measured: dict[str, Value] = {
        "flush_vdev": "sda",
        "device_flush_count": 484,
        "device_flush_p50_ns": 62 * MS,
        "device_flush_p99_ns": 85 * MS,
    }
    lines = view(judge(pool(times, **measured)), Style(width=90))
    text = "\n".join(f"    {line}".rstrip() for line in lines)
    assert text in diagnose_tables.PAGE.read_text(encoding="utf-8"), text
