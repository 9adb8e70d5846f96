"""`zfstune status`, `revert` and `recover`, by hand and by what they print."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import pytest
from support.fake_module import ARC, DEFAULTS, GIB, MIB, NAMES, ModuleHost
from support.faults import Faults
from support.hostile import EVIL, raw

from zfstune.changes import recover, recovery, revert, status
from zfstune.changes.journal import Journal
from zfstune.changes.lock import Lock
from zfstune.changes.records import Original, Override
from zfstune.changes.session import ChangeSession, set_values
from zfstune.errors import NotPossible, UsageError
from zfstune.term.signals import deferred_signals
from zfstune.tunables.guard import Refused

CHANGED = {"zfs_txg_timeout": 9, "zfs_dirty_data_max": 256 * MIB}


def change(host: ModuleHost, wanted: dict[str, int] | None = None) -> None:
    set_values(host, wanted or CHANGED, "zfstune params set", print, where=host.where)


def crash(host: ModuleHost) -> None:
    """Leaves what a session leaves that is killed together with its supervisor."""
    lock = Lock.take(host.where, "zfstune tune tank")
    lock.mark_session()
    journal = Journal(host.where, write=True)
    journal.begin("session", "boot:1", "zfstune tune tank", {"zfs_txg_timeout": Original(5)})
    journal.intend("zfs_txg_timeout", 5, 11)
    host.params.put("zfs_txg_timeout", 11)
    journal.close()
    lock.release()


def shown(capsys: pytest.CaptureFixture[str], **options: bool) -> tuple[int, list[str]]:
    code = status.run(Namespace(**({"json": False} | options)))
    return code, capsys.readouterr().out.splitlines()


def reverted(capsys: pytest.CaptureFixture[str], **options: bool) -> tuple[int, list[str]]:
    code = revert.run(Namespace(**({"json": False, "print": False} | options)))
    return code, capsys.readouterr().out.splitlines()


def test_without_a_journal_nothing_is_reverted(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys) == (0, ["no parameter is changed by zfstune"])
    assert reverted(capsys) == (0, ["nothing to restore"])
    assert not host.where.state.exists()
    assert recovery.if_needed() is None


def test_names_of_others_are_printable(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    set_values(host, CHANGED, f"zfstune {EVIL}", print, where=host.where)
    journal = Journal(host.where, write=True, here="boot:1")
    host.params.put("zfs_txg_timeout", 77)
    journal.override(Override("zfs_txg_timeout", 77, 4711, EVIL))
    journal.close()
    capsys.readouterr()
    status.run(Namespace(json=False))
    revert.run(Namespace(json=False, print=False))
    said = capsys.readouterr().out
    assert "by process 4711 (a?]0;owned??b" in said
    assert not raw(said)


def test_the_question_at_each_start_is_cheap(host: ModuleHost) -> None:
    code = (
        "import sys; before = set(sys.modules); from zfstune.changes.recovery import if_needed; "
        "if_needed(); print(*sorted(set(sys.modules) - before))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert set(loaded.split()) <= {
        "zfstrace",
        "zfstrace.errors",
        "zfstune",
        "zfstune.changes",
        *("zfstune.errors", "zfstrace", "zfstrace.errors"),
        "zfstune.changes.paths",
        "zfstune.changes.recovery",
        "importlib",
        "__future__",
        "warnings",
        *("heapq", "_heapq"),  # of collections, in Python 3.9
        # asks the disk in a child process; the command line has loaded the rest
        "zfstune.changes.bounded",
        "errno",
        "select",
        "signal",
        *("enum", "types", "operator", "_operator", "functools", "_functools", "reprlib"),
        *("collections", "_collections", "itertools", "keyword"),
    }


def test_revert_goes_back_to_the_very_first_values(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host)
    change(host, {"zfs_txg_timeout": 12, "zfs_arc_max": 8 * GIB})
    with ChangeSession(host, "tune", NAMES, print, host.where, still_s=0) as session:
        session.apply({"zfs_txg_timeout": 13, "zfs_commit_timeout_pct": 3})
        session.finish(applied=True)
    code, lines = reverted(capsys)
    assert code == 0
    assert host.now() == DEFAULTS
    assert host.params.arc() == ARC
    assert "zfs_txg_timeout: 13s -> 5s" in lines
    assert reverted(capsys) == (0, ["nothing to restore"])
    assert shown(capsys)[1][1].endswith("its values were restored")


def test_revert_keeps_what_another_program_set(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host)
    host.params.put("zfs_txg_timeout", 33)
    code, lines = shown(capsys)
    assert code == 0
    assert any("zfs_txg_timeout" in line and "set by another process" in line for line in lines)
    code, lines = reverted(capsys)
    assert code == 0
    assert any("set to 33 by another process and is left as it is" in line for line in lines)
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 33}
    # setting it again makes theirs the value to go back to
    change(host, {"zfs_txg_timeout": 8})
    assert reverted(capsys)[1] == ["zfs_txg_timeout: 8s -> 33s"]


def test_a_value_of_an_earlier_command_that_another_program_set_is_theirs(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, {"zfs_txg_timeout": 7})
    change(host, {"zfs_txg_timeout": 9})
    host.params.put("zfs_txg_timeout", 7)
    assert any("set by another process" in line for line in shown(capsys)[1])
    code, lines = reverted(capsys)
    assert code == 0
    assert lines[0].startswith("zfs_txg_timeout was set to 7 by another process and is left")
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 7}


def test_a_value_set_by_another_program_becomes_the_one_to_revert_to(host: ModuleHost) -> None:
    change(host)
    host.params.put("zfs_txg_timeout", 33)
    change(host, {"zfs_txg_timeout": 8})
    revert.revert(host, host.where)
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 33}


def test_a_refused_set_leaves_no_trace(host: ModuleHost) -> None:
    with pytest.raises(Refused, match="cannot set"):
        change(host, {"zfs_dirty_data_max": 0})
    assert not (host.where.state / "journal").exists()
    assert host.now() == DEFAULTS


def test_status_lists_changed_parameters(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host)
    code, lines = shown(capsys)
    assert code == 0
    assert lines[0].startswith("set by `zfstune params set` at 20")
    assert [line.split() for line in lines[1:4]] == [
        ["PARAMETER", "NOW", "BEFORE"],
        ["zfs_dirty_data_max", "256M", "4G"],
        ["zfs_txg_timeout", "9", "s", "5", "s"],
    ]
    assert lines[-1] == "undo: `zfstune revert`; keep over a reboot: `zfstune keep`"
    found = json.loads(shown(capsys, json=True)[1][0])
    assert found["state"] == "changed"
    assert found["parameters"][1] == {
        "name": "zfs_txg_timeout",
        "value": 9,
        "before": 5,
        "ours": True,
    }


def test_lasting_effects_are_reported_before_and_after(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    """A dataset that was opened with another zil_maxblocksize keeps it."""
    host.params.put("zil_maxblocksize", 128 << 10)
    change(host, {"zil_maxblocksize": 64 << 10})
    keep = "zil_maxblocksize: datasets and volumes opened meanwhile keep"
    assert any(f"also after `zfstune revert`, {keep}" in line for line in shown(capsys)[1])
    code, lines = reverted(capsys)
    assert code == 0 and lines[0] == "zil_maxblocksize: 64K -> 128K"
    assert lines[1].startswith(keep) and "until they are unmounted and mounted again" in lines[1]
    assert any(line.startswith(keep) for line in shown(capsys)[1])
    change(host, {"zil_maxblocksize": 64 << 10})
    assert json.loads(reverted(capsys, json=True)[1][0])["remains"][0].startswith(keep)
    # with the module it is gone
    (host.params.root / ".identity").write_text("boot:2")
    assert not any(keep in line for line in shown(capsys)[1])


def test_status_names_the_running_session(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    with ChangeSession(host, "zfstune tune tank", NAMES, print, host.where, still_s=0) as session:
        session.apply(CHANGED)
        code, lines = shown(capsys)
        assert code == 0
        assert lines[0].startswith("`zfstune tune tank` is running: process ")
        with pytest.raises(NotPossible, match="is changing parameters"):
            reverted(capsys)
        # another command at the same time restores nothing
        assert recovery.if_needed() is None
        assert host.now() == DEFAULTS | CHANGED


def test_the_next_command_restores(host: ModuleHost, capsys: pytest.CaptureFixture[str]) -> None:
    crash(host)
    code, lines = shown(capsys)
    assert code == 1
    assert "was killed; its values may be in force: run `zfstune recover`" in lines[0]
    assert recovery.if_needed() is not None
    assert host.now() == DEFAULTS
    assert not (host.where.run / "session").exists()
    assert "zfs_txg_timeout: 11s -> 5s" in capsys.readouterr().err
    assert shown(capsys)[0] == 0


def test_recover_leaves_manual_changes(host: ModuleHost) -> None:
    change(host, {"zfs_commit_timeout_pct": 4})
    crash(host)
    assert recover.run(Namespace(wait=False, forget=False)) == 0
    assert host.now() == DEFAULTS | {"zfs_commit_timeout_pct": 4}
    revert.revert(host, host.where)
    assert host.now() == DEFAULTS


def test_recover_leaves_a_value_from_before_an_earlier_command(host: ModuleHost) -> None:
    """Somebody else has set it: the session would have gone back to the 7."""
    change(host, {"zfs_txg_timeout": 7})
    journal = Journal(host.where, write=True)
    journal.begin("session", "boot:1", "zfstune tune tank", {"zfs_txg_timeout": Original(7)})
    journal.intend("zfs_txg_timeout", 7, 20)
    journal.wrote("zfs_txg_timeout", 20)
    journal.close()
    host.params.put("zfs_txg_timeout", 5)
    assert recover.run(Namespace(wait=False, forget=False)) == 0
    assert host.now() == DEFAULTS


def test_revert_after_a_crash_undoes_both_layers(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, {"zfs_commit_timeout_pct": 4})
    crash(host)
    assert reverted(capsys)[0] == 0
    assert host.now() == DEFAULTS


def test_after_a_reboot_there_is_nothing_to_restore(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host)
    (host.where.run / "journal").unlink()
    for name, value in DEFAULTS.items():
        host.params.put(name, value)
    (host.params.root / ".identity").write_text("boot:2")
    count = len(host.params.log)
    assert shown(capsys)[1][0] == (
        "the zfs module was reloaded, which reset the values that were set"
    )
    recovery.if_needed()
    assert "nothing to restore" in capsys.readouterr().err
    assert len(host.params.log) == count
    assert not (host.where.state / "journal").exists()


def test_after_a_reboot_with_a_read_only_disk_nothing_is_changed(
    host: ModuleHost, faults: Faults, capsys: pytest.CaptureFixture[str]
) -> None:
    """The journal cannot be put aside. The value may be the same again, by `zfstune keep`."""
    change(host, {"zfs_txg_timeout": 60})
    (host.where.run / "journal").unlink()
    (host.params.root / ".identity").write_text("boot:2")
    faults.put(host.where.state, errno.EROFS)
    assert recover.run(Namespace(wait=False, forget=False)) == 0
    capsys.readouterr()
    assert shown(capsys) == (0, ["no parameter is changed by zfstune"])
    assert reverted(capsys) == (0, ["nothing to restore"])
    assert host.now() == DEFAULTS | {"zfs_txg_timeout": 60}


def test_a_reload_just_before_a_set_begins_nothing(
    host: ModuleHost, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The next command would take what it sets for a value of the old module, which is gone."""
    change(host, {"zfs_commit_timeout_pct": 4})
    require = recovery.require_restored

    def reload(*given: Any) -> None:
        require(*given)
        (host.params.root / ".identity").write_text("boot:2")

    with monkeypatch.context() as patch:
        patch.setattr(recovery, "require_restored", reload)
        with pytest.raises(NotPossible, match="cannot begin: the zfs module was reloaded"):
            change(host, {"zfs_txg_timeout": 9})
    assert host.params.read("zfs_txg_timeout") == 5
    change(host, {"zfs_txg_timeout": 9})
    assert reverted(capsys)[1][-1] == "zfs_txg_timeout: 9s -> 5s"


