"""The units: recovery must not be given up, and must not run in circles."""

from __future__ import annotations

import configparser

from support.paths import ROOT

UNITS = ROOT / "platform/linux/systemd"


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.read(UNITS / name)
    return found


def test_service_is_started_as_often_as_there_are_sessions() -> None:
    assert unit("zfstune-recover.service")["Unit"]["StartLimitIntervalSec"] == "0"


def test_service_pauses_before_it_tries_again() -> None:
    service = unit("zfstune-recover.service")["Service"]
    assert service["Restart"] == "on-failure"
    assert int(service["RestartSec"]) >= 10


def test_path_is_the_mark_of_a_session() -> None:
    from zfstune.changes.lock import _SESSION

    assert unit("zfstune-recover.path")["Path"]["PathExists"] == f"/run/zfstune/{_SESSION}"
