"""Writing parameters: announced first, read back, put back when something goes wrong."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.fake_module import ARC, DEFAULTS, GIB, LOADED, MIB, ModuleHost
from support.kernel import Arc

from zfstrace.errors import ParameterError
from zfstrace.params import Change
from zfstune.changes import recovery
from zfstune.changes.apply import Applier, ApplyError, Overridden
from zfstune.changes.journal import Journal
from zfstune.changes.records import APPLIED, Original
from zfstune.errors import NotPossible
from zfstune.tunables.catalogue import load
from zfstune.tunables.guard import Refused

LEAST = "zfs_vdev_async_write_active_min_dirty_percent"
MOST = "zfs_vdev_async_write_active_max_dirty_percent"
CANDIDATE = {"zfs_dirty_data_max": 256 * MIB, "zfs_txg_timeout": 9, "zfs_arc_max": 8 * GIB}


@dataclass
class Fixture:
    host: ModuleHost
    journal: Journal
    said: list[str]

    def applier(self) -> Applier:
        applier = Applier(self.host, self.journal, load(), self.said.append, still_s=0)
        applier.watch = self.host.params.watch_
        return applier

    def untouched(self) -> bool:
        return self.host.now() == DEFAULTS and self.host.params.variables() == Arc(**LOADED)  # type: ignore[arg-type]

    def again(self) -> None:
        """As after the death of the process: only the files are left."""
        self.journal.close()
        self.journal = Journal(self.host.where, write=True)


@pytest.fixture
def fix(tmp_path: Path) -> Iterator[Fixture]:
    host = ModuleHost(tmp_path)
    journal = Journal(host.where, write=True)
    journal.begin("session", "boot:1", "test", {})
    found = Fixture(host, journal, [])
    yield found
    found.journal.close()


def test_a_restore_puts_back_what_apply_changed(fix: Fixture) -> None:
    applier = fix.applier()
    writes = applier.apply(CANDIDATE)
    assert fix.host.now() == DEFAULTS | CANDIDATE
    assert fix.host.params.log == [(write.name, write.value) for write in writes]
    assert fix.host.params.arc()["c_max"] == 8 * GIB
    report = applier.restore(fix.journal.layer)
    assert fix.untouched()
    assert {(r.name, r.before, r.value) for r in report.restored} == {
        ("zfs_dirty_data_max", 256 * MIB, 4 * GIB),
        ("zfs_txg_timeout", 9, 5),
        ("zfs_arc_max", 8 * GIB, 0),
    }
    assert not fix.journal.history.in_force


def test_each_write_is_announced_in_both_copies(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, checked = fix.host.params.write, 0

    def check(name: str, value: int, identity: str | None = None) -> None:
        nonlocal checked
        record = f'"name":"{name}","new":{value},'
        for directory in (fix.host.where.state, fix.host.where.run):
            assert record in (directory / "journal").read_text().splitlines()[-1]
        checked += 1
        write(name, value, identity)

    monkeypatch.setattr(fix.host.params, "write", check)
    fix.applier().apply(CANDIDATE)
    assert checked >= 5


def test_nothing_to_do_writes_nothing(fix: Fixture) -> None:
    assert fix.applier().apply({"zfs_txg_timeout": 5}) == []
    assert fix.host.params.log == []


def test_refused_before_the_first_write(fix: Fixture) -> None:
    with pytest.raises(Refused):
        fix.applier().apply({"zfs_txg_timeout": 9, "zfs_dirty_data_max": 0})
    assert fix.host.params.log == []
    assert fix.journal.layer.originals == {}


@pytest.mark.parametrize("name", ["zfs_txg_timeout", "zfs_dirty_data_max", "zfs_arc_max"])
def test_failed_write_puts_the_others_back(fix: Fixture, name: str) -> None:
    fix.host.params.refuse[name] = ParameterError(f"cannot set {name}")
    with pytest.raises(ApplyError, match=f"cannot set {name}"):
        fix.applier().apply(CANDIDATE)
    assert fix.untouched()


def test_a_limit_that_zfs_ignores_is_an_error_and_undone(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fix.host.params, "arc_tuning_update", fix.host.params.variables)
    with pytest.raises(ApplyError, match="ZFS ignores it and stays at 66571993088"):
        fix.applier().apply({"zfs_arc_max": 16 * GIB})
    assert fix.untouched()


def test_arc_limit_back_to_not_set_is_really_in_force(fix: Fixture) -> None:
    """Writing 0 changes nothing, so the number that was in force is written first."""
    applier = fix.applier()
    applier.apply({"zfs_arc_max": 20 * GIB, "zfs_arc_min": GIB})
    applier.restore(fix.journal.layer)
    assert fix.untouched()
    assert ("zfs_arc_max", 62 * GIB) in fix.host.params.log


def test_every_computed_parameter_is_back_in_force(fix: Fixture) -> None:
    """For each parameter that 0 does not restore, the number is written first, then the 0."""
    applier = fix.applier()
    wanted = {
        "zfs_arc_sys_free": 8 * GIB,
        "zfs_arc_dnode_limit": GIB,
        "zfs_arc_shrink_shift": 9,
        "zfs_arc_grow_retry": 60,
        "zfs_arc_min_prefetch_ms": 10,
        "zfs_arc_max": 20 * GIB,
    }
    applier.apply(wanted)
    arc = fix.host.params.variables()
    assert (arc.sys_free, arc.dnode_limit, arc.shrink_shift) == (8 * GIB, GIB, 9)
    applier.restore(fix.journal.layer)
    assert fix.untouched()
    free = [value for name, value in fix.host.params.log if name == "zfs_arc_sys_free"]
    assert free == [8 * GIB, ARC["arc_sys_free"], 0]


def test_a_limit_not_back_in_force_is_reported(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    applier = fix.applier()
    applier.apply({"zfs_arc_sys_free": 8 * GIB})
    monkeypatch.setattr(fix.host.params, "arc_tuning_update", fix.host.params.variables)
    report = applier.restore(fix.journal.layer)
    assert [name for name, _ in report.failed] == ["zfs_arc_sys_free"]
    assert f"stays at {8 * GIB}" in report.failed[0][1]


@pytest.mark.parametrize("after", range(12))
def test_death_between_any_two_steps_is_recovered(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Also during the restore, which the next one completes."""

    class Death(BaseException):
        pass

    def mortal(lives: int) -> None:
        write = type(fix.host.params).write
        left = lives

        def one(name: str, value: int, identity: str | None = None) -> None:
            nonlocal left
            if left == 0:
                raise Death
            left -= 1
            write(fix.host.params, name, value)
            if left == 0 and after % 2:
                raise Death  # between the write and its record

        monkeypatch.setattr(fix.host.params, "write", one)

    mortal(after // 2 + 1)
    applier = fix.applier()
    try:
        applier.apply(CANDIDATE)
        applier.restore(fix.journal.layer)
    except Death:
        fix.again()
    mortal(1)
    try:
        fix.applier().restore(fix.journal.layer)
    except Death:
        fix.again()
    monkeypatch.undo()
    fix.journal.close()
    recovery.restore_left(fix.host, fix.host.where, fix.said.append)
    assert fix.untouched(), fix.said


def test_death_in_passing_is_recovered_although_an_earlier_layer_has_that_parameter(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fall of zfs_dirty_data_max turns the delay off for a moment; the session only raised it."""

    class Death(BaseException):
        pass

    fix.applier().apply({"zfs_dirty_data_max": 256 * MIB})
    fix.journal.end(fix.journal.layer, APPLIED)
    fix.journal.begin("session", "boot:1", "test", {})
    fix.applier().apply({"zfs_dirty_data_max": 384 * MIB})
    write = fix.host.params.write

    def mortal(name: str, value: int, identity: str | None = None) -> None:
        write(name, value, identity)
        if name == "zfs_delay_min_dirty_percent":
            raise Death

    with monkeypatch.context() as patch:
        patch.setattr(fix.host.params, "write", mortal)
        with pytest.raises(Death):
            fix.applier().restore(fix.journal.layer)
    assert fix.host.now()["zfs_delay_min_dirty_percent"] == 100
    fix.again()
    fix.applier().restore(fix.journal.layer)
    assert fix.host.now() == DEFAULTS | {"zfs_dirty_data_max": 256 * MIB}


def test_what_is_changed_in_passing_stays_another_programs(fix: Fixture) -> None:
    """Although an earlier layer has it."""
    applier = fix.applier()
    applier.apply({"zfs_dirty_data_max": 256 * MIB})
    fix.journal.end(fix.journal.layer, APPLIED)
    fix.journal.begin("session", "boot:1", "test", {})
    applier.apply({"zfs_dirty_data_max": 384 * MIB})
    fix.host.params.put("zfs_delay_min_dirty_percent", 75)
    applier.restore(fix.journal.layer)
    applier.revert()
    assert fix.host.now() == DEFAULTS | {"zfs_delay_min_dirty_percent": 75}


def test_no_room_for_the_journal_undoes_the_writes(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    applier, intend, left = fix.applier(), fix.journal.intend, 3

    def full(name: str, old: int, new: int) -> None:
        nonlocal left
        left -= 1
        if left < 0 and not fix.journal.tolerant:
            raise NotPossible("cannot write journal, No space left on device")
        intend(name, old, new)

    monkeypatch.setattr(fix.journal, "intend", full)
    with pytest.raises(ApplyError, match="No space left"):
        applier.apply(CANDIDATE)
    assert fix.untouched()


# --- others


def test_a_value_set_by_another_program_is_left(fix: Fixture) -> None:
    applier = fix.applier()
    applier.apply(CANDIDATE)
    fix.host.params.put("zfs_txg_timeout", 33)
    report = applier.restore(fix.journal.layer)
    assert fix.host.now() == DEFAULTS | {"zfs_txg_timeout": 33}
    assert [(o.name, o.value, o.original) for o in report.kept] == [("zfs_txg_timeout", 33, 5)]
    assert recovery.describe(report, fix.host)[-1].startswith(
        "zfs_txg_timeout was set to 33 by another process and is left as it is; `echo 5 > "
    )


def test_a_parameter_set_by_another_program_is_not_set_again(fix: Fixture) -> None:
    applier = fix.applier()
    applier.apply(CANDIDATE)
    fix.host.params.put("zfs_txg_timeout", 33)
    with pytest.raises(Overridden) as found:
        applier.apply({"zfs_txg_timeout": 7, "zfs_dirty_data_max": 512 * MIB})
    assert found.value.names == ("zfs_txg_timeout",)
    assert fix.host.now() == DEFAULTS | CANDIDATE | {"zfs_txg_timeout": 33}
    # again after it is known, and for unchanged values
    with pytest.raises(Overridden):
        applier.apply({"zfs_txg_timeout": 33})


def test_the_same_value_written_by_another_program_is_theirs(fix: Fixture) -> None:
    """Only the watch can notice: they want the same value."""
    applier = fix.applier()
    applier.apply(CANDIDATE)
    time.sleep(0.21)
    fix.host.params.watch_.changes.append(Change("zfs_txg_timeout", 7, "sysctl"))
    assert applier.notice()[0].value == 9
    applier.restore(fix.journal.layer)
    assert fix.host.now() == DEFAULTS | {"zfs_txg_timeout": 9}


def test_another_program_just_before_a_write_wins(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    intend = fix.journal.intend

    def late(name: str, old: int, new: int) -> None:
        intend(name, old, new)
        if name == "zfs_txg_timeout" and new == 9:
            fix.host.params.put(name, 44)

    monkeypatch.setattr(fix.journal, "intend", late)
    with pytest.raises(Overridden, match="another process has just set it to 44"):
        fix.applier().apply(CANDIDATE)
    assert fix.host.now() == DEFAULTS | {"zfs_txg_timeout": 44}


def test_another_program_at_the_same_moment_is_named(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their value was never seen: ours is undone, and they are named."""
    write = fix.host.params.write

    def crossing(name: str, value: int, identity: str | None = None) -> None:
        if (name, value) == ("zfs_txg_timeout", 9):
            fix.host.params.put(name, 44)
            fix.host.params.watch_.changes.append(Change(name, 4711, "bash"))
        write(name, value, identity)

    monkeypatch.setattr(fix.host.params, "write", crossing)
    applier = fix.applier()
    applier.apply(CANDIDATE)
    assert fix.said == [
        "zfs_txg_timeout was written by process 4711 (bash) while this program changed it; "
        "set it again"
    ]
    applier.restore(fix.journal.layer)
    assert fix.untouched()


def test_the_safe_order_skips_what_another_program_has_set(fix: Fixture) -> None:
    """A lowering needs zfs_delay_min_dirty_percent for a moment; theirs is there afterwards."""
    fix.host.params.put("zfs_dirty_data_max", 512 * MIB)
    applier = fix.applier()
    applier.apply({"zfs_dirty_data_max": 2 * GIB, "zfs_delay_min_dirty_percent": 80})
    fix.host.params.put("zfs_delay_min_dirty_percent", 75)
    applier.restore(fix.journal.layer)
    assert fix.host.now() == DEFAULTS | {
        "zfs_dirty_data_max": 512 * MIB,
        "zfs_delay_min_dirty_percent": 75,
    }
    assert ("zfs_delay_min_dirty_percent", 100) in fix.host.params.log


def test_a_counterpart_that_another_program_sets_meanwhile_is_respected(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guard has judged the value beside the previous one; where they meet is a hazard."""
    intend = fix.journal.intend

    def late(name: str, old: int, new: int) -> None:
        intend(name, old, new)
        if (name, new) == (LEAST, 50):
            fix.host.params.put(MOST, 50)

    monkeypatch.setattr(fix.journal, "intend", late)
    with pytest.raises(ApplyError, match=f"cannot set {LEAST} to 50: .*divides by zero"):
        fix.applier().apply({LEAST: 50, "zfs_txg_timeout": 9})
    assert fix.host.now() == DEFAULTS | {MOST: 50}


def test_a_restore_breaks_no_hard_rule_with_what_another_program_has_set(fix: Fixture) -> None:
    applier = fix.applier()
    applier.apply({LEAST: 10, "zfs_txg_timeout": 9}, force=True)
    fix.host.params.put(MOST, 30)
    report = applier.restore(fix.journal.layer)
    assert [name for name, _why in report.failed] == [LEAST]
    assert report.failed[0][1].endswith(f"where they meet; change {MOST} first")
    assert fix.host.now() == DEFAULTS | {LEAST: 10, MOST: 30}
    fix.host.params.put(MOST, 60)
    assert applier.restore(fix.journal.layer).complete
    assert fix.host.now() == DEFAULTS


def test_a_restore_brings_back_a_broken_pair_that_was_there(fix: Fixture) -> None:
    fix.host.params.put(LEAST, 60)
    applier = fix.applier()
    applier.apply({LEAST: 30, MOST: 70}, force=True)
    assert applier.restore(fix.journal.layer).complete
    assert fix.host.now() == DEFAULTS | {LEAST: 60}


def test_a_limit_is_not_lowered_unless_it_is_safe(fix: Fixture) -> None:
    fix.host.params.put("zfs_dirty_data_max", 512 * MIB)
    applier = fix.applier()
    applier.apply({"zfs_dirty_data_max": 2 * GIB, "zfs_txg_timeout": 9})
    fix.host.params.refuse["zfs_delay_min_dirty_percent"] = ParameterError("no")
    report = applier.restore(fix.journal.layer)
    assert report.failed == (("zfs_dirty_data_max", "no"),)
    assert fix.host.now() == DEFAULTS | {"zfs_dirty_data_max": 2 * GIB}
    fix.host.params.refuse.clear()
    applier.restore(fix.journal.layer)
    assert fix.host.now() == DEFAULTS | {"zfs_dirty_data_max": 512 * MIB}


def test_after_a_reload_of_the_module_nothing_is_written(fix: Fixture) -> None:
    applier = fix.applier()
    applier.apply(CANDIDATE)
    for name, value in DEFAULTS.items():
        fix.host.params.put(name, value)
    (fix.host.params.root / ".identity").write_text("boot:2")
    count = len(fix.host.params.log)
    with pytest.raises(ApplyError, match="reloaded"):
        applier.apply({"zfs_txg_timeout": 7})
    report = applier.restore(fix.journal.layer)
    assert set(report.gone) == fix.journal.layer.originals.keys()
    assert len(fix.host.params.log) == count
    assert not fix.journal.history.in_force


def test_a_reload_of_the_module_between_writes_stops_them(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rest of the writes must not reach the new module."""
    write, left = fix.host.params.write, 2

    def reload(name: str, value: int, identity: str | None = None) -> None:
        nonlocal left
        left -= 1
        write(name, value, identity)
        if not left:
            for other, default in DEFAULTS.items():
                fix.host.params.put(other, default)
            (fix.host.params.root / ".identity").write_text("boot:2")

    monkeypatch.setattr(fix.host.params, "write", reload)
    applier = fix.applier()
    # the read back of the last write sees the new module's value
    with pytest.raises(ApplyError):
        applier.apply(CANDIDATE)
    assert len(fix.host.params.log) == 2
    assert fix.host.now() == DEFAULTS
    assert applier.restore(fix.journal.layer).gone


def test_a_vanished_parameter_is_reported_as_gone(fix: Fixture) -> None:
    applier = fix.applier()
    applier.apply(CANDIDATE)
    (fix.host.params.root / "zfs_txg_timeout").unlink()
    report = applier.restore(fix.journal.layer)
    assert report.gone == ("zfs_txg_timeout",)
    assert report.complete


def test_a_failed_restore_stays_open(fix: Fixture) -> None:
    applier = fix.applier()
    applier.apply(CANDIDATE)
    fix.host.params.refuse["zfs_txg_timeout"] = ParameterError("no")
    report = applier.restore(fix.journal.layer)
    assert report.failed == (("zfs_txg_timeout", "no"),)
    assert fix.host.now() == DEFAULTS | {"zfs_txg_timeout": 9}
    assert fix.journal.history.open_layer
    fix.host.params.refuse.clear()
    fix.journal.close()
    recovery.restore_left(fix.host, fix.host.where, fix.said.append)
    assert fix.untouched()


def test_apply_waits_until_the_throttle_is_idle(
    fix: Fixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter(range(3))

    def kstat(name: str) -> Mapping[str, int]:
        return {"dmu_tx_dirty_delay": next(counts, 2), "dmu_tx_wrlog_delay": 0}

    applier = Applier(fix.host, fix.journal, load(), print, still_s=0.02)
    monkeypatch.setattr(fix.host, "kstat", kstat)
    start = time.monotonic()
    applier._wait_still()
    assert 0.06 <= time.monotonic() - start < 2
    assert next(counts, None) is None


def test_originals_have_the_limit_in_force(fix: Fixture) -> None:
    assert fix.applier().originals(["zfs_arc_max", "zfs_txg_timeout", "no_such"]) == {
        "zfs_arc_max": Original(0, 62 * GIB),
        "zfs_txg_timeout": Original(5),
    }


@pytest.mark.usefixtures("in_process")
def test_damaged_journal_never_leads_to_a_wrong_write(fix: Fixture) -> None:
    """Both copies, everywhere: what the intact beginning explains is put back, all else stays."""
    fix.applier().apply(CANDIDATE | {"zfs_commit_timeout_pct": 3})
    fix.applier().apply({"zfs_txg_timeout": 12, "zfs_commit_timeout_pct": 4})
    fix.journal.close()
    before, arc = fix.host.now(), fix.host.params.arc()
    paths = [fix.host.where.state / "journal", fix.host.where.run / "journal"]
    data = paths[0].read_bytes()
    back = 0
    for at in range(0, len(data), 11):
        flipped = data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]
        for directory in (fix.host.where.state, fix.host.where.run):
            (directory / "journal").write_bytes(data[:at] if at % 2 else flipped)
        recovery.restore_left(fix.host, fix.host.where, fix.said.append)
        after = fix.host.now()
        wrong = {n: after[n] for n in after if after[n] not in (before[n], DEFAULTS[n])}
        assert not wrong, at
        back += after == DEFAULTS
        for name, value in before.items():
            fix.host.params.put(name, value)
        assert fix.host.params.arc()["c_max"] == arc["c_max"]
    assert back
