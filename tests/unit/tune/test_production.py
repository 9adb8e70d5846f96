"""Signs that a host is in production."""

from __future__ import annotations

from pathlib import Path

import pytest

from zfstune.tune import production


def host(root: Path, up_days: float, comm: str = "bash", run_days: float = 0.0) -> Path:
    """A fake /proc with one process."""
    process = root / "proc/4711"
    process.mkdir(parents=True)
    up_s = up_days * 86400
    (root / "proc/uptime").write_text(f"{up_s:.2f} 1.00\n")
    ticks = int((up_s - run_days * 86400) * 100)
    fields = ["S"] + ["0"] * 18 + [str(ticks)] + ["0"] * 20
    (process / "stat").write_text(f"4711 ({comm}) {' '.join(fields)}\n")
    return root


@pytest.mark.parametrize("name", ["db-prod-1", "prod", "production7", "mail.live", "PRD_2"])
def test_names_of_production_hosts_are_signs(name: str, tmp_path: Path) -> None:
    (found,) = production.signs(name, host(tmp_path, 1))
    assert name in found


@pytest.mark.parametrize("name", ["product", "oliver", "reproducer", "staging-2", "alive"])
def test_other_names_are_no_signs(name: str, tmp_path: Path) -> None:
    assert production.signs(name, host(tmp_path, 1)) == []


def test_a_long_uptime_is_a_sign(tmp_path: Path) -> None:
    assert production.signs("box", host(tmp_path, 45)) == ["it has been up for 45 days"]


@pytest.mark.parametrize(("days", "said"), [(1.2, "1 day"), (3, "3 days")])
def test_a_database_that_has_run_for_a_day_is_a_sign(
    days: float, said: str, tmp_path: Path
) -> None:
    (found,) = production.signs("box", host(tmp_path, 9, "postgres", days))
    assert found == f"postgres (process 4711) has been running for {said}"


def test_a_database_started_today_is_no_sign(tmp_path: Path) -> None:
    assert production.signs("box", host(tmp_path, 9, "postgres", 0.2)) == []


def test_a_cluster_is_a_sign(tmp_path: Path) -> None:
    root = host(tmp_path, 1)
    (root / "etc/corosync").mkdir(parents=True)
    (root / "etc/corosync/corosync.conf").touch()
    (found,) = production.signs("box", root)
    assert "cluster" in found


def test_an_empty_root_has_no_signs(tmp_path: Path) -> None:
    assert production.signs("box", tmp_path) == []


def test_process_names_in_any_bytes_are_read(tmp_path: Path) -> None:
    """Any user may give a process such a name: prctl(PR_SET_NAME)."""
    root = host(tmp_path, 9, "postgres", 3)
    for pid, name in enumerate((b"bad\xff", b") S (\n", b"\x1b]0;x\x07", b""), 1):
        stat = root / f"proc/{pid}/stat"
        stat.parent.mkdir()
        stat.write_bytes(b"%d (%s) S" % (pid, name) + b" 0" * 25)
    (root / "proc/99").mkdir()
    (root / "proc/99/stat").write_text("99 (odd) " + "x " * 25)
    (found,) = production.signs("box", root)
    assert found == "postgres (process 4711) has been running for 3 days"