def test_print_does_it_without_this_program(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, CHANGED | {"zfs_arc_max": 8 * GIB})
    code, lines = reverted(capsys, print=True)
    assert code == 0
    assert host.now() == DEFAULTS | CHANGED | {"zfs_arc_max": 8 * GIB}
    subprocess.run(["sh", "-e"], input="\n".join(lines), text=True, check=True)
    assert host.now() == DEFAULTS
    # the limit in force comes before the 0 that means "not set"
    arc = [line for line in lines if "zfs_arc_max" in line]
    assert [line.split()[1] for line in arc] == [str(62 * GIB), "0"]


def test_revert_prints_json(host: ModuleHost, capsys: pytest.CaptureFixture[str]) -> None:
    change(host, {"zfs_txg_timeout": 9})
    found = json.loads(reverted(capsys, json=True)[1][0])
    assert found["restored"] == [{"name": "zfs_txg_timeout", "before": 9, "value": 5}]


def test_a_damaged_journal_is_reported(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host)
    for directory in (host.where.state, host.where.run):
        path = directory / "journal"
        path.write_bytes(path.read_bytes()[:200])
    code, lines = shown(capsys)
    assert code == 1
    assert "is not known" in lines[-1]
    assert "a part of the journal cannot be read" in reverted(capsys, print=True)[1][0]
    code, lines = reverted(capsys)
    assert code == 1
    assert "compare with `zfstune params list --changed`" in lines[-1]
    assert (host.where.state / "journal.damaged").exists()
    # unexplained values stay
    assert host.now() == DEFAULTS | CHANGED
    # and keep being reported until the user forgets them
    assert reverted(capsys) == (code, lines)
    assert recover.run(Namespace(wait=False, forget=True)) == 0
    assert reverted(capsys) == (0, ["nothing to restore"])


