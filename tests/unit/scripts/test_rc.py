"""The rc.d script and the port, beside what they name."""

from __future__ import annotations

import re

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
    description = (FREEBSD / "port/pkg-descr").read_text()
    assert max(map(len, description.splitlines())) <= 80
    assert "WWW:" not in description
