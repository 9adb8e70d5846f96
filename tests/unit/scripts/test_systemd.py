"""The units: recovery must not be given up, and must not run in circles; the exporter must not be
able to do what it need not do."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.paths import ROOT

from zfstune.cli import build_parser

UNITS = ROOT / "platform/linux/systemd"
EXPORTER = UNITS / "zfstune-exporter.service"
DROP_INS = sorted((UNITS / "examples").iterdir())
# Of ten, by systemd-analyze(1); in its argument in tenths.
EXPOSURE = 30


def unit(name: str) -> configparser.ConfigParser:
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.read(UNITS / name)
    return found


def settings(path: Path) -> list[tuple[str, str]]:
    """All settings in their order, those that occur more than once, too."""
    lines = [line for line in path.read_text().splitlines() if line and line[0] not in "#["]
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def service(path: Path = EXPORTER) -> dict[str, str]:
    return dict(settings(path))


def test_starts_of_the_service_are_not_limited() -> None:
    assert unit("zfstune-recover.service")["Unit"]["StartLimitIntervalSec"] == "0"


def test_the_service_pauses_before_a_restart() -> None:
    service = unit("zfstune-recover.service")["Service"]
    assert service["Restart"] == "on-failure"
    assert int(service["RestartSec"]) >= 10


def test_the_path_is_the_mark_of_a_session() -> None:
    from zfstune.changes.lock import SESSION

    assert unit("zfstune-recover.path")["Path"]["PathExists"] == f"/run/zfstune/{SESSION}"


def test_the_exporter_can_write_only_where_it_must() -> None:
    found = service()
    assert found["ProtectSystem"] == "strict"
    assert found["ReadOnlyPaths"].split() == ["/sys", "/proc/sys"]
    assert found["ReadWritePaths"] == "-/sys/kernel/tracing"
    assert (found["RuntimeDirectory"], found["RuntimeDirectoryMode"]) == (EXPORTER.stem, "0700")
    # beside them systemd 257 leaves /sys writable, or tracefs read-only
    assert not {"ProtectKernelTunables", "ProtectControlGroups"} & set(found)
    assert (found["DevicePolicy"], found["DeviceAllow"]) == ("closed", "/dev/zfs rw")
    assert found["BindPaths"] == "-/dev/zfs", "without it PrivateDevices= hides it"


def test_the_exporter_has_one_capability() -> None:
    assert service()["CapabilityBoundingSet"] == "CAP_SYS_ADMIN"
    assert "User" not in service(), "with another user it needs AmbientCapabilities="


def test_the_exporter_comes_back_and_wrong_options_do_not() -> None:
    from zfstune.errors import USAGE

    found = service()
    assert (found["Type"], found["Restart"]) == ("notify", "always")
    assert int(found["RestartSec"]) >= 10
    assert found["RestartPreventExitStatus"] == str(USAGE)
    assert found["ExecStart"] == "zfstune exporter $ZFSTUNE_EXPORTER"
    assert found["EnvironmentFile"] == "-/etc/default/zfstune-exporter"
    assert not [name for name, _ in settings(EXPORTER) if name.startswith("Condition")]


@pytest.mark.parametrize("path", DROP_INS, ids=lambda path: path.stem)
def test_a_drop_in_adds_options_and_replaces_what_it_says(path: Path) -> None:
    starts = [value for name, value in settings(path) if name == "ExecStart"]
    assert starts[0] == "", "it would be a second ExecStart="
    words = starts[1].split()
    assert (words[:2], words[-1]) == (["zfstune", "exporter"], "$ZFSTUNE_EXPORTER")
    # it takes them
    args = build_parser().parse_args(words[1:-1])
    assert args.run == "exporter.command"
    first = [value for name, value in settings(path) if name == "CapabilityBoundingSet"][:1]
    assert first in ([], [""]), "it would be added to the one of the unit"


def analyze(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """systemd-analyze(1) on the unit, with a command that is on each host."""
    if not shutil.which("systemd-analyze"):
        pytest.skip("run `apt install systemd`")
    copy = tmp_path / EXPORTER.name
    copy.write_text(EXPORTER.read_text().replace("ExecStart=zfstune", "ExecStart=/bin/true"))
    return subprocess.run(
        ["systemd-analyze", "--no-pager", *words, str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_systemd_finds_no_mistake(tmp_path: Path) -> None:
    done = analyze(tmp_path, "verify", "--man=no")
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_systemd_says_that_little_is_exposed(tmp_path: Path) -> None:
    done = analyze(tmp_path, "security", "--offline=yes", f"--threshold={EXPOSURE}")
    said = re.search(r"Overall exposure level for \S+: ([\d.]+) ", done.stdout)
    assert said, done.stdout + done.stderr
    assert (done.returncode, float(said[1]) < EXPOSURE / 10) == (0, True), said[0]


def test_the_recorder_of_the_unit_runs_in_its_directory_and_can_be_left_out() -> None:
    from zfstune.changes.paths import INCIDENTS

    assert f"/run/{service()['RuntimeDirectory']}" == INCIDENTS
    words = service()["ExecStart"].split()[1:-1]
    assert build_parser().parse_args([*words, "--no-record"]).record is False
    assert build_parser().parse_args(words).dump_dir == INCIDENTS
