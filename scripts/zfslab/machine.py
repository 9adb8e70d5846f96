"""The virtual machine: QEMU's command line and the guest's configuration, from options."""

from __future__ import annotations

import os
import signal
import socket
import string
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from . import freebsd, initrd, instructions, slow_disk
from .disk import Disk
from .errors import USAGE, LabError
from .image import Image
from .process import die_with_parent, scratch_dir
from .qemu import FREEBSD_CPU, Qemu, kvm_arguments
from .units import format_size

_MAX_DISKS = 25  # /dev/vdb to /dev/vdz

_KERNEL_ARGUMENTS = (
    "console=ttyS0",
    "quiet",
    # an oops ends the run at once, as does a failed assertion in ZFS, which by default only stops
    # its thread
    "panic=-1",
    "oops=panic",
    "spl.spl_panic_halt=1",
    # irrelevant to what is measured here, but slow under emulation
    "mitigations=off",
    "apparmor=0",
    "audit=0",
)

# All emulated CPUs read the host's time stamp counter, which is consistent, but the guest cannot
# know that: if the host pauses, the guest's watchdog distrusts the counter and switches the clock
# source in the middle of a run. With more guests than CPUs, the timer may be so late at boot that
# the kernel considers it broken and panics, so the check is off.
_EMULATION_ARGUMENTS = ("tsc=reliable", "no_timer_check")


@dataclass(frozen=True)
class Options:
    """The choices for a machine."""

    checkout: Path
    cpus: int = 2
    possible_cpus: int = 0  # beyond `cpus`, not plugged in
    memory_bytes: int = 4 << 30
    disks: tuple[Disk, ...] = ()
    share: Path | None = None
    out: Path | None = None
    zfs: bool = True
    kernel_arguments: tuple[str, ...] = ()
    reboots: int = 0  # how often the command may reboot the guest
    instructions: Path | None = None  # where their counts are left
    systemd: bool = False  # as process 1, instead of the agent


@dataclass(frozen=True)
class Launch:
    """A command line for QEMU and the file descriptors that it must inherit."""

    command: list[str]
    descriptors: tuple[int, ...]


def launch(
    qemu: Qemu,
    accelerator: str,
    image: Image,
    options: Options,
    command: dict[str, object],
    port: int,
    console: IO[bytes],
    files: ExitStack,
) -> Launch:
    """The command line for one run.

    `port` is the agent's socket, `console` receives the kernel's messages. All files made here are
    unnamed (`files` closes them), so nothing stays behind, however the run ends.
    """
    if len(options.disks) > _MAX_DISKS:
        what = f"{len(options.disks)} disks are too many: at most {_MAX_DISKS} are possible"
        raise LabError(what, status=USAGE)
    descriptors = [port, console.fileno()]
    arguments = [
        qemu.program,
        *("-nodefaults", "-no-user-config", "-display", "none"),
        *(() if options.reboots else ("-no-reboot",)),
        *("-machine", "q35", *_processor(accelerator, image)),
        *("-smp", f"{options.cpus},maxcpus={max(options.cpus, options.possible_cpus)}"),
        *("-m", f"{options.memory_bytes >> 20}M"),
        *("-chardev", f"file,id=console,path={_inherited(console)}"),
        *("-serial", "chardev:console"),
        *("-chardev", f"socket,id=agent,fd={port}"),
        *("-device", "virtio-serial-pci", "-device", "virtserialport,chardev=agent,name=zfslab"),
        # QEMU writes to a temporary file: any number of runs share an image
        *("-drive", f"file={_quoted(image.disk)},if=none,id=root,format={image.disk_format},"
          "snapshot=on"),
        *("-device", "virtio-blk-pci,drive=root"),
    ]  # fmt: skip
    for letter, disk in zip(string.ascii_lowercase[1:], options.disks, strict=False):
        file = _unnamed_file(files)
        try:
            os.truncate(file.fileno(), disk.size_bytes)
        except (OSError, OverflowError):
            size = format_size(disk.size_bytes)
            what = f"--disk size={size}: a file in {scratch_dir()} cannot be that large"
            raise LabError(what, "take a smaller one, or set TMPDIR", status=USAGE) from None
        if disk.delays_ms and image.system == "freebsd":
            descriptor = _slow_disk(file, disk, files)
            source = f"driver=raw,file.driver=nbd,file.server.type=fd,file.server.str={descriptor}"
        else:
            descriptor = file.fileno()
            source = f"file={_inherited(file)},format=raw"
        descriptors.append(descriptor)
        cache = _possible_cache(disk.cache, file)
        limits = f"discard=unmap,cache={cache}{disk.throttling()}"
        arguments += [
            *("-drive", f"{source},if=none,id=vd{letter},{limits}"),
            *("-device", f"virtio-blk-pci,drive=vd{letter},serial=vd{letter}{disk.sectors()}"),
        ]
    if options.instructions:
        arguments += instructions.arguments(qemu, options.instructions, files)
    system = _freebsd if image.system == "freebsd" else _debian
    more = system(accelerator, image, options, command, files)
    return Launch(arguments + more.command, (*descriptors, *more.descriptors))


