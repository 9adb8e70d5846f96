"""`zfstune advise` through its command line on a fake Linux: programs named zpool and zfs, and
directories in place of /proc and /sys."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.fake_advise import DATASET, POOL, SINGLE, rows
from support.paths import DATA

from zfs_linux.host import LinuxHost
from zfstune import cli
from zfstune.advise import command

ZPOOL = """\
#!/bin/sh
case "$*" in
"get -H -p -o name,property,value,source all tank") cat {dir}/zpool_get ;;
"status tank") cat {dir}/status ;;
"status -P tank") sed 's/ vd/ \\/dev\\/vd/' {dir}/status ;;
*) echo "invalid option" >&2; exit 2 ;;
esac
"""
ZFS = """\
#!/bin/sh
case "$*" in
"get -H -p -o name,property,value,source -r -t filesystem,volume all tank") cat {dir}/zfs_get ;;
"list -H -o name -r tank") printf 'tank\\ntank/db\\n' ;;
*) echo "dataset does not exist" >&2; exit 1 ;;
esac
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    kstat = tmp_path / "proc/spl/kstat/zfs"
    (kstat / "tank").mkdir(parents=True)
    (kstat / "tank/state").write_text("ONLINE\n")
    (kstat / "arcstats").write_bytes((DATA / "trixie/arcstats").read_bytes())
    module = tmp_path / "sys/module/zfs"
    (module / "parameters").mkdir(parents=True)
    (module / "version").write_text("2.1.11-1\n")
    (module / "parameters/zfs_txg_timeout").write_text("5\n")
    queue = tmp_path / "sys/class/block/vdb/queue"
    queue.mkdir(parents=True)
    (queue / "physical_block_size").write_text("4096\n")
    for name, text in (("zpool", ZPOOL), ("zfs", ZFS)):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text.format(dir=tmp_path))
        program.chmod(0o755)
    (tmp_path / "status").write_text(SINGLE)
    (tmp_path / "zpool_get").write_text(rows("tank", POOL, "-"))
    (tmp_path / "zfs_get").write_text(rows("tank", DATASET | {"sync": "disabled local"}))
    monkeypatch.setenv("PATH", f"{tmp_path}/bin", prepend=os.pathsep)
    monkeypatch.setenv("ZFSTUNE_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setattr(command, "open_host", lambda: LinuxHost(tmp_path))
    return tmp_path


def test_findings_come_from_the_output_of_zpool_and_zfs(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["advise", "tank", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    by_rule = {finding["rule"]: finding for finding in said["findings"]}
    assert by_rule["sync-disabled"]["commands"] == ["zfs set sync=standard tank"]
    # 2.1 prints no ashift of vdevs, but its status has the sectors
    assert by_rule["ashift-below-sector"]["where"] == ["tank vdb"]
    assert "ashift-mixed" not in by_rule
    assert said["version"] == "2.1.11-1"


def test_an_unknown_dataset_is_refused_with_a_guess(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["advise", "tank/bd"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("zfstune: error: no dataset 'tank/bd'\nhint: did you mean ")


def test_without_zpool_it_says_what_fails(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert cli.main(["advise"]) == 3
    assert "`zpool get all tank` fails or takes longer" in capsys.readouterr().err


def test_a_suspended_pool_is_status_3(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "proc/spl/kstat/zfs/tank/state").write_text("SUSPENDED\n")
    assert cli.main(["advise"]) == 3
    assert "its I/O is suspended" in capsys.readouterr().err
