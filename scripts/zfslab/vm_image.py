"""FreeBSD's own VM image, made ready for the lab: downloaded, compared with its published checksum,
and prepared by the script that nuageinit(7) runs at its first boot.

The names of files and what nuageinit does with them: FreeBSD 14.2 and later, releases of
download.freebsd.org; libexec/nuageinit/nuageinit, libexec/rc/rc.d/nuageinit_user_data_script.
"""

from __future__ import annotations

import hashlib
import http.client
import lzma
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import IO

from . import console
from .errors import LabError
from .process import die_with_parent, find_program, scratch_dir
from .qemu import FREEBSD_CPU, Qemu, emulation
from .recipe import PREPARE, Release

MIRROR = "https://download.freebsd.org/releases/VM-IMAGES"
_PREPARED = re.compile(r"^zfslab-prepared (\S+) (\S+)$", re.M)
_PREPARE_TIMEOUT_S = 3600.0
_PART = 1 << 20


def fill(scratch: Path, release: Release, qemu: Qemu, say: Callable[[str], None]) -> dict[str, str]:
    """Makes `disk.qcow2` of `release` in directory `scratch`; returns the versions of its kernel
    and of ZFS. Raises LabError."""
    maker = _iso_maker()
    address = f"{os.environ.get('ZFSTUNE_FREEBSD_MIRROR') or MIRROR}/{release.release}/amd64/Latest"
    name = f"FreeBSD-{release.release}-amd64-BASIC-CLOUDINIT-ufs.qcow2.xz"
    wanted = _checksum(f"{address}/CHECKSUM.SHA512", name)
    packed = scratch / name
    _download(f"{address}/{name}", packed, wanted, say)
    say("unpacking")
    disk = scratch / "disk.qcow2"
    with lzma.open(packed) as source, disk.open("wb") as target:
        _copy(source, target)
    packed.unlink()
    say("its first boot installs Python")
    return _prepare(disk, scratch, maker, qemu)


def _iso_maker() -> list[str]:
    for command in (["genisoimage"], ["mkisofs"], ["xorriso", "-as", "mkisofs"]):
        if find_program(command[0]):
            return command
    raise LabError("genisoimage not found", "apt-get install genisoimage")


def _open(address: str) -> IO[bytes]:
    try:
        opened: IO[bytes] = urllib.request.urlopen(address, timeout=60)
    except (OSError, ValueError) as error:
        why = error.reason if isinstance(error, urllib.error.URLError) else error
        raise LabError(f"{address}: {why}", "set ZFSTUNE_FREEBSD_MIRROR or use --image") from None
    return opened


def _checksum(address: str, name: str) -> str:
    with _open(address) as published:
        text = _part(published, address).decode(errors="replace")
    match = re.search(rf"^SHA512 \({re.escape(name)}\) = ([0-9a-f]{{128}})$", text, re.M)
    if match is None:
        raise LabError(f"{address} has no checksum of {name}", "use --image")
    return match[1]


def _download(address: str, target: Path, wanted: str, say: Callable[[str], None]) -> None:
    found = hashlib.sha512()
    spoken = time.monotonic()
    size = 0
    say(f"downloading {address}")
    with _open(address) as source, target.open("wb") as file:
        length = int(source.headers.get("Content-Length") or 0)  # type: ignore[attr-defined]
        while part := _part(source, address):
            file.write(part)
            found.update(part)
            size += len(part)
            if time.monotonic() - spoken > 10:
                spoken = time.monotonic()
                of = f" of {length >> 20}" if length else ""
                say(f"downloaded {size >> 20}{of} MiB")
    if found.hexdigest() != wanted:
        raise LabError(f"{address}: {size} bytes that do not match the published checksum")


def _part(source: IO[bytes], address: str) -> bytes:
    try:
        return source.read(_PART)
    except (OSError, http.client.HTTPException) as error:
        raise LabError(f"{address}: the download broke off: {error}", "try again") from None


def _copy(source: IO[bytes], target: IO[bytes]) -> None:
    try:
        while part := source.read(_PART):
            target.write(part)
    except (lzma.LZMAError, EOFError) as error:
        raise LabError(f"the image cannot be unpacked: {error}") from None


def _prepare(disk: Path, scratch: Path, maker: list[str], qemu: Qemu) -> dict[str, str]:
    """Boots the image once, with a network, so that it runs PREPARE and switches off."""
    seed = scratch / "seed.iso"
    with tempfile.TemporaryDirectory(dir=scratch_dir()) as directory:
        (Path(directory) / "meta-data").write_text("instance-id: zfslab\n")
        (Path(directory) / "user-data").write_text(PREPARE)
        make = [*maker, "-quiet", "-output", str(seed), "-volid", "cidata", "-rock", directory]
        made = subprocess.run(make, check=False, capture_output=True, text=True, errors="replace")
    if made.returncode:
        why = (made.stderr.strip().splitlines() or [f"status {made.returncode}"])[-1]
        raise LabError(f"{maker[0]} made no image: {why}")
    command = [
        *(qemu.program, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
        *("-machine", "q35", "-accel", emulation(qemu.version), "-cpu", FREEBSD_CPU),
        *("-smp", "2", "-m", "2G", "-serial", "stdio"),
        *("-device", "virtio-rng-pci"),
        *("-drive", f"file={disk},if=none,id=root,format=qcow2", "-device"),
        *("virtio-blk-pci,drive=root", "-cdrom", str(seed)),
        *("-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net"),
    ]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=_PREPARE_TIMEOUT_S,
            check=False,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
    except subprocess.TimeoutExpired:
        raise LabError("FreeBSD's first boot took longer than an hour") from None
    lines = console.clean(done.stdout)
    prepared = _PREPARED.search("\n".join(lines))
    if prepared is None:
        shown = "".join(f"\n  | {line}" for line in lines[-20:])
        raise LabError(f"FreeBSD's first boot did not prepare the image:{shown}", status=1)
    seed.unlink()
    return {"kernel": prepared[1], "zfs": prepared[2]}