def _debian(
    accelerator: str,
    image: Image,
    options: Options,
    command: dict[str, object],
    files: ExitStack,
) -> Launch:
    """What a Debian guest gets beside its disks: kernel, initial RAM disk, directories."""
    ramdisk = _unnamed_file(files)
    ramdisk.write(image.initrd.read_bytes())
    ramdisk.write(initrd.per_run(guest_config(image, options), command))
    ramdisk.flush()
    arguments = [
        *("-kernel", str(image.kernel), "-initrd", _inherited(ramdisk)),
        *("-append", " ".join(_kernel_arguments(accelerator, options))),
    ]
    for tag, path in _directories(options).items():
        access = "" if tag == "out" else ",readonly=on"
        arguments += [
            *("-fsdev", f"local,id={tag},path={_quoted(path)},security_model=none,"
              f"multidevs=remap{access}"),
            *("-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"),
        ]  # fmt: skip
    return Launch(arguments, (ramdisk.fileno(),))


def _freebsd(
    accelerator: str,
    image: Image,
    options: Options,
    command: dict[str, object],
    files: ExitStack,
) -> Launch:
    """What a FreeBSD guest gets beside its disks: archives on disks of their own, since not every
    release has a driver for 9p. /out comes back through the agent."""
    arguments = ["-device", "virtio-rng-pci"]
    archives = {"VZJOB": _unnamed_file(files)}
    config = guest_config(image, options)
    try:
        freebsd.write_job(archives["VZJOB"], options.checkout, config, command)
        if options.share:
            archives["zfslab-share"] = _unnamed_file(files)
            freebsd.write_share(archives["zfslab-share"], options.share)
    except OSError as error:
        raise LabError(f"cannot copy {error.filename} for the guest: {error.strerror}") from None
    for serial, file in archives.items():
        arguments += [
            *("-drive", f"file={_inherited(file)},if=none,id={serial},format=raw,readonly=on"),
            *("-device", f"virtio-blk-pci,drive={serial},serial={serial}"),
        ]
    return Launch(arguments, tuple(file.fileno() for file in archives.values()))


def _slow_disk(file: IO[bytes], disk: Disk, files: ExitStack) -> int:
    """Starts the server of a slow disk in `file`; returns the descriptor of QEMU's end."""
    ours, theirs = socket.socketpair()
    files.enter_context(theirs)
    with ours:
        server = subprocess.Popen(
            [
                *(sys.executable, "-I", slow_disk.__file__),
                *(str(ours.fileno()), str(file.fileno()), *disk.delay_legs().split()),
            ],
            stdin=subprocess.DEVNULL,
            pass_fds=(ours.fileno(), file.fileno()),
            start_new_session=True,
            preexec_fn=die_with_parent(signal.SIGKILL),
        )
    files.callback(server.wait)
    files.callback(server.kill)
    return theirs.fileno()


def guest_config(image: Image, options: Options) -> dict[str, str]:
    """The shell variables for the guest's start scripts."""
    delays = " ".join(
        f"vd{letter}:{disk.delay_legs().replace(' ', ':')}"
        for letter, disk in zip(string.ascii_lowercase[1:], options.disks, strict=False)
        if disk.delays_ms
    )
    return {
        "mode": "run",
        "hostname": f"lab-{image.flavour}",
        "zfs": "yes" if options.zfs else "no",
        "share": "yes" if options.share else "no",
        "out": "yes" if options.out else "no",
        "delays": delays,
        "systemd": "yes" if options.systemd else "no",
    }


def _directories(options: Options) -> dict[str, Path]:
    found = {"checkout": options.checkout, "share": options.share, "out": options.out}
    return {tag: path for tag, path in found.items() if path is not None}


def _kernel_arguments(accelerator: str, options: Options) -> list[str]:
    emulated = () if accelerator == "kvm" else _EMULATION_ARGUMENTS
    return [*_KERNEL_ARGUMENTS, *emulated, *options.kernel_arguments]


def _processor(accelerator: str, image: Image) -> list[str]:
    if accelerator == "kvm":
        return kvm_arguments()
    return ["-accel", accelerator, "-cpu", FREEBSD_CPU if image.system == "freebsd" else "max"]


def _unnamed_file(files: ExitStack) -> IO[bytes]:
    file = tempfile.TemporaryFile(dir=scratch_dir())  # noqa: SIM115 (`files` closes it)
    return files.enter_context(file)


def _possible_cache(cache: str, file: IO[bytes]) -> str:
    """`cache`, or the nearest mode on a file system without direct I/O."""
    if cache in ("none", "directsync"):
        try:
            os.close(os.open(_inherited(file), os.O_RDWR | os.O_DIRECT))
        except OSError:
            return "writeback" if cache == "none" else "writethrough"
    return cache


def _inherited(file: IO[bytes]) -> str:
    return f"/proc/self/fd/{file.fileno()}"


def _quoted(path: Path) -> str:
    """`path` inside one of QEMU's comma separated options."""
    return str(path).replace(",", ",,")
