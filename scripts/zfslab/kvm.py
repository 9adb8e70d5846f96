"""Whether QEMU can use KVM, which is tried."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from . import initrd
from .image import Image, cache_dir
from .process import die_with_parent
from .qemu import STABLE_MAJOR, Qemu, emulation, kvm_arguments

_PROBE_TIMEOUT_S = 30.0
_PROBE_MARK = b"zfslab: guest code runs"
_FREEBSD_MARK = b"The FreeBSD Project"


def accelerator(qemu: Qemu, image: Image, wanted: str = "auto") -> str:
    """The value for `-accel`. `wanted` is auto, kvm or tcg."""
    if wanted == "kvm" or (wanted == "auto" and kvm_works(qemu, image)):
        return "kvm"
    if qemu.version[0] < STABLE_MAJOR:
        print(
            f"lab: QEMU {qemu.shown} is older than {STABLE_MAJOR} and emulates all CPUs in one "
            "thread, slowly; run scripts/bootstrap for a newer one",
            file=sys.stderr,
        )
    return emulation(qemu.version)


def kvm_works(qemu: Qemu, image: Image) -> bool:
    """Whether the kernel of `image` reaches its first program under KVM.

    `/dev/kvm` alone says little: some nested and restricted ones cannot run a stock kernel. The
    answer is cached until the next boot.
    """
    if not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    answers = cache_dir() / "kvm.json"
    key = _probe_key(qemu, image)
    try:
        known = json.loads(answers.read_text())
        return bool(known[key])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    works = _try_kvm(qemu, image)
    try:
        with tempfile.NamedTemporaryFile("w", dir=cache_dir(), prefix="kvm.", delete=False) as file:
            json.dump({key: works}, file)
        Path(file.name).replace(answers)
    except OSError:
        pass  # only not cached
    return works


def _probe_key(qemu: Qemu, image: Image) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    text = f"{boot} {qemu.program} {qemu.shown} {image.key} {os.geteuid()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _try_kvm(qemu: Qemu, image: Image) -> bool:
    """Boots the kernel, until its first program prints a line and switches off, or FreeBSD's own
    first line."""
    with tempfile.TemporaryFile() as ramdisk:
        if image.system == "freebsd":
            mark = _FREEBSD_MARK
            kernel = [
                *("-drive", f"file={image.disk},if=none,id=root,format=qcow2,snapshot=on"),
                *("-device", "virtio-blk-pci,drive=root"),
            ]
        else:
            mark = _PROBE_MARK
            ramdisk.write(image.initrd.read_bytes() + initrd.per_run({"mode": "probe"}, {}))
            ramdisk.flush()
            kernel = [
                *("-kernel", str(image.kernel), "-initrd", f"/proc/self/fd/{ramdisk.fileno()}"),
                *("-append", "console=ttyS0 quiet panic=-1"),
            ]
        command = [
            qemu.program,
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-machine", "q35", *kvm_arguments(), "-smp", "2", "-m", "512M"),
            *("-serial", "stdio", *kernel),
        ]
        try:
            said = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_PROBE_TIMEOUT_S,
                check=False,
                pass_fds=(ramdisk.fileno(),),
                preexec_fn=die_with_parent(signal.SIGKILL),
            ).stdout
        except subprocess.TimeoutExpired as timeout:
            said = timeout.stdout or b""
    return mark in said
