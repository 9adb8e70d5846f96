"""The rc.d script, with a stand-in for rc.subr(8), and the skeleton of a port."""

from __future__ import annotations

import subprocess
from pathlib import Path

import install
import pytest
from support.paths import ROOT

from zfstune import __version__

FREEBSD = ROOT / "platform/freebsd"
SUBR = """\
load_rc_config() { . "$RC_CONF"; }
checkyesno() { eval "[ \\"\\$$1\\" = YES ]"; }
run_rc_command() { checkyesno "$rcvar" || { echo disabled; return 0; }; eval "\\$${1}_cmd"; }
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """With programs that say what they are called with."""
    (tmp_path / "rc.subr").write_text(SUBR)
    (tmp_path / "bin").mkdir()
    for name in ("bin/zfstune", "daemon"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\necho "$(basename "$0") $*"\n')
        program.chmod(0o755)
    text = (FREEBSD / "rc.d/zfstune").read_text()
    for there, here in {
        "%%PREFIX%%": str(tmp_path),
        "/etc/rc.subr": str(tmp_path / "rc.subr"),
        "/usr/sbin/daemon": str(tmp_path / "daemon"),
        "/var/run": str(tmp_path),
    }.items():
        assert there in text
        text = text.replace(there, here)
    (tmp_path / "rc").write_text(text)
    return tmp_path / "rc"


def run(script: Path, what: str, conf: str = 'zfstune_enable="YES"\n') -> tuple[int, str]:
    (script.parent / "rc.conf").write_text(conf)
    done = subprocess.run(
        ["sh", "-eu", str(script), what],
        env={"PATH": "/usr/bin:/bin", "RC_CONF": str(script.parent / "rc.conf")},
        capture_output=True,
        text=True,
    )
    assert not done.stderr
    return done.returncode, done.stdout


def test_it_is_disabled_by_default(script: Path) -> None:
    assert run(script, "start", "") == (0, "disabled\n")


def test_start_restores_and_watches(script: Path) -> None:
    status, said = run(script, "start")
    assert status == 0
    assert said.startswith(f"zfstune recover\ndaemon -f -r -S -T zfstune -P {script.parent}")
    assert said.rstrip().endswith(f"5 {script.parent}/zfstune/session {script.parent}/bin/zfstune")


def test_the_command_finds_python(script: Path) -> None:
    """Which rc(8) does not."""
    (script.parent / "bin/zfstune").write_text('#!/bin/sh\necho "$PATH"\n')
    assert run(script, "stop") == (0, "/usr/bin:/bin:/usr/local/bin\n")


def test_stop_restores(script: Path) -> None:
    assert run(script, "stop") == (0, "zfstune recover\n")
    conf = 'zfstune_enable="YES"\nzfstune_revert="YES"\n'
    assert run(script, "stop", conf) == (0, "zfstune revert\n")


def test_stop_ends_the_running_loop(script: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as loop:
        (script.parent / "zfstune-recover.pid").write_text(f"{loop.pid}\n")
        assert run(script, "status")[0] == 0
        assert "already running" in run(script, "start")[1]
        run(script, "stop")
        assert loop.wait(10) == -15
    assert run(script, "status")[0] == 1


def test_the_mark_is_that_of_a_session() -> None:
    from zfstune.changes.lock import SESSION

    assert f'"/var/run/zfstune/{SESSION}"' in (FREEBSD / "rc.d/zfstune").read_text()


def test_the_port_lists_the_installed_files() -> None:
    plist = (FREEBSD / "port/pkg-plist").read_text()
    assert plist == install.plist(), "run scripts/install.py --plist > platform/.../pkg-plist"
    found = plist.split()
    assert len(found) == len(set(found))
    assert {"bin/zfstune", "etc/rc.d/zfstune", "sbin/zilcommit.d"} <= set(found)
    assert "lib/zfstune/dtrace/zilevent-json.d" in found
    assert {"share/man/man1/zfstune.1.gz", "share/man/man8/zilcommit.d.8.gz"} <= set(found)
    assert f"DISTVERSION=\t{__version__}\n" in (FREEBSD / "port/Makefile").read_text()
    script = next(entry for entry in install.entries("freebsd", "/opt") if entry.mode == 0o555)
    assert b'"/opt/bin/zfstune"' in script.content
    assert all("libzfstrace" not in name and "systemd" not in name for name in found)
