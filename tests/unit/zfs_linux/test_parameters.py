"""The parameters in /sys, and who writes them."""

from __future__ import annotations

import errno
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from zfs_linux.fanotify import FanotifyWatch
from zfs_linux.parameters import LinuxParameters
from zfstrace.errors import ParameterError
from zfstrace.params import Change, ComparingWatch, Watch


@pytest.fixture
def params(tmp_path: Path) -> LinuxParameters:
    directory = tmp_path / "sys/module/zfs/parameters"
    directory.mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("d6\n")
    for name, text in {"a": "5\n", "b": "-1\n", "c": "sha256 [fletcher4]\n"}.items():
        (directory / name).write_text(text)
    return LinuxParameters(tmp_path)


def path(tmp_path: Path, name: str) -> Path:
    return tmp_path / "sys/module/zfs/parameters" / name


def test_missing_and_unreadable_parameters_are_none(params: LinuxParameters) -> None:
    assert params.names() == ["a", "b", "c"]
    assert [params.read(name) for name in ("a", "b", "c", "no")] == [5, -1, None, None]


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_what_cannot_be_opened_now_is_not_gone(
    params: LinuxParameters, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """A restore would take that for a reload of the module, and leave its values in force."""

    def full(*_: object, **_named: object) -> str:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "read_text", full)
    with pytest.raises(OSError, match=os.strerror(number)):
        params.read("a")
    with pytest.raises(OSError, match=os.strerror(number)):
        params.identity()


def test_what_was_written_is_read(params: LinuxParameters, tmp_path: Path) -> None:
    params.write("a", 7)
    assert params.read("a") == 7
    assert not params.writable("no")
    assert params.writable("a")
    path(tmp_path, "a").chmod(0o444)
    assert not params.writable("a")


@pytest.mark.parametrize(
    ("error", "text", "hint"),
    [
        (FileNotFoundError(2, ""), "cannot set a: ZFS has no such parameter here", ""),
        (PermissionError(13, ""), "cannot set a: no permission to write .*/a$", "run as root"),
        (OSError(22, "Invalid argument"), "cannot set a to 1: the kernel refuses it: Invalid", ""),
    ],
)
def test_errors_say_why_and_what_to_do(
    params: LinuxParameters, monkeypatch: pytest.MonkeyPatch, error: OSError, text: str, hint: str
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(ParameterError, match=text) as caught:
        params.write("a", 1)
    assert caught.value.hint == hint


def test_the_identity_changes_with_the_module(params: LinuxParameters, tmp_path: Path) -> None:
    before = params.identity()
    assert before.startswith("d6:")
    module = tmp_path / "sys/module/zfs"
    module.rename(tmp_path / "sys/module/old")
    assert params.identity() == ""
    assert params.names() == []
    module.mkdir()
    assert params.identity() not in ("", before)


def test_nothing_is_written_to_another_module(
    params: LinuxParameters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither to one that is there already nor to one that comes after the check."""
    identity, module = params.identity, tmp_path / "sys/module/zfs"
    meant = identity()
    params.write("a", 6, meant)
    with pytest.raises(ParameterError, match="reloaded"):
        params.write("a", 7, "d6:1")
    assert params.read("a") == 6

    def reload() -> str:
        found = identity()
        module.rename(tmp_path / "sys/module/old")
        path(tmp_path, "a").parent.mkdir(parents=True)
        path(tmp_path, "a").write_text("5")
        return found

    monkeypatch.setattr(params, "identity", reload)
    params.write("a", 7, meant)
    assert params.read("a") == 5


def test_an_unloaded_module_is_named(
    params: LinuxParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kernfs returns ENODEV for files opened before."""

    def gone(*_: object) -> None:
        raise OSError(errno.ENODEV, "No such device")

    monkeypatch.setattr(os, "write", gone)
    with pytest.raises(ParameterError, match="reloaded"):
        params.write("a", 7)


def test_the_command_to_set_a_parameter_is_echo(params: LinuxParameters) -> None:
    assert params.shell("a", 7) == "echo 7 > /sys/module/zfs/parameters/a"


def test_a_comparing_watch_sees_values_of_others(params: LinuxParameters, tmp_path: Path) -> None:
    watch = ComparingWatch(params.read, ["a", "b", "no"], params._forget)
    params._comparing.append(watch)
    params.write("a", 6)
    assert watch.poll() == []
    path(tmp_path, "a").write_text("8")
    assert watch.poll() == [Change("a")]
    assert watch.poll() == []
    watch.close()
    assert params._comparing == []


@pytest.fixture
def watch(tmp_path: Path, params: LinuxParameters) -> Iterator[FanotifyWatch]:
    try:
        found = FanotifyWatch([path(tmp_path, "a"), path(tmp_path, "b")], {os.getpid()})
    except OSError as error:
        pytest.skip(f"no fanotify here: {error}")
    yield found
    found.close()


def test_without_room_for_a_thread_there_is_no_watch_and_no_descriptor(
    tmp_path: Path, params: LinuxParameters, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(
        "zfs_linux.fanotify._open_group", lambda _: os.open(os.devnull, os.O_RDONLY)
    )
    monkeypatch.setattr(threading.Thread, "start", start)
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    for _ in range(5):
        assert isinstance(params.watch(["a"]), ComparingWatch)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before


def wait(watch: Watch, count: int) -> list[Change]:
    found: list[Change] = []
    end = time.monotonic() + 10
    while len(found) < count and time.monotonic() < end:
        found += watch.poll()
        time.sleep(0.01)
    return found


def test_fanotify_names_the_writer(watch: FanotifyWatch, tmp_path: Path) -> None:
    path(tmp_path, "a").write_text("6")  # our own
    process = subprocess.Popen(
        ["sh", "-c", f"echo 9 > {path(tmp_path, 'b')}; read line"], stdin=subprocess.PIPE
    )
    assert wait(watch, 1) == [Change("b", process.pid, "sh")]
    process.communicate(b"\n")
    assert watch.poll() == []


def test_fanotify_notices_a_writer_that_has_ended(watch: FanotifyWatch, tmp_path: Path) -> None:
    process = subprocess.Popen(["sh", "-c", f"echo 9 > {path(tmp_path, 'b')}"])
    process.wait()
    (found,) = wait(watch, 1)
    assert (found.name, found.pid) == ("b", process.pid)
    assert found.comm in ("sh", None)


def test_fanotify_goes_on_after_a_lack_of_descriptors(
    watch: FanotifyWatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel opens the file for each event."""
    failures = [OSError(errno.EMFILE, os.strerror(errno.EMFILE))]
    real = os.read

    def read(fd: int, size: int) -> bytes:
        if fd == watch._group and failures:
            raise failures.pop()
        return real(fd, size)

    monkeypatch.setattr(os, "read", read)
    subprocess.run(["sh", "-c", f"echo 9 > {path(tmp_path, 'b')}"], check=True)
    assert {one.name for one in wait(watch, 1)} == {"b"}
    assert not failures


def test_without_fanotify_values_are_compared(
    params: LinuxParameters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no(*_: object) -> int:
        raise OSError(1, "Operation not permitted")

    monkeypatch.setattr("zfs_linux.fanotify._open_group", no)
    found = params.watch(["a", "no"])
    assert isinstance(found, ComparingWatch)
    path(tmp_path, "a").write_text("8")
    assert found.poll() == [Change("a")]
