"""The rc.d scripts and the port, beside what they name."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import install
import pytest
from support.paths import ROOT

from zfstune import __version__

FREEBSD = ROOT / "platform/freebsd"

# In place of rc.subr(8): what the scripts use of it. daemon(8) calls itself `daemon: PROGRAM[PID]`.
RC_SUBR = """
load_rc_config() { . "$BASE/rc.conf"; }
check_pidfile() {
	[ -f "$1" ] || return 0
	case "$(ps -o args= -p "$(cat "$1")")" in "${2##*/}: "*) cat "$1" ;; esac
}
checkyesno() { eval "[ \\$$1 = YES ]"; }
wait_for_pids() { echo "wait_for_pids $*" >>"$BASE/called"; }
run_rc_command() { eval "\\$${1}_cmd"; }
"""
# Writes down how it is called, a word in each line; mount(8) lists what is mounted.
STUB = """#!/bin/sh
printf '%s\\n' "${0##*/}" "$@" . >>"$BASE/called"
[ "${0##*/} $1" != "mount -p" ] || cat "$BASE/fstab"
"""


@dataclass
class Host:
    """A directory in place of /, with the rc.d scripts and what they run."""

    base: Path

    def run(
        self, action: str, conf: str = "", script: str = "zfstune_exporter", prefix: str = "/opt"
    ) -> subprocess.CompletedProcess[str]:
        (self.base / "rc.conf").write_text(conf)
        text = (FREEBSD / "rc.d" / script).read_text().replace("%%PREFIX%%", prefix)
        text = text.replace(". /etc/rc.subr", RC_SUBR)
        text = re.sub(r"/usr/s?bin/|/sbin/", f"{self.base}/bin/", text)
        text = text.replace("/var/run/", f"{self.base}/")
        return subprocess.run(
            ["sh", "-c", text, "rc", action],
            env=os.environ | {"BASE": str(self.base)},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    def called(self) -> list[list[str]]:
        """The calls since the last time, in their words without the directory."""
        file = self.base / "called"
        lines = file.read_text().replace(f"{self.base}/", "/").splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        found: list[list[str]] = [[]]
        for line in lines:
            if line == ".":
                found.append([])
            else:
                found[-1].append(line)
        return found[:-1] if not found[-1] else found


@pytest.fixture
def host(tmp_path: Path) -> Host:
    (tmp_path / "bin").mkdir()
    for name in ("daemon", "install", "mount", "zfstune"):
        (tmp_path / "bin" / name).write_text(STUB)
        (tmp_path / "bin" / name).chmod(0o755)
    (tmp_path / "fstab").write_text("zroot/var /var zfs rw 0 0\n")
    return Host(tmp_path)


def test_the_exporter_starts_under_daemon_with_memory_of_its_own(host: Host) -> None:
    done = host.run("start")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    directory = "/zfstune-exporter"
    made, listed, mounted, daemon = host.called()
    assert made == ["install", "-d", "-m", "0700", directory]
    assert listed == ["mount", "-p"]
    assert mounted == ["mount", "-t", "tmpfs", "-o", "size=160m,mode=0700", "tmpfs", directory]
    split = daemon.index("/bin/nice")
    assert daemon[:split] == (
        ["daemon", "-f", "-R", "30", "-S", "-T", "zfstune_exporter", "-P", "/zfstune_exporter.pid"]
    )
    assert daemon[split:] == [
        *("/bin/nice", "-n", "10", "/opt/bin/zfstune", "exporter"),
        *("--dump-dir", directory, "--views", "fsync,txg,throttle,arc"),
    ]


def test_options_of_the_exporter_come_last_and_may_be_quoted(host: Host) -> None:
    flags = "--listen 0.0.0.0:9810 --trigger 'fsync.p99>200ms for 30s' --datasets 'tank/*'"
    assert host.run("start", f'zfstune_exporter_flags="{flags}"\n').returncode == 0
    assert host.called()[-1][-6:] == [
        *("--listen", "0.0.0.0:9810"),
        *("--trigger", "fsync.p99>200ms for 30s", "--datasets", "tank/*"),
    ]


def test_nothing_is_mounted_twice_or_against_a_wish(host: Host) -> None:
    assert host.run("start", "zfstune_exporter_tmpfs=NO\n").returncode == 0
    assert [call[0] for call in host.called()] == ["install", "daemon"]
    (host.base / "fstab").write_text(f"tmpfs {host.base}/zfstune-exporter tmpfs rw 0 0\n")
    (host.base / "link").symlink_to(host.base)
    for name in ("zfstune-exporter", "zfstune-exporter/", "link/zfstune-exporter"):
        assert host.run("start", f"zfstune_exporter_dir={host.base}/{name}\n").returncode == 0
        assert [call[0] for call in host.called()] == ["install", "mount", "daemon"]


def test_the_exporter_is_stopped_by_its_pid_file(host: Host) -> None:
    assert host.run("status").returncode == 1
    assert host.run("stop").stdout == "zfstune_exporter is not running.\n"
    with subprocess.Popen(["daemon: nice", "600"], executable=shutil.which("sleep")) as process:
        (host.base / "zfstune_exporter.pid").write_text(f"{process.pid}\n")
        assert host.run("status").stdout == f"zfstune_exporter is running as pid {process.pid}.\n"
        assert host.run("start").stdout == "zfstune_exporter already running.\n"
        assert host.run("stop").returncode == 0
        assert process.wait(60) == -15
    assert host.called() == []


def test_another_process_that_got_the_number_is_left_alone(host: Host) -> None:
    (host.base / "zfstune_exporter.pid").write_text(f"{os.getpid()}\n")
    assert host.run("status").returncode == 1
    assert host.run("stop").stdout == "zfstune_exporter is not running.\n"
    assert host.run("start").returncode == 0
    assert host.called()[-1][0] == "daemon"


def test_stop_ends_what_the_loop_has_started(host: Host) -> None:
    """Else daemon(8) would still run when `restart` comes to start, and end later."""
    sleep = shutil.which("sleep")
    with (
        subprocess.Popen(["daemon: /bin/sh", "60"], executable=sleep, process_group=0) as daemon,
        subprocess.Popen(["sleep", "60"], process_group=daemon.pid) as child,
    ):
        (host.base / "zfstune-recover.pid").write_text(f"{daemon.pid}\n")
        done = host.run("stop", script="zfstune", prefix=str(host.base))
        assert (done.returncode, done.stderr) == (0, "")
        assert (daemon.wait(10), child.wait(10)) == (-15, -15)
    assert host.called() == [[f"wait_for_pids {daemon.pid}", "zfstune", "recover"]]


def test_the_mark_is_that_of_a_session() -> None:
    from zfstune.changes.lock import SESSION

    assert f'"/var/run/zfstune/{SESSION}"' in (FREEBSD / "rc.d/zfstune").read_text()


def test_the_port_lists_the_installed_files() -> None:
    plist = (FREEBSD / "port/pkg-plist").read_text()
    assert plist == install.plist(), "run scripts/install.py --plist > platform/.../pkg-plist"
    found = plist.split()
    assert len(found) == len(set(found))
    assert {"bin/zfstune", "etc/rc.d/zfstune", "sbin/zilcommit.d"} <= set(found)
    assert {"etc/rc.d/zfstune_exporter", "share/zfstune/monitoring/alerts.yml"} <= set(found)
    assert "lib/zfstune/dtrace/zilevent-json.d" in found
    assert {"share/man/man1/zfstune.1.gz", "share/man/man8/zilcommit.d.8.gz"} <= set(found)
    assert f"DISTVERSION=\t{__version__}\n" in (FREEBSD / "port/Makefile").read_text()
    scripts = [entry for entry in install.entries("freebsd", "/opt") if entry.mode == 0o555]
    assert len(scripts) == 2
    assert all(b'"/opt/bin/zfstune"' in script.content for script in scripts)
    assert all("libzfstrace" not in name and "systemd" not in name for name in found)


def test_the_port_follows_portlint() -> None:
    """Its rules for the Makefile, by portlint.pl; those about sites and distinfo come with a
    release."""
    text = (FREEBSD / "port/Makefile").read_text()
    assert text.endswith("\n\n.include <bsd.port.mk>\n")
    heading, *sections = text.split("\n\n")
    assert all(line.startswith("#") for line in heading.splitlines())
    variables = [re.findall(r"^(\w+)=\t", section, re.MULTILINE) for section in sections]
    assert variables[:3] == [
        ["PORTNAME", "DISTVERSION", "CATEGORIES"],
        ["MAINTAINER", "COMMENT"],
        ["LICENSE", "LICENSE_FILE"],
    ]
    comment = re.search(r"^COMMENT=\t(.*)$", text, re.MULTILINE)
    assert comment
    assert re.fullmatch(r"[A-Z].{1,68}[^.]", comment[1])
    # pathnames: nothing absolute, nothing below the framework's own directories
    assert not re.search(r"[\s@'\"-]/\w", text)
    assert not re.search(r"[\s/](distfiles|pkg|files|patches|work)/|\sscripts/", text)
    options = re.search(r"^OPTIONS_DEFINE=\t(.*)$", text, re.MULTILINE)
    assert options
    package = r"\$\{PYTHON_PKGNAMEPREFIX\}[\w-]+>\S+:[\w-]+/py-[\w-]+@\$\{PY_FLAVOR\}"
    for option in options[1].split():
        assert re.search(rf"^{option}_DESC=\t\S", text, re.MULTILINE)
        assert re.search(rf"^{option}_RUN_DEPENDS=\t{package}$", text, re.MULTILINE)
    versions = re.findall(r"\}([\w-]+)>=([\d.]+):", text)
    assert len(versions) == 2
    page = (ROOT / "docs/dependencies.md").read_text()
    for name, least in versions:
        assert f"| {name.replace('-', '_')} {least} or later |" in page
    description = (FREEBSD / "port/pkg-descr").read_text()
    assert max(map(len, description.splitlines())) <= 80
    assert "WWW:" not in description
