"""The units: recovery must not be given up, and must not run in circles."""

from __future__ import annotations

import configparser

from support.paths import ROOT

UNITS = ROOT / "platform/linux/systemd"


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.read(UNITS / name)
    return found


def test_starts_of_the_service_are_not_limited() -> None:
    assert unit("zfstune-recover.service")["Unit"]["StartLimitIntervalSec"] == "0"


def test_the_service_pauses_before_a_restart() -> None:
    service = unit("zfstune-recover.service")["Service"]
    assert service["Restart"] == "on-failure"
    assert int(service["RestartSec"]) >= 10


def test_the_path_is_the_mark_of_a_session() -> None:
    from zfstune.changes.lock import SESSION

    assert unit("zfstune-recover.path")["Path"]["PathExists"] == f"/run/zfstune/{SESSION}"
