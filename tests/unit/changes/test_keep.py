"""`zfstune keep`: /etc/modprobe.d/zfstune.conf, and what a reboot will make of it."""

from __future__ import annotations

import json
import os
from argparse import Namespace
from pathlib import Path

import pytest
from support.fake_module import GIB, ModuleHost

from zfs_linux.boot import ModprobeConfig
from zfstrace.errors import ParameterError
from zfstune.changes import keep
from zfstune.changes.session import ChangeSession, set_values
from zfstune.errors import NotPossible, UsageError
from zfstune.tunables.guard import Refused

LEAST = "zfs_vdev_async_write_active_min_dirty_percent"
MOST = "zfs_vdev_async_write_active_max_dirty_percent"
DELAY = "zfs_delay_min_dirty_percent"
HEAD = "# Written by `zfstune keep`; `zfstune keep --remove` takes its lines out again."


@pytest.fixture
def host(host: ModuleHost, tmp_path: Path) -> ModuleHost:
    (tmp_path / "etc/modprobe.d").mkdir(parents=True)
    return host


def conf(tmp_path: Path) -> Path:
    return tmp_path / "etc/modprobe.d/zfstune.conf"


def run(*names: str, **options: bool) -> int:
    given = {"names": list(names), "print": False, "remove": False, "json": False, "format": None}
    return keep.run(Namespace(**(given | options)))


def change(host: ModuleHost, **wanted: int) -> None:
    set_values(host, wanted, "zfstune params set", print, where=host.where)


def test_nothing_to_keep_is_status_1(host: ModuleHost, tmp_path: Path) -> None:
    assert run() == 1
    assert not conf(tmp_path).exists()


def test_remove_undoes_keep(
    host: ModuleHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, zfs_txg_timeout=9, zfs_arc_max=16 * GIB)
    assert run() == 0
    assert conf(tmp_path).read_text().splitlines() == [
        HEAD,
        f"options zfs zfs_arc_max={16 * GIB}",
        "options zfs zfs_txg_timeout=9",
    ]
    assert conf(tmp_path).stat().st_mode & 0o777 == 0o644
    assert "these values take effect at the next boot" in capsys.readouterr().err
    assert run(remove=True) == 0
    assert not conf(tmp_path).exists()
    assert run(remove=True) == 0


@pytest.mark.parametrize(
    "before",
    ["options zfs zfs_scan_legacy=1 \\\n", "# mine \\\n", "options zfs zfs_scan_legacy=1 \\"],
)
def test_a_continued_line_does_not_swallow_the_first_value(
    before: str, host: ModuleHost, tmp_path: Path
) -> None:
    """modprobe.d(5): a backslash before the newline joins the next line."""
    conf(tmp_path).write_text(before)
    change(host, zfs_txg_timeout=9, zfs_commit_timeout_pct=4)
    for _ in range(2):
        assert run() == 0
        assert conf(tmp_path).read_text().replace("\\\n", "").splitlines()[-2:] == [
            "options zfs zfs_commit_timeout_pct=4",
            "options zfs zfs_txg_timeout=9",
        ]
    assert conf(tmp_path).read_text().count("\n\n") == 1
    ModprobeConfig(tmp_path).update({}, ["zfs_commit_timeout_pct"])
    assert "\\\n\noptions zfs zfs_txg_timeout=9\n" in conf(tmp_path).read_text()
    assert run(remove=True) == 0
    assert conf(tmp_path).read_text() == f"{HEAD}\n{before.rstrip()}\n"


def test_other_options_in_the_file_stay(host: ModuleHost, tmp_path: Path) -> None:
    before = (
        "# mine\n"
        "options zfs zfs_txg_timeout=3 zfs_scan_legacy=1\n"
        "options zfs zfs_commit_timeout_pct=4\n"
        "options spl spl_hostid=7\n"
    )
    conf(tmp_path).write_text(before)
    change(host, zfs_txg_timeout=9)
    run()
    assert conf(tmp_path).read_text().splitlines() == [
        HEAD,
        "# mine",
        "options zfs zfs_scan_legacy=1",
        "options zfs zfs_commit_timeout_pct=4",
        "options spl spl_hostid=7",
        "options zfs zfs_txg_timeout=9",
    ]
    backup = conf(tmp_path).with_name("zfstune.conf.bak")
    assert backup.read_text() == before
    # nothing new: the backup is still the previous one
    assert run() == 0
    assert backup.read_text() == before


def test_only_the_named_parameters_are_kept(host: ModuleHost, tmp_path: Path) -> None:
    change(host, zfs_txg_timeout=9, zfs_commit_timeout_pct=4)
    run("zfs_txg_timeout")
    assert "zfs_commit_timeout_pct" not in conf(tmp_path).read_text()
    with pytest.raises(UsageError, match="zfs_delay_scale is not set by zfstune"):
        run("zfs_delay_scale")


def test_names_of_sysctls_are_accepted(host: ModuleHost, tmp_path: Path) -> None:
    change(host, zfs_txg_timeout=9, zfs_commit_timeout_pct=4)
    assert run("vfs.zfs.txg.timeout") == 0
    assert ModprobeConfig(tmp_path).values() == {"zfs_txg_timeout": 9}
    assert run("vfs.zfs.txg.timeout", remove=True) == 0
    assert not conf(tmp_path).exists()


