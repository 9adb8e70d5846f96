"""The rc.d script and the port, beside what they name."""

from __future__ import annotations

import install
from support.paths import ROOT

from zfstune import __version__

FREEBSD = ROOT / "platform/freebsd"


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
