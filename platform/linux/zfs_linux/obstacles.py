"""What stands in the way of a trace on Linux, told apart: containers, lockdown, Secure Boot, and
kernels and modules without BTF. Reads files only; sentences and hints are a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zfs_linux import kstat
from zfstrace.types import Check

# global variable of UEFI: four bytes of attributes and the value
_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
# The level of kernel.perf_event_paranoid from which kernels of Debian leave perf_event_open(2), and
# so kprobes, to CAP_SYS_ADMIN: their default (features/all/
# security-perf-allow-further-restriction-of-perf_event_open.patch); Ubuntu's do from 4 on, theirs.
# No other kernel knows such levels.
PARANOID = 3
# all ids are those of the host (user_namespaces(7))
_ALL_IDS = ["0", "0", "4294967295"]


@dataclass(frozen=True)
class Obstacle:
    """What it costs, and what to do: an imperative clause without a full stop."""

    cost: str
    fix: str


OBSTACLES = {
    "container": Obstacle(
        "tracing the kernel is for the host alone; kstats can be read here",
        "run zfstune on the host, which sees the fsyncs of all its containers",
    ),
    "confidentiality": Obstacle(
        "the kernel forbids BPF programs and probes to read its memory",
        "boot with lockdown=integrity instead, which Secure Boot is content with; kstats can be "
        "read all the same",
    ),
    "no kernel BTF": Obstacle(
        "BPF programs cannot be fitted to this kernel",
        "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as those of Debian, Ubuntu, Proxmox VE, "
        "TrueNAS SCALE, Fedora and RHEL are",
    ),
    "BTF hidden": Obstacle(
        "BPF programs cannot be fitted to this kernel, whose BTF is not visible here",
        "mount sysfs: `mount -t sysfs sysfs /sys`; in a container run zfstune on the host",
    ),
    "no sysfs": Obstacle(
        "nothing can be found out", "run `mount -t sysfs sysfs /sys`, or zfstune outside the chroot"
    ),
    "not loaded": Obstacle("nothing to trace", "run `modprobe zfs`"),
    "not loaded, container": Obstacle(
        "nothing to trace", "run `modprobe zfs` on the host: a container cannot load modules"
    ),
    "not loaded, Secure Boot": Obstacle(
        "nothing to trace",
        "run `modprobe zfs`; if the kernel rejects its key, Secure Boot wants DKMS's enrolled: "
        "`mokutil --import /var/lib/dkms/mok.pub`, then reboot",
    ),
    "perf events": Obstacle(
        "kernels of Debian and Ubuntu forbid kprobes at this level without CAP_SYS_ADMIN",
        f"run `sysctl kernel.perf_event_paranoid={PARANOID - 1}`, or zfstune with CAP_SYS_ADMIN",
    ),
}
# Not a lack: kprobes and the search for layouts measure the same stages. Never advise to put
# vmlinux where the headers are: without resolve_btfids there (Debian 12) no module can be built.
MODULE_BTF = (
    "for cheaper probes build ZFS with debug information and make BTF of it: "
    "ZFS_DKMS_DISABLE_STRIP=y in /etc/dkms/zfs.conf, `dkms build`, `dkms install`, `pahole -J`; "
    "zfstune-doctor(1) has the commands"
)


def container(root: Path) -> str:
    """What contains this process, for people, such as "lxc" or "a user namespace"; "" on a host."""
    proc = root / "proc"
    named = kstat.read(root / "run/systemd/container").strip()
    for word in kstat.read(proc / "1/environ").split("\0"):
        if word.startswith("container="):
            named = named or word.partition("=")[2]
    if (root / "run/.containerenv").exists():
        named = named or "podman"
    if (root / ".dockerenv").exists():
        named = named or "docker"
    return named or ("a user namespace" if other_ids(proc) else "")


def other_ids(proc: Path) -> bool:
    """Whether the process is in a user namespace, whose root has capabilities that the kernel does
    not grant for tracing."""
    ids = [line.split() for line in kstat.read(proc / "self/uid_map").splitlines()]
    return bool(ids) and ids != [_ALL_IDS]


def lockdown(sys: Path) -> str:
    """The mode in force: "none", "integrity" or "confidentiality"; "" if the kernel has none, or
    does not tell."""
    for word in kstat.read(sys / "kernel/security/lockdown").split():
        if word.startswith("["):
            return word.strip("[]")
    return ""


def secure_boot(sys: Path) -> bool:
    """Whether the firmware enforces signatures."""
    try:
        return (sys / _SECURE_BOOT).read_bytes()[4:5] == b"\1"
    except OSError:
        return False


def of_kernel(root: Path) -> list[Check]:
    """What the kernel or a container forbids; without these, tracing is a matter of privileges."""
    sys = root / "sys"
    found = []
    inside, mode = container(root), lockdown(sys)
    if inside:
        found.append(Check("container", "kernel", inside))
    if mode == "confidentiality":
        found.append(_blocking("lockdown", "privilege", mode, "confidentiality"))
    elif mode:
        found.append(Check("lockdown", "kernel", mode))
    if secure_boot(sys):
        found.append(Check("Secure Boot", "kernel", "on"))
    return found


def contained(root: Path, checks: Sequence[Check]) -> list[Check]:
    """The checks with the container as the first obstacle if it withholds what a trace needs: then
    what they say of privileges and BTF cannot be helped inside."""
    inside = container(root)
    lacks = other_ids(root / "proc") or any(
        one.status == "blocking" and one.kind in ("privilege", "kernel") for one in checks
    )
    if not inside or not lacks:
        return list(checks)
    mine = _blocking("container", "privilege", inside, "container")
    first, *others = (one for one in checks if one.name != "container")
    return [first, mine, *others]


def zfs(root: Path) -> Check:
    """Whether ZFS is loaded, and if not, why perhaps."""
    module = root / "sys/module/zfs"
    if module.is_dir():
        version = kstat.read(module / "version").strip()
        return Check("ZFS", "zfs", version or "loaded, version unknown")
    if not (root / "sys/kernel").is_dir():
        return _blocking("ZFS", "zfs", "unknown, /sys is not mounted", "no sysfs")
    if container(root):
        return _blocking("ZFS", "zfs", "not loaded", "not loaded, container")
    if secure_boot(root / "sys"):
        return _blocking("ZFS", "zfs", "not loaded", "not loaded, Secure Boot")
    return _blocking("ZFS", "zfs", "not loaded", "not loaded")


def kernel_btf(root: Path) -> Check:
    """Whether the kernel describes its types."""
    sys = root / "sys"
    if (sys / "kernel/btf/vmlinux").exists():
        return Check("kernel BTF", "kernel", "present")
    # a kernel without BTF has no such directory
    key = "BTF hidden" if (sys / "kernel/btf").is_dir() else "no kernel BTF"
    return _blocking("kernel BTF", "kernel", "absent", key)


def module_btf(there: bool) -> Check:
    """Whether the zfs module describes its types."""
    value = "present" if there else "absent, kprobes and a search for layouts do instead"
    return Check("module BTF", "kernel", value, fix="" if there else MODULE_BTF)


def perf_events(held: str, level: int) -> Check:
    """kernel.perf_event_paranoid without CAP_SYS_ADMIN. Not blocking: another kernel ignores it,
    and an attempt to attach shows that."""
    one = OBSTACLES["perf events"]
    value = f"{held}; kernel.perf_event_paranoid is {level}"
    return Check("privileges", "privilege", value, "missing", one.cost, one.fix)


def pool(name: str, state: str) -> Check:
    """A pool in which writes block."""
    cost = "no fsync ends there, and while a program spins on it, a trace may not detach"
    return Check(f"pool {name}", "zfs", state, "missing", cost, f"see `zpool status {name}`")


def _blocking(name: str, kind: str, value: str, key: str) -> Check:
    one = OBSTACLES[key]
    return Check(name, kind, value, "blocking", one.cost, one.fix)
