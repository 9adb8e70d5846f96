"""scripts/lab's session with a guest that hangs, or a command that does not end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.fake_lab import FakeEmulator, fake_image
from support.paths import ROOT

from zfslab import cli, disk, machine, session
from zfslab.errors import GUEST_FAILED, LabError

READY = [(b"R", b'{"uptime_s": 1.0}'), (b"O", b"said\n")]
ENDED = [*READY, (b"X", b"7")]
HUNG = "lab: the guest was not ready after 3s\n"
AGAIN = "lab: nothing has run in it, so it is booted again\n"


def run(
    emulator: FakeEmulator,
    path: Path,
    accelerator: str = "tcg,thread=multi",
    out: Path | None = None,
) -> int:
    return session.run(
        emulator.qemu,
        accelerator,
        fake_image(path),
        machine.Options(path, out=out),
        ["true"],
        limits=session.Limits(boot_s=3.0, command_s=3.0),
    )


def test_an_emulated_guest_that_hangs_at_boot_is_booted_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    emulator = FakeEmulator(tmp_path, 2, ENDED)
    assert run(emulator, tmp_path) == 7
    assert emulator.boots() == 3
    assert capfd.readouterr() == ("said\n", (HUNG + AGAIN) * 2)


def test_a_guest_whose_emulator_crashes_at_boot_is_booted_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    emulator = FakeEmulator(tmp_path, 1, ENDED, crashes=True)
    assert run(emulator, tmp_path) == 7
    assert emulator.boots() == 2
    crash = "lab: QEMU says: physmem.c:2678: Assertion failed.\n"
    stopped = "lab: the guest stopped before it was ready\n"
    assert capfd.readouterr() == ("said\n", crash + stopped + AGAIN)


@pytest.mark.parametrize("oops", ["Oops: int3: 0000 [#1] PREEMPT SMP NOPTI", "int3: 0000 [#1] SMP"])
def test_an_emulated_kernel_that_trips_over_its_own_patch_is_booted_again(
    oops: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    emulator = FakeEmulator(tmp_path, 1, ENDED, console=f"[    3.384094] {oops}\n")
    assert run(emulator, tmp_path) == 7
    assert emulator.boots() == 2
    assert f"guest kernel oops: {oops} (the guest stopped" in capfd.readouterr().err


def test_any_other_oops_is_a_failure(tmp_path: Path) -> None:
    oops = "[    3.384094] Oops: general protection fault: 0000 [#1] PREEMPT SMP NOPTI\n"
    emulator = FakeEmulator(tmp_path, 1, ENDED, console=oops)
    assert run(emulator, tmp_path) == GUEST_FAILED
    assert emulator.boots() == 1


def test_an_emulator_that_crashes_each_time_is_a_failure(tmp_path: Path) -> None:
    emulator = FakeEmulator(tmp_path, 9, ENDED, crashes=True)
    assert run(emulator, tmp_path) == GUEST_FAILED
    assert emulator.boots() == 3


def test_the_third_boot_is_the_last(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    emulator = FakeEmulator(tmp_path, 9, ENDED)
    assert run(emulator, tmp_path) == GUEST_FAILED
    assert emulator.boots() == 3
    assert capfd.readouterr() == ("", (HUNG + AGAIN) * 2 + HUNG)


def test_a_guest_under_kvm_is_booted_once(tmp_path: Path) -> None:
    emulator = FakeEmulator(tmp_path, 1, ENDED)
    assert run(emulator, tmp_path, "kvm") == GUEST_FAILED
    assert emulator.boots() == 1


def test_a_command_that_takes_too_long_is_not_run_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    emulator = FakeEmulator(tmp_path, 0, READY)
    assert run(emulator, tmp_path) == GUEST_FAILED
    assert emulator.boots() == 1
    assert "timeout: the command took longer than 3s" in capfd.readouterr().err


def test_files_that_cannot_be_unpacked_are_an_error(tmp_path: Path) -> None:
    broken = [*READY, (b"A", b"no archive " * 100), (b"X", b"0")]
    emulator = FakeEmulator(tmp_path, 0, broken)
    with pytest.raises(LabError, match="not all files of /out could be written"):
        run(emulator, tmp_path, out=tmp_path)


def test_an_error_of_the_system_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(_given: object) -> int:
        raise OSError(28, "No space left on device", "/cache/build.log")

    monkeypatch.setitem(cli._COMMANDS, "list", fails)
    assert cli.main(["list"]) == 3
    assert capsys.readouterr() == ("", "lab: error: /cache/build.log: No space left on device\n")


def test_a_disk_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    emulator = FakeEmulator(tmp_path, 0, ENDED)
    options = machine.Options(tmp_path, disks=(disk.Disk(size_bytes=1 << 70),))
    with pytest.raises(LabError, match=r"^--disk size=1099511627776.0G: a file in "):
        session.run(
            *(emulator.qemu, "kvm", fake_image(tmp_path), options, ["true"]),
            limits=session.Limits(boot_s=3.0, command_s=3.0),
        )


# The host reads more slowly than `yes` writes.
AGENT = """\
import os, signal, sys, time
from zfslab.guest import agent
wakeup, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
signal.signal(signal.SIGCHLD, lambda *_: None)
agent.send = lambda *_: time.sleep(0.02)
command = {"argv": ["sh", "-c", "yes & sleep 0.1; exit 7"], "tty": False, "environment": {}}
sys.exit(agent.run_with_pipes(-1, wakeup, command))
"""


def test_a_command_ends_although_a_process_that_it_left_goes_on_writing() -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT / "scripts")}
    done = subprocess.run([sys.executable, "-c", AGENT], env=env, timeout=30, check=False)
    assert done.returncode == 7
