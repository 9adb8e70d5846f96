"""Writes of parameters, by whom, and the lock of memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.fake_module import ModuleHost

from zfstrace.params import Change
from zfstune.record.changes import ParameterChanges, by

DIRTY = "zfs_dirty_data_max"


def test_a_change_of_a_value_is_reported_once(host: ModuleHost) -> None:
    changes = ParameterChanges(host)
    assert changes.poll() == []
    before = host.parameters().read(DIRTY)
    watch = host.parameters().watch([DIRTY])
    host.parameters().put(DIRTY, 5 << 30)
    watch.changes += [Change(DIRTY, 4711, "bash"), Change(DIRTY, 4711, "bash")]
    (one,) = changes.poll()
    assert (one["name"], one["old"], one["new"], one["by"]) == (DIRTY, before, 5 << 30, "other")
    assert changes.poll() == []
    changes.close()
    changes.close()


def test_a_write_by_zfstune_is_known_by_its_name_or_its_journal(
    host: ModuleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert by(Change(DIRTY, 1, "zfstune"), 5) == "zfstune"
    assert by(Change(DIRTY), 5) == "other"
    host.where.run.mkdir(parents=True, exist_ok=True)
    (host.where.run / "journal").symlink_to("/etc/passwd")
    # what cannot be read tells nothing
    assert by(Change(DIRTY), 5) is None


def test_the_journal_of_a_command_tells(
    host: ModuleHost, capsys: pytest.CaptureFixture[str]
) -> None:
    from zfstune import cli

    value = (host.parameters().read(DIRTY) or 0) // 2
    assert cli.main(["params", "set", f"{DIRTY}={value}"]) == 0, capsys.readouterr().err
    assert by(Change(DIRTY, 4711, "python3"), value) == "zfstune"
    assert by(Change(DIRTY, 4711, "python3"), value + 1) == "other"


def test_memory_is_locked_or_it_is_said_why() -> None:
    """In a process of its own, which then reads its status."""
    code = (
        "from zfstune.record import memory; import pathlib;"
        "memory.preload(); why = memory.lock();"
        "status = pathlib.Path('/proc/self/status').read_text();"
        "locked = [int(l.split()[1]) for l in status.splitlines() if l.startswith('VmLck')][0];"
        "assert bool(why) != bool(locked > 1000), (why, locked)"
    )
    path = os.pathsep.join(
        str(Path(__file__).parents[3] / part) for part in ("tracers", "tuner", "platform/linux")
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_with_a_limit_memory_is_not_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    from zfstune.record import memory

    monkeypatch.undo()
    monkeypatch.setattr(memory, "_allowed", lambda: False)
    assert "RLIMIT_MEMLOCK is too low" in memory.lock()
