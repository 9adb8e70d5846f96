"""Which QEMU is installed, and whether it can use KVM, which is tried."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import initrd
from .errors import LabError
from .image import Image, cache_dir
from .process import die_with_parent, find_program

# Older versions race with the kernel's text patching when they emulate CPUs in parallel
STABLE_MAJOR = 10

_PROBE_TIMEOUT_S = 30.0
_PROBE_MARK = b"zfslab: guest code runs"


@dataclass(frozen=True)
class Qemu:
    """An installed QEMU."""

    program: str
    version: tuple[int, int, int]

    @property
    def shown(self) -> str:
        return ".".join(map(str, self.version))


def find() -> Qemu:
    """QEMU from `$ZFSTUNE_QEMU` or PATH. Raises LabError if there is none."""
    wanted = os.environ.get("ZFSTUNE_QEMU") or "qemu-system-x86_64"
    program = find_program(wanted)
    if program is None:
        raise LabError(f"{wanted} not found", "run scripts/bootstrap")
    result = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, errors="replace"
    )
    return Qemu(program, parse_version(result.stdout))


def parse_version(text: str) -> tuple[int, int, int]:
    """The version in the output of `qemu-system-x86_64 --version`."""
    match = re.search(r"version (\d+)\.(\d+)(?:\.(\d+))?", text)
    if match is None:
        raise LabError(f"QEMU does not print its version, but {text[:60]!r}", "reinstall it")
    return int(match[1]), int(match[2]), int(match[3] or 0)


def emulation(version: tuple[int, int, int]) -> str:
    """The `-accel` for emulation that is stable with QEMU `version`."""
    return "tcg,thread=multi" if version[0] >= STABLE_MAJOR else "tcg,thread=single"


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
    if image.system == "freebsd" or not os.access("/dev/kvm", os.R_OK | os.W_OK):
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


def kvm_arguments() -> list[str]:
    """QEMU's arguments for a machine under KVM."""
    return ["-accel", "kvm", "-cpu", "host,migratable=off"]


def _probe_key(qemu: Qemu, image: Image) -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    text = f"{boot} {qemu.program} {qemu.shown} {image.key} {os.geteuid()}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _try_kvm(qemu: Qemu, image: Image) -> bool:
    """Boots the kernel with a first program that prints a line and switches off."""
    with tempfile.TemporaryFile() as ramdisk:
        ramdisk.write(image.initrd.read_bytes() + initrd.per_run({"mode": "probe"}, {}))
        ramdisk.flush()
        command = [
            qemu.program,
            *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none"),
            *("-machine", "q35", *kvm_arguments(), "-smp", "2", "-m", "512M"),
            *("-serial", "stdio", "-kernel", str(image.kernel)),
            *("-initrd", f"/proc/self/fd/{ramdisk.fileno()}"),
            *("-append", "console=ttyS0 quiet panic=-1"),
        ]
        try:
            result = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_PROBE_TIMEOUT_S,
                check=False,
                pass_fds=(ramdisk.fileno(),),
                preexec_fn=die_with_parent(signal.SIGKILL),
            )
        except subprocess.TimeoutExpired:
            return False
    return _PROBE_MARK in result.stdout