def test_what_other_files_set_is_named_after_a_removal(
    host: ModuleHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf(tmp_path).with_name("zfs.conf").write_text("options zfs zfs_scan_legacy=1\n")
    change(host, zfs_txg_timeout=9)
    run()
    assert run(remove=True) == 0
    said = capsys.readouterr().err
    assert said.endswith("the next boot sets zfs_scan_legacy; nothing has changed now\n")


def test_print_changes_nothing(
    host: ModuleHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, zfs_txg_timeout=9)
    assert run(print=True) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"# {conf(tmp_path)}",
        "options zfs zfs_txg_timeout=9",
    ]
    assert not conf(tmp_path).exists()


def test_with_a_damaged_journal_nothing_is_kept(host: ModuleHost, tmp_path: Path) -> None:
    change(host, zfs_txg_timeout=9)
    for directory in (host.where.state, host.where.run):
        (directory / "journal").write_bytes(b"x")
    with pytest.raises(NotPossible, match="cannot keep anything: a part of the journal cannot"):
        run()
    assert not conf(tmp_path).exists()


def test_values_of_other_programs_or_a_running_session_are_not_kept(
    host: ModuleHost, tmp_path: Path
) -> None:
    change(host, zfs_txg_timeout=9, zfs_commit_timeout_pct=4)
    host.params.put("zfs_commit_timeout_pct", 44)
    assert keep.in_force(host, host.where) == {"zfs_txg_timeout": 9}
    with ChangeSession(host, "tune", ["zfs_delay_scale"], print, host.where, still_s=0) as session:
        session.apply({"zfs_delay_scale": 400000})
        with pytest.raises(NotPossible, match="`tune` has not ended"):
            keep.in_force(host, host.where)