def test_a_state_directory_that_is_a_link_is_refused(host: ModuleHost) -> None:
    host.where.state.parent.mkdir(parents=True, exist_ok=True)
    host.where.state.symlink_to("/tmp")
    with pytest.raises(NotPossible, match="symbolic link"):
        recover.run(Namespace(wait=False, forget=False))


def test_a_journal_that_is_a_directory_is_status_1(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host)
    for directory in (host.where.state, host.where.run):
        (directory / "journal").unlink()
        (directory / "journal").mkdir()
    assert shown(capsys)[0] == 1
    assert reverted(capsys)[0] == 1


# --- signals


def interrupted(host: ModuleHost) -> None:
    """Each write comes with a Ctrl-C."""
    write = type(host.params).write

    def one(name: str, value: int, identity: str | None = None) -> None:
        signal.raise_signal(signal.SIGINT)
        write(host.params, name, value, identity)

    host.params.write = one  # type: ignore[method-assign]


@pytest.mark.parametrize(
    "way",
    [
        lambda host: recovery.if_needed(),
        lambda host: recovery.restore_now(host, host.where, "zfstune recover", print, 0),
        lambda host: recovery.require_restored(host, host.where, print),
        lambda host: revert.revert(host, host.where),
        lambda host: change(host, {"zfs_txg_timeout": 8}),
    ],
)
def test_a_signal_is_deferred_until_after_the_recovery(
    host: ModuleHost, way: Callable[[ModuleHost], object]
) -> None:
    change(host, {"zfs_commit_timeout_pct": 4})
    crash(host)
    interrupted(host)
    with pytest.raises(KeyboardInterrupt):
        way(host)
    assert host.params.read("zfs_txg_timeout") == 5
    assert Journal(host.where, write=False).history.open_layer is None
    assert not (host.where.run / "session").exists()


