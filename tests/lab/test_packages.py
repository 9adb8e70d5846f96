"""Packages of Debian on real guests: they do what a checkout does, and no upgrade or removal loses
a value or the way back; lintian, and that builds are reproducible."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import install
import package
import pytest
from lab import everything, packaging

Json = dict[str, Any]


@pytest.fixture(scope="module")
def debs() -> Path:
    if packaging.missing():
        pytest.skip(packaging.missing())
    return packaging.built()


@pytest.fixture
def packages(debs: Path, scenario: Callable[[str, str], Json], flavour: str) -> Json:
    return scenario("packages", flavour)


def test_lintian_finds_nothing(debs: Path) -> None:
    if not shutil.which("lintian"):
        pytest.skip("not looked at by lintian: run `apt install lintian`")
    found = [str(path) for path in debs.glob(f"*_{install.version()}_*.deb")]
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", *found],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_two_builds_are_equal(debs: Path, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--sample"):
        pytest.skip("not built twice: a sample")
    for path in package.build("deb", install.version(), tmp_path):
        assert path.read_bytes() == (debs / path.name).read_bytes(), path.name


def test_the_rpm_installs_and_its_command_runs(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    """Into a directory: there is no system of rpm here, so its scripts do not run."""
    if pytestconfig.getoption("--sample") or package.missing("rpm"):
        pytest.skip("no rpm is built: a sample, or rpmbuild is missing")
    made = package.build("rpm", install.version(), tmp_path / "rpm")
    root = tmp_path / "root"
    root.mkdir()
    rpm = ["rpm", "--root", str(root), "--dbpath", "/rpm", "--nodeps", "--noscripts"]
    subprocess.run([*rpm, "-i", *map(str, made)], check=True)
    command = [str(root / "usr/bin/zfstune"), "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"zfstune {install.version()}\n"
    asked = subprocess.run(
        ["rpm", "-qp", "--requires", *map(str, made)], capture_output=True, text=True, check=True
    ).stdout
    assert "libbpf.so.1()(64bit)\n" in asked
    assert "python3 >= 3.9\n" in asked
    assert not [line for line in asked.splitlines() if "bpftrace" in line or "dtrace" in line]


def test_it_installs_and_enables_its_units(packages: Json) -> None:
    assert packages["left_before"] == []
    assert packages["install"]["status"] == 0, packages["install"]
    version = packages["versions"][0]
    assert packages["installed"]["version"] == version
    assert packages["installed"]["installed"] == {
        "zfstune": f"installed {version}",
        "zfstune-tools": f"installed {version}",
    }
    assert packages["audit"] == ""
    assert packages["wants"] == ["zfstune-recover.path", "zfstune-recover.service"]
    # the lab has the checkout's there
    assert "/usr/local/bin/zfstune comes first" in packages["install"]["stderr"]


def test_the_command_does_everything(packages: Json) -> None:
    found = packages["everything"]
    everything.reads_and_traces(found)
    everything.sets_and_reverts(found)
    everything.tunes(found)
    assert "/usr/lib/zfstune/libzfstrace.so" in found["doctor"]["stdout"]
    assert packages["tool"]["status"] == 0
    assert packages["completion"]


def test_an_upgrade_leaves_values_and_a_running_session(packages: Json) -> None:
    assert packages["set"]["status"] == 0, packages["set"]
    assert packages["upgrade"]["status"] == 0, packages["upgrade"]
    upgraded = packages["upgraded"]
    assert upgraded["version"] == packages["versions"][1]
    assert upgraded["before"] == {"zfs_txg_timeout": "7", "zfs_delay_scale": "600000"}
    assert upgraded["after"] == upgraded["before"]
    assert upgraded["journal_same"]
    assert upgraded["alive"]
    assert upgraded["status"]["state"] == "session"


def test_a_package_stays_while_a_session_runs(packages: Json) -> None:
    for name in ("remove_running", "remove_over"):
        done = packages[name]
        assert done["status"] != 0
        assert "the package stays: `session of a test` is running" in done["stderr"], done
        assert "hint: wait until it ends" in done["stderr"]
    assert packages["refused"]["installed"]["zfstune"].startswith("installed ")
    assert packages["refused"]["after"] == packages["upgraded"]["before"]


def test_the_supervisor_restores_after_the_upgrade(packages: Json) -> None:
    """Its files are those of another version by then."""
    default = packages["defaults"]["zfs_delay_scale"]
    assert packages["killed"]["after"] == {"zfs_txg_timeout": "7", "zfs_delay_scale": default}
    assert packages["killed"]["status"]["state"] == "changed"


def test_removing_restores_and_leaves_no_module(packages: Json) -> None:
    assert packages["remove"]["status"] == 0, packages["remove"]
    assert packages["removed"]["after"] == packages["defaults"]
    assert packages["removed"]["installed"]["zfstune"].startswith("config-files ")
    assert not packages["removed"]["python"]


def test_a_purge_restores_after_a_killed_session_and_leaves_nothing(packages: Json) -> None:
    assert packages["left_by_killed"] == {"zfs_txg_timeout": "9", "zfs_delay_scale": "600000"}
    assert packages["keep"]["status"] == 0, packages["keep"]
    assert packages["kept"]
    assert packages["purge"]["status"] == 0, packages["purge"]
    assert "removing /etc/modprobe.d/zfstune.conf" in packages["purge"]["stderr"]
    assert packages["purged"] == {"after": packages["defaults"], "installed": {}, "left": []}


def test_it_installs_over_a_session_of_a_checkout(packages: Json) -> None:
    assert packages["over"]["status"] == 0, packages["over"]
    sees = packages["sees"]
    assert sees["status"]["state"] == "session"
    assert sees["alive"]
    assert sees["after"] == {"zfs_txg_timeout": "6", "zfs_delay_scale": "600000"}
    default = packages["defaults"]["zfs_delay_scale"]
    assert packages["restored_over"] == {"zfs_txg_timeout": "6", "zfs_delay_scale": default}
    assert packages["removed_over"]["status"] == 0
    assert packages["removed_over"]["after"] == packages["defaults"]


def test_a_purge_leaves_the_journal_of_a_checkout(packages: Json) -> None:
    refused = packages["purge_refused"]
    assert refused["status"] != 0
    assert "/run/zfstune stays: another zfstune has changed parameters" in refused["stderr"]
    assert refused["after"]["zfs_txg_timeout"] == "6"
    assert packages["status_refused"]["state"] == "changed"
    assert packages["purge_over"]["status"] == 0, packages["purge_over"]
    assert packages["purge_over"]["left"] == []


def test_afterwards_all_parameters_are_as_before(packages: Json) -> None:
    assert packages["changed"] == {}