def test_it_warns_of_files_that_take_precedence(host: ModuleHost, tmp_path: Path) -> None:
    change(host, zfs_txg_timeout=9)
    for path, text in {
        "etc/modprobe.d/zfs.conf": "options zfs zfs_txg_timeout=4\n",
        "usr/lib/modprobe.d/zzz.conf": "options zfs zfs_arc_max=1 \\\n zfs_txg_timeout=6\n",
        "lib/modprobe.d/zfs.conf": "options zfs zfs_txg_timeout=1\n",
        "proc/cmdline": "root=/dev/sda zfs.zfs_txg_timeout=8 quiet\n",
        "usr/share/initramfs-tools/hooks/zfs": "",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    kept = host.params.boot().update({"zfs_txg_timeout": 9})
    assert kept.notes == (
        f"{tmp_path}/etc/modprobe.d/zfs.conf also sets zfs_txg_timeout=4; this file wins",
        f"{tmp_path}/usr/lib/modprobe.d/zzz.conf also sets zfs_txg_timeout=6; it is read later "
        "and wins",
        "the kernel command line sets zfs_txg_timeout=8, which wins",
        "ZFS is loaded in the initramfs, which has its own copy of the file: run "
        "`update-initramfs -u -k all`",
    )


def test_json_has_the_lines_of_the_file(
    host: ModuleHost, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(host, zfs_txg_timeout=9)
    capsys.readouterr()
    run(json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["lines"] == ["options zfs zfs_txg_timeout=9"]


@pytest.mark.parametrize("name", ["rename", "fsync"])
def test_the_previous_file_survives_a_full_disk(
    host: ModuleHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    from zfstrace.errors import ParameterError

    conf(tmp_path).write_text("options zfs zfs_txg_timeout=3\n")

    def fail(*_: object, **_options: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, name, fail)
    with pytest.raises(ParameterError, match=r"nothing was changed$") as caught:
        ModprobeConfig(tmp_path).update({"zfs_txg_timeout": 9})
    assert caught.value.hint == "make room"
    monkeypatch.undo()
    assert conf(tmp_path).read_text() == "options zfs zfs_txg_timeout=3\n"
    assert [path.name for path in conf(tmp_path).parent.iterdir()] == ["zfstune.conf"]


# --- what the next boot would have


@pytest.mark.parametrize("only_print", [False, True])
def test_half_of_a_coupled_pair_is_refused(
    host: ModuleHost, tmp_path: Path, only_print: bool
) -> None:
    change(host, **{LEAST: 60, MOST: 90, DELAY: 95})
    with pytest.raises(Refused, match=f"^cannot keep {LEAST}: .* divides by zero") as error:
        run(LEAST, print=only_print)
    assert error.value.hint == f"also keep {MOST}"
    assert not conf(tmp_path).exists()
    assert run(LEAST, MOST, print=only_print) == 0


def test_the_other_half_set_by_another_program_must_be_kept_too(
    host: ModuleHost, tmp_path: Path
) -> None:
    host.params.put(DELAY, 95)
    host.params.put(MOST, 90)
    change(host, **{LEAST: 60})
    with pytest.raises(Refused) as error:
        run()
    assert error.value.hint == f"also keep {MOST}"
    assert not conf(tmp_path).exists()
    with pytest.raises(UsageError, match=f"{DELAY} is not set by zfstune"):
        run(DELAY)
    assert run(LEAST, MOST) == 0
    assert ModprobeConfig(tmp_path).values() == {LEAST: 60, MOST: 90}


@pytest.mark.parametrize("value", [32 << 10, 50 << 10])
def test_a_value_that_overruns_the_log_is_not_kept(host: ModuleHost, value: int) -> None:
    """As an older version of this program may have set it."""
    refused = r"^cannot keep zil_maxblocksize: at the next boot .*(50|32)K"
    with pytest.raises(Refused, match=refused):
        keep._NextLoad(host).judge({"zil_maxblocksize": value}, ())
    keep._NextLoad(host).judge({"zil_maxblocksize": 36 << 10}, ())


def test_half_of_a_coupled_pair_is_not_removed(host: ModuleHost, tmp_path: Path) -> None:
    change(host, **{LEAST: 60, MOST: 90, DELAY: 95})
    run()
    before = conf(tmp_path).read_text()
    with pytest.raises(Refused, match=f"^cannot remove {MOST}: ") as error:
        run(MOST, remove=True)
    assert error.value.hint == f"also remove {LEAST}"
    assert conf(tmp_path).read_text() == before
    assert run(MOST, LEAST, remove=True) == 0
    assert ModprobeConfig(tmp_path).values() == {DELAY: 95}
    # nothing of ours is left to take out, yet another file needs it
    change(host, zfs_txg_timeout=9)
    run()
    conf(tmp_path).with_name("a.conf").write_text(f"options zfs {LEAST}=60\n")
    with pytest.raises(Refused) as error:
        run(MOST, remove=True)
    assert error.value.hint == f"change {LEAST} or {MOST} where that is set"
    conf(tmp_path).with_name("a.conf").unlink()
    assert run(remove=True) == 0
    assert not conf(tmp_path).exists()


def test_values_in_other_files_count_for_a_pair(host: ModuleHost, tmp_path: Path) -> None:
    change(host, **{LEAST: 60, MOST: 90, DELAY: 95})
    other = conf(tmp_path).with_name("zfs.conf")
    other.write_text(f"options zfs zfs_txg_timeout=3 \\\n {MOST}=0x5a\n")
    assert run(LEAST) == 0
    # the kernel's command line comes last
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cmdline").write_text(f"root=/dev/sda zfs.{MOST}=62 quiet\n")
    with pytest.raises(Refused) as error:
        run(LEAST, MOST)
    assert error.value.hint == f"change {LEAST} or {MOST} where that is set"


def test_a_pair_already_wrong_does_not_block_others(host: ModuleHost, tmp_path: Path) -> None:
    conf(tmp_path).with_name("a.conf").write_text(f"options zfs {LEAST}=60\n")
    change(host, zfs_txg_timeout=9, **{MOST: 64, DELAY: 64})
    assert run("zfs_txg_timeout") == 0
    with pytest.raises(Refused):
        run(MOST)


def test_an_unreadable_file_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "etc/modprobe.d/zfstune.conf"
    path.mkdir(parents=True)
    with pytest.raises(ParameterError, match=r"cannot read .*Is a directory"):
        ModprobeConfig(tmp_path).update({"zfs_txg_timeout": 9})
    assert path.is_dir()


def test_bytes_that_are_not_text_stay(tmp_path: Path) -> None:
    path = tmp_path / "etc/modprobe.d/zfstune.conf"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"# caf\xe9\n")
    ModprobeConfig(tmp_path).update({"zfs_txg_timeout": 9})
    assert b"\n# caf\xe9\n" in path.read_bytes()
    assert b"zfs_txg_timeout=9" in path.read_bytes()


def test_only_a_newline_ends_a_line(tmp_path: Path) -> None:
    """modprobe(8) takes what follows a form feed in a comment for a part of the comment."""
    path = tmp_path / "etc/modprobe.d/zfstune.conf"
    path.parent.mkdir(parents=True)
    before = b"# old:\x0coptions zfs zfs_scan_legacy=1\r\n# \xe2\x80\xa8options zfs zfs_arc_min=1\n"
    path.write_bytes(before)
    kept = ModprobeConfig(tmp_path).update({"zfs_txg_timeout": 9})
    assert kept.given == {"zfs_txg_timeout": 9}
    assert path.read_bytes() == f"{HEAD}\n".encode() + before + b"options zfs zfs_txg_timeout=9\n"
    assert path.with_name("zfstune.conf.bak").read_bytes() == before


def test_a_line_keeps_its_quotes(tmp_path: Path) -> None:
    path = tmp_path / "etc/modprobe.d/zfstune.conf"
    path.parent.mkdir(parents=True)
    line = 'options zfs spa_config_path="/etc/zfs/my cache" zfs_txg_timeout=3'
    path.write_text(f"{line}\n")
    kept = ModprobeConfig(tmp_path).update({"zfs_txg_timeout": 9})
    assert kept.given == {"zfs_txg_timeout": 9}
    assert path.read_text().splitlines() == [HEAD, line, "options zfs zfs_txg_timeout=9"]
