"""Which QEMU is installed, and how it emulates or uses KVM."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass

from .errors import LabError
from .process import find_program

# Older versions race with the kernel's text patching when they emulate CPUs in parallel
STABLE_MAJOR = 10

ONE_THREAD = "tcg,thread=single"

# Emulated, for FreeBSD: with AVX2 its zfs.ko panics while it is loaded, in
# zfs_sha256_transform_avx2() (QEMU 10.0.2)
FREEBSD_CPU = "max,-avx2"


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
    return "tcg,thread=multi" if version[0] >= STABLE_MAJOR else ONE_THREAD


def kvm_arguments() -> list[str]:
    """QEMU's arguments for a machine under KVM."""
    return ["-accel", "kvm", "-cpu", "host,migratable=off"]