def test_a_signal_is_deferred_until_after_a_revert(host: ModuleHost) -> None:
    change(host, {"zfs_commit_timeout_pct": 4})
    crash(host)
    interrupted(host)
    with pytest.raises(KeyboardInterrupt):
        revert.revert(host, host.where)
    assert host.now() == DEFAULTS


def test_waiting_for_a_session_can_be_interrupted(host: ModuleHost) -> None:
    lock = Lock.take(host.where, "zfstune tune tank")
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        recovery.restore_now(host, host.where, "zfstune recover", print, -1)
    timer.join()
    lock.release()


def test_nested_blocks_defer_signals_to_the_outer_end() -> None:
    seen = []
    with pytest.raises(KeyboardInterrupt), deferred_signals():
        with deferred_signals():
            signal.raise_signal(signal.SIGINT)
        seen.append("after the inner one")
    assert seen
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


# --- the mark of a session


def test_set_does_not_start_the_recovery(host: ModuleHost, monkeypatch: pytest.MonkeyPatch) -> None:
    marks = []
    write = type(host.params).write

    def one(name: str, value: int, identity: str | None = None) -> None:
        marks.append((host.where.run / "session").exists())
        write(host.params, name, value, identity)

    monkeypatch.setattr(host.params, "write", one)
    change(host)
    assert set(marks) == {False}


