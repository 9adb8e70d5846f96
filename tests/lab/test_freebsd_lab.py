"""What scripts/lab promises, kept by a FreeBSD guest."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lab.guests import count_boots
from support.paths import ROOT

SCRIPT = """\
echo boot $ZFSTUNE_LAB_BOOT
if [ $ZFSTUNE_LAB_BOOT = 1 ]; then
    [ -c /dev/vtbd1 ] && [ -c /dev/vtbd2 ] && echo disks
    cat "/share/a file"
    pwd
    sysctl -n kern.ostype
    echo marked >/root/mark
    printf '\\0\\377\\r\\n' >&2
    (sleep 1000 &)
    shutdown -r now >/dev/null 2>&1
    sleep 1000
fi
cat /root/mark
mkdir /out/deep
head -c 300000 /dev/zero >/out/deep/file
exit 7
"""
# 129: SIGHUP ends a program, which is not so for those that rc(8) starts.
SAYING = "echo said; sh -c 'kill -HUP $$'; echo $?; "


def lab(flavour: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [str(ROOT / "scripts/lab"), "run", "--flavour", flavour, *arguments],
        capture_output=True,
        check=False,
    )
    count_boots("freebsd_lab", flavour, done.stderr.decode(errors="replace"))
    return done


def test_output_status_and_files_pass_and_a_reboot_keeps_the_disk(
    flavour: str, tmp_path: Path
) -> None:
    (tmp_path / "share").mkdir()
    (tmp_path / "share/a file").write_text("shared\n")
    (tmp_path / "share/script").write_text(SCRIPT)
    out = tmp_path / "out"
    disks = ("--disk", "size=64M,flush-delay=5ms", "--disk", "size=64M")
    files = ("--share", str(tmp_path / "share"), "--out", str(out))
    done = lab(flavour, *disks, *files, "--reboots", "1", "--", "sh", "/share/script")
    said = done.stdout.decode()
    assert said == "boot 1\ndisks\nshared\n/zfstune\nFreeBSD\nboot 2\nmarked\n", done.stderr
    assert b"\0\xff\r\n" in done.stderr
    assert done.returncode == 7
    assert (out / "deep/file").read_bytes() == b"\0" * 300_000


def test_a_panic_is_125_with_its_console(flavour: str) -> None:
    done = lab(flavour, "--", "sh", "-c", SAYING + "sysctl debug.kdb.panic=1 >/dev/null; sleep 100")
    assert done.returncode == 125
    assert done.stdout == b"said\n129\n"
    shown = done.stderr.decode()
    assert "lab: guest kernel panic: kdb_sysctl_panic (the guest stopped during" in shown
    assert "KDB: stack backtrace:" in shown


@pytest.mark.parametrize("option", ["--kernel-arg=quiet", "--max-cpus=8", "--systemd"])
def test_options_of_linux_are_refused(flavour: str, option: str) -> None:
    done = lab(flavour, option, "--", "true")
    assert done.returncode == 2
    assert b"lab: error: --kernel-arg, --max-cpus and --systemd are for Linux" in done.stderr


def test_a_command_without_zfs_ends_at_its_timeout(flavour: str) -> None:
    script = "kldstat -q -n zfs || echo none; sleep 100"
    done = lab(flavour, "--no-zfs", "--timeout", "10s", "--", "sh", "-c", script)
    assert done.returncode == 125
    assert done.stdout == b"none\n"
    assert b"timeout: the command took longer than 10s" in done.stderr
