"""libzfstrace.so out of the one file of `make dist`: loaded from memory, else from a copy."""

from __future__ import annotations

import ctypes
import functools
import os
import stat
import threading
from dataclasses import dataclass
from pathlib import Path

from zfstrace import packaged
from zfstrace.bpf import loading
from zfstrace.errors import LibraryMissing

FILE = "libzfstrace.so.xz"  # beside this module
# linux/memfd.h: what vm.memfd_noexec=2 demands, and Linux before 6.3 does not know
_MFD_NOEXEC_SEAL = 8
_ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Embedded:
    """A loaded library: its name for dlopen(3) in this process, and where it is, for people."""

    path: str
    shown: str


def loaded() -> Embedded | None:
    """The library, loaded once, whatever threads ask for it: two copies in a process would number
    their sessions alike, and take each other's kprobes for their own. None if the code runs from no
    such file. Raises LibraryMissing."""
    with _ONE_AT_A_TIME:
        return _loaded()


@functools.lru_cache(maxsize=1)
def _loaded() -> Embedded | None:
    try:
        packed = packaged.read("zfstrace.bpf", FILE)
    except OSError:
        return None
    archive = packaged.archive("zfstrace.bpf")
    return load(unpacked(packed, archive), archive)


def unpacked(packed: bytes, archive: str) -> bytes:
    """The shared object. Raises LibraryMissing if it is damaged, or of another machine."""
    try:
        data = packaged.unpacked(packed)
    except ValueError as error:
        raise LibraryMissing(
            f"cannot trace: the library in {archive} is damaged ({error})",
            "copy the file again, and compare it with SHA256SUMS",
        ) from None
    made = loading.MACHINES.get(int.from_bytes(data[18:20], "little"), "another machine")
    here = os.uname().machine
    if made != here:
        raise LibraryMissing(
            f"cannot trace: {archive} is for {made}, and this machine is {here}",
            f"use the file whose name ends in linux-{here}.pyz",
        )
    return data


def load(data: bytes, archive: str) -> Embedded:
    """Loads a shared object. Raises LibraryMissing with what each way said."""
    refused = []
    for place in ("memory", *_folders()):
        try:
            path = _in_memory(data) if place == "memory" else _copied(data, place)
        except OSError as error:
            # dlopen(3) has no errno, and begins with a name that is gone
            why = error.strerror or str(error).rpartition(": ")[2]
            refused.append(f"{place}: {why}")
            continue
        way = "memory" if place == "memory" else f"a copy in {place} ({refused[0]})"
        return Embedded(path, f"in {archive}, loaded from {way}")
    raise LibraryMissing(
        f"cannot trace: the library in {archive} cannot be loaded ({'; '.join(refused)})",
        "set TMPDIR to a folder with 2 MB of room, on a file system that is not mounted noexec",
    )


def _in_memory(data: bytes) -> str:
    if not hasattr(os, "memfd_create"):
        raise OSError("this Python has no memfd_create")
    try:
        fd = os.memfd_create(FILE, os.MFD_CLOEXEC | _MFD_NOEXEC_SEAL)
    except OSError:
        fd = os.memfd_create(FILE, os.MFD_CLOEXEC)
    path = f"/proc/self/fd/{fd}"
    try:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(data)
        ctypes.CDLL(path)
    except OSError:
        os.close(fd)
        raise
    # It stays open: the number is the library's name, and must not become another file's.
    return path


def _copied(data: bytes, folder: str) -> str:
    """Once loaded, a library is known by its name, and needs the file no more."""
    import shutil  # both take time to load, and are seldom needed
    import tempfile

    made = Path(tempfile.mkdtemp(prefix="zfstune-", dir=folder))
    try:
        path = made / "libzfstrace.so"
        path.write_bytes(data)
        ctypes.CDLL(str(path))
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return str(path)


def _folders() -> list[str]:
    """Where a copy may be, the likeliest first."""
    named = os.environ.get("TMPDIR", "")
    found = ("/run", "/tmp", "/var/tmp", "/dev/shm")
    return list(dict.fromkeys((named, *found) if named and _safe(named) else found))


def _safe(folder: str) -> bool:
    """Whether nobody else could put something in the place of what is made in a folder. TMPDIR may
    be that of the user who has become root."""
    try:
        status = Path(folder).stat()
    except OSError:
        return False
    others_write = status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX
    return status.st_uid in (0, os.geteuid()) and not others_write