def test_the_next_command_undoes_a_killed_set(host: ModuleHost) -> None:
    change(host, {"zfs_commit_timeout_pct": 4})
    if not (pid := os.fork()):
        write = type(host.params).write

        def one(name: str, value: int, identity: str | None = None) -> None:
            write(host.params, name, value, identity)
            if name == "zfs_txg_timeout":
                os.kill(os.getpid(), signal.SIGKILL)

        host.params.write = one  # type: ignore[method-assign]
        try:
            change(host, {"zfs_txg_timeout": 9, "zil_slog_bulk": MIB})
        finally:
            os._exit(1)
    os.waitpid(pid, 0)
    assert host.params.read("zfs_txg_timeout") == 9
    assert recovery.if_needed() is not None
    assert host.now() == DEFAULTS | {"zfs_commit_timeout_pct": 4}


def test_the_mark_stays_until_all_is_restored(host: ModuleHost) -> None:
    from zfstrace.errors import ParameterError

    crash(host)
    host.params.refuse["zfs_txg_timeout"] = ParameterError("cannot set zfs_txg_timeout, no")
    with pytest.raises(NotPossible, match="could not be restored"):
        change(host, {"zfs_delay_scale": 400000})
    with pytest.raises(NotPossible, match="could not be restored"):
        ChangeSession(host, "tune", NAMES, print, host.where, still_s=0).__enter__()
    assert (host.where.run / "session").exists()
    host.params.refuse.clear()
    revert.revert(host, host.where)
    assert host.now() == DEFAULTS
    assert not (host.where.run / "session").exists()


# --- what a set leaves that fails


@pytest.mark.parametrize("earlier", ["zfs_txg_timeout", "zfs_commit_timeout_pct"])
def test_a_refused_set_is_not_recorded_as_applied(
    host: ModuleHost, capsys: pytest.CaptureFixture[str], earlier: str
) -> None:
    change(host, {earlier: 9})
    with pytest.raises(Refused):
        change(host, {"zfs_txg_timeout": 0, "zil_slog_bulk": MIB})
    assert [one["command"] for one in status.collect(host, host.where)["layers"]] == [
        "zfstune params set"
    ]
    host.params.put("zil_slog_bulk", 3 * MIB)
    code, lines = reverted(capsys)
    assert (code, [line.partition(":")[0] for line in lines]) == (0, [earlier])
    assert host.now() == DEFAULTS | {"zil_slog_bulk": 3 * MIB}


@pytest.mark.parametrize("before", [{}, {"zfs_txg_timeout": 8}])
def test_a_failed_set_keeps_the_previous_values(host: ModuleHost, before: dict[str, int]) -> None:
    from zfstrace.errors import ParameterError
    from zfstune.changes.apply import ApplyError

    if before:
        change(host, before)
    found = status.collect(host, host.where)
    host.params.refuse["zil_slog_bulk"] = ParameterError("cannot set zil_slog_bulk, no")
    with pytest.raises(ApplyError):
        change(host, {"zfs_txg_timeout": 9, "zil_slog_bulk": MIB})
    assert host.now() == DEFAULTS | before
    again = status.collect(host, host.where)
    assert {**again, "last": None} == {**found, "last": None}


# --- the command lines


def test_print_is_not_json() -> None:
    from zfstune.cli import build_parser

    with pytest.raises(UsageError, match="not allowed with"):
        build_parser().parse_args(["revert", "--print", "--json"])


def test_status_names_a_damaged_journal(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    path = host.where.state / "journal.damaged"
    change(host)
    path.write_bytes(b"x")
    assert shown(capsys)[1][0] == (
        f"zfstune: {path} is a journal that was put aside; it can be removed"
    )
