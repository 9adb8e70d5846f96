"""What stands in the way of a trace, on made-up trees of /proc and /sys: each has its own words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zfs_linux import obstacles
from zfs_linux.host import LinuxHost
from zfs_linux.obstacles import OBSTACLES
from zfstrace.types import Check
from zfstune.errors import NotPossible
from zfstune.preflight import require_tracing

SECURE = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
ALL = "CapEff:\t000001ffffffffff\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A host that lacks nothing."""
    put(tmp_path, "proc/self/status", ALL)
    put(tmp_path, "proc/self/uid_map", "         0          0 4294967295\n")
    put(tmp_path, "proc/1/environ", "HOME=/\0TERM=linux\0")
    put(tmp_path, "proc/spl/kstat/zfs/zil", "")
    put(tmp_path, "proc/spl/kstat/zfs/tank/txgs", "")
    put(tmp_path, "proc/spl/kstat/zfs/tank/state", "ONLINE\n")
    put(tmp_path, "sys/module/zfs/version", "2.3.2-1\n")
    put(tmp_path, "sys/kernel/btf/vmlinux", "")
    put(tmp_path, "sys/kernel/btf/zfs", "")
    put(tmp_path, "sys/kernel/security/lockdown", "[none] integrity confidentiality\n")
    put(tmp_path, "sys/kernel/tracing/events", "")
    return tmp_path


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(text.encode())


def unload(root: Path) -> None:
    (root / "sys/module/zfs/version").unlink()
    (root / "sys/module/zfs").rmdir()


def checks(root: Path) -> list[Check]:
    return [check for check in LinuxHost(root).checks() if check.kind != "library"]


def first(root: Path) -> str:
    """The error and the hint of a trace."""
    with pytest.raises(NotPossible) as caught:
        require_tracing(checks(root))
    return caught.value.in_one_line()


def test_a_host_without_obstacles_has_none(root: Path) -> None:
    assert [check for check in checks(root) if check.status != "ok" or check.fix] == []


def lxc(root: Path) -> None:
    put(root, "run/systemd/container", "lxc\n")
    put(root, "proc/self/uid_map", "         0     100000      65536\n")


def docker(root: Path) -> None:
    put(root, ".dockerenv", "")
    put(root, "proc/self/status", "CapEff:\t00000000a80425fb\n")


def podman(root: Path) -> None:
    put(root, "run/.containerenv", "")
    put(root, "proc/self/uid_map", "0 1000 1\n1 100000 65536\n")


def nspawn(root: Path) -> None:
    put(root, "proc/1/environ", "A=b\0container=systemd-nspawn\0")
    (root / "sys/kernel/btf/vmlinux").unlink()


def namespace(root: Path) -> None:
    put(root, "proc/self/uid_map", "         0       1000          1\n")


def locked(root: Path) -> None:
    put(root, "sys/kernel/security/lockdown", "none integrity [confidentiality]\n")


def no_btf(root: Path) -> None:
    (root / "sys/kernel/btf/vmlinux").unlink()
    (root / "sys/kernel/btf/zfs").unlink()
    (root / "sys/kernel/btf").rmdir()


def hidden_btf(root: Path) -> None:
    (root / "sys/kernel/btf/vmlinux").unlink()


def secure(root: Path) -> None:
    put(root, SECURE, "\x06\0\0\0\x01")
    unload(root)


def unloaded_in_lxc(root: Path) -> None:
    lxc(root)
    unload(root)


def no_sysfs(root: Path) -> None:
    for path in sorted((root / "sys").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize(
    ("make", "says", "key"),
    [
        (lxc, "container lxc: ", "container"),
        (docker, "container docker: ", "container"),
        (podman, "container podman: ", "container"),
        (nspawn, "container systemd-nspawn: ", "container"),
        (namespace, "container a user namespace: ", "container"),
        (locked, "lockdown confidentiality: ", "confidentiality"),
        (no_btf, "kernel BTF absent: ", "no kernel BTF"),
        (hidden_btf, "kernel BTF absent: ", "BTF hidden"),
        (unload, "ZFS not loaded: ", "not loaded"),
        (unloaded_in_lxc, "ZFS not loaded: ", "not loaded, container"),
        (secure, "ZFS not loaded: ", "not loaded, Secure Boot"),
        (no_sysfs, "ZFS unknown, /sys is not mounted: ", "no sysfs"),
    ],
)
def test_each_obstacle_is_the_first_thing_said(
    make: Callable[[Path], None], says: str, key: str, root: Path
) -> None:
    make(root)
    found = first(root)
    assert found == f"cannot trace: {says}{OBSTACLES[key].cost}; {OBSTACLES[key].fix}"


def test_the_obstacles_have_different_words() -> None:
    assert len({(one.cost, one.fix) for one in OBSTACLES.values()}) == len(OBSTACLES)
    assert not [one for one in OBSTACLES.values() if one.fix.endswith(".")]


def test_a_container_that_withholds_nothing_is_only_named(root: Path) -> None:
    put(root, ".dockerenv", "")
    (found,) = (check for check in checks(root) if check.name == "container")
    assert (found.value, found.status) == ("docker", "ok")
    require_tracing(checks(root))


def test_integrity_and_secure_boot_do_not_prevent_a_trace(root: Path) -> None:
    put(root, "sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
    put(root, SECURE, "\x06\0\0\0\x01")
    require_tracing(checks(root))
    found = {check.name: check.value for check in checks(root)}
    assert (found["lockdown"], found["Secure Boot"]) == ("integrity", "on")
    put(root, SECURE, "\x06\0\0\0\0")
    assert "Secure Boot" not in {check.name for check in checks(root)}
    put(root, SECURE, "\x06")
    assert not obstacles.secure_boot(root / "sys")


def test_a_module_without_btf_lacks_nothing_and_can_get_it(root: Path) -> None:
    (root / "sys/kernel/btf/zfs").unlink()
    (found,) = (check for check in checks(root) if check.name == "module BTF")
    assert found.status == "ok"
    assert "pahole" in found.fix
    require_tracing(checks(root))


def test_a_suspended_pool_is_named(root: Path) -> None:
    put(root, "proc/spl/kstat/zfs/tank/state", "SUSPENDED\n")
    (found,) = (check for check in checks(root) if check.status != "ok")
    assert (found.name, found.value, found.status) == ("pool tank", "SUSPENDED", "missing")
    assert found.fix == "see `zpool status tank`"


@pytest.mark.parametrize(
    ("text", "mode"),
    [("", ""), ("none integrity", ""), ("[none] integrity confidentiality\n", "none")],
)
def test_lockdown_is_the_word_in_brackets(text: str, mode: str, root: Path) -> None:
    put(root, "sys/kernel/security/lockdown", text)
    assert obstacles.lockdown(root / "sys") == mode
