"""The library inside the one file: every way to load it, and what is said when none works."""

from __future__ import annotations

import ctypes
import errno
import lzma
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from support.paths import ROOT

from zfstrace.bpf import embedded
from zfstrace.errors import LibraryMissing

BUILT = ROOT / "tracers/libzfstrace/libzfstrace.so"
ARCHIVE = "/x/zfstune.pyz"


def refuse(number: int) -> object:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refused


def only(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host without memfd whose one folder for copies is this."""
    monkeypatch.setattr("os.memfd_create", refuse(errno.ENOSYS))
    monkeypatch.setattr(embedded, "_folders", lambda: [str(folder)])


@pytest.mark.parametrize(
    ("mode", "taken"), [(0o700, True), (0o755, True), (0o1777, True), (0o777, False)]
)
def test_a_folder_in_which_others_rename_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, *, taken: bool
) -> None:
    tmp_path.chmod(mode)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert (embedded._folders()[0] == str(tmp_path)) is taken
    monkeypatch.setenv("TMPDIR", str(tmp_path / "none"))
    assert embedded._folders()[0] == "/run"


def test_from_memory() -> None:
    found = embedded.load(BUILT.read_bytes(), ARCHIVE)
    assert found.shown == f"in {ARCHIVE}, loaded from memory"
    # again by its name, as each tracer does
    assert ctypes.CDLL(found.path).zfstrace_abi() > 0


def test_an_old_kernel_does_not_know_the_seal(monkeypatch: pytest.MonkeyPatch) -> None:
    real, tried = os.memfd_create, []

    def old(name: str, flags: int) -> int:
        tried.append(flags)
        if flags & embedded._MFD_NOEXEC_SEAL:
            raise OSError(errno.EINVAL, "Invalid argument")
        return real(name, flags)

    monkeypatch.setattr("os.memfd_create", old)
    assert embedded.load(BUILT.read_bytes(), ARCHIVE).shown.endswith("from memory")
    assert len(tried) == 2


def test_a_copy_is_removed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only(tmp_path, monkeypatch)
    found = embedded.load(BUILT.read_bytes(), ARCHIVE)
    assert f"a copy in {tmp_path} (memory: Function not implemented)" in found.shown
    assert list(tmp_path.iterdir()) == []
    assert ctypes.CDLL(found.path).zfstrace_abi() > 0


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_a_full_folder_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    only(tmp_path, monkeypatch)
    monkeypatch.setattr("pathlib.Path.write_bytes", refuse(number))
    with pytest.raises(LibraryMissing) as caught:
        embedded.load(b"", ARCHIVE)
    assert f"{tmp_path}: {os.strerror(number)}" in str(caught.value)
    assert "TMPDIR" in caught.value.hint
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.memfd_create", refuse(errno.EACCES))
    monkeypatch.setattr(embedded, "_folders", lambda: [str(tmp_path / "none"), str(tmp_path)])
    assert f"a copy in {tmp_path} (memory" in embedded.load(BUILT.read_bytes(), ARCHIVE).shown


def test_what_the_loader_says_is_said_without_a_name_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only(tmp_path, monkeypatch)
    with pytest.raises(LibraryMissing) as caught:
        embedded.load(b"no library", ARCHIVE)
    assert "libzfstrace.so" not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("packed", [b"", b"no xz", lzma.compress(b"x" * 9999)[:40]])
def test_damage_is_named(packed: bytes) -> None:
    with pytest.raises(LibraryMissing, match="is damaged"):
        embedded.unpacked(packed, ARCHIVE)


def test_another_machine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    header = bytearray(64)
    header[18] = 183
    with pytest.raises(LibraryMissing, match="is for aarch64, and this machine is") as caught:
        embedded.unpacked(lzma.compress(bytes(header)), ARCHIVE)
    assert f"linux-{os.uname().machine}.pyz" in caught.value.hint


def test_a_checkout_has_none() -> None:
    assert embedded.loaded() is None


@pytest.fixture
def fresh() -> Iterator[None]:
    """As in a process that has not loaded it yet, before and after."""
    embedded._loaded.cache_clear()
    yield
    embedded._loaded.cache_clear()


@pytest.mark.usefixtures("fresh")
def test_threads_that_ask_at_once_get_the_same_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the views of an exporter and the thread that diagnoses."""
    data, at_once, copies = BUILT.read_bytes(), Barrier(8), list[embedded.Embedded]()
    load = embedded.load

    def slowly(data: bytes, archive: str) -> embedded.Embedded:
        copies.append(load(data, archive))
        return copies[-1]

    def ask() -> embedded.Embedded | None:
        at_once.wait(60)
        return embedded.loaded()

    monkeypatch.setattr("zfstrace.packaged.read", lambda *_: lzma.compress(data, preset=0))
    monkeypatch.setattr("zfstrace.packaged.archive", lambda _: ARCHIVE)
    monkeypatch.setattr(embedded, "load", slowly)
    with ThreadPoolExecutor(8) as threads:
        found = [one.result() for one in [threads.submit(ask) for _ in range(8)]]
    assert len(copies) == 1
    assert set(found) == set(copies)
