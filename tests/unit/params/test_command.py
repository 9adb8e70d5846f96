"""`zfstune params` on a fake host."""

from __future__ import annotations

import argparse
import io
import json
from pathlib import Path
from typing import Any

import pytest
from support.fake_module import FileParameters, ModuleHost

from zfstune.changes import session
from zfstune.cli import Parser
from zfstune.errors import CommandError, NotPossible, UsageError
from zfstune.params import args as params_args
from zfstune.params import command
from zfstune.tunables import catalogue
from zfstune.tunables.survey import look, require_module, require_possible

G, M = 1 << 30, 1 << 20


class Values(FileParameters):
    """Of a module with everything that the catalogue has for this version."""

    def __init__(self, values: dict[str, int | None]) -> None:
        super().__init__(Path("/nowhere"))
        self.found = values

    def names(self) -> list[str]:
        return sorted(self.found)

    def read(self, name: str) -> int | None:
        return self.found.get(name)


class Host(ModuleHost):
    """16 GiB, ZFS 2.3.9, all at its default."""

    def __init__(self, release: str = "2.3.9-1") -> None:
        super().__init__(Path("/nowhere"), create=False)
        self.arc = {
            "memory_all_bytes": 16 * G,
            "c_min": 512 * M,
            "c_max": 15 * G,
            "arc_sys_free": 256 * M,
        }
        self.release = release
        known = {"memory": 16 * G}
        found = {
            name: catalogue.default_value(name, release, known)
            for name, parameter in catalogue.load().items()
            if parameter.linux
        }
        self.module: dict[str, int | None] = {n: v for n, v in found.items() if v is not None}
        self.module |= {"zfs_abd_scatter_max_order": 10, "zfs_vdev_raidz_impl": None}

    def parameters(self) -> Values:  # type: ignore[override]
        return Values(self.module)

    def version(self) -> str:
        return self.release if self.module else ""

    def memory_bytes(self) -> int:
        return 16 * G

    def kstat(self, name: str) -> dict[str, int]:
        return self.arc if name == "arcstats" and self.module else {}


def args_of(*words: str) -> argparse.Namespace:
    parser = Parser(prog="zfstune")
    params_args.add(parser.add_subparsers(dest="command"))
    return parser.parse_args(["params", *words])


def run(host: Host, *words: str) -> str:
    """The output of a command."""
    args, out = args_of(*words), io.StringIO()
    if args.what == "set":
        command.set_values(host, args, out)
    elif args.what == "explain":
        command.explain(host, args, out)
    elif args.what == "get":
        command.get(look(host), args, out)
    else:
        command.show_list(look(host), args, out)
    text = out.getvalue()
    assert all(len(line) < 100 for line in text.splitlines() if '"' not in line)
    return text


def row(text: str, name: str) -> list[str]:
    (found,) = [line.split() for line in text.splitlines() if line.startswith(f"{name} ")]
    return found[1:]


def found(text: str) -> dict[str, Any]:
    out: dict[str, Any] = json.loads(text)
    return out


# --- list


def test_the_list_has_the_important_parameters_and_says_so() -> None:
    text = run(Host())
    assert row(text, "zfs_dirty_data_max") == ["1.60G", "1.60G"]
    assert row(text, "zfs_txg_timeout") == ["5", "s", "5", "s"]
    assert "zfs_vdev_scrub_max_active" not in text
    assert "more with --all" in text
    assert "changed" not in text and "RULE" not in text


def test_all_lists_every_parameter_of_the_module() -> None:
    host = Host()
    text = run(host, "list", "--all")
    assert all(row(text, name) for name in host.module)
    assert row(text, "zfs_vdev_raidz_impl")[0] == "text"
    assert row(text, "zfs_abd_scatter_max_order") == ["10", "-"]
    assert row(text, "zfs_nocacheflush") == ["0", "0", "never", "set"]
    assert row(text, "zfs_dirty_data_max_max") == ["4G", "4G", "at", "load", "only"]
    assert "does not know the default" in text


def test_a_value_in_force_that_is_not_the_value_is_shown() -> None:
    assert row(run(Host()), "zfs_arc_max") == ["0", "0", "15G"]


def test_unimportant_parameters_are_listed_when_changed() -> None:
    host = Host()
    assert run(host, "list", "--changed") == (
        "all parameters known to zfstune are at their defaults\n"
    )
    host.module |= {"zfs_vdev_scrub_max_active": 5, "zfs_txg_timeout": 10}
    assert row(run(host), "zfs_vdev_scrub_max_active") == ["5", "3", "changed"]
    text = run(host, "--changed")
    assert [line.split()[0] for line in text.splitlines()] == [
        "PARAMETER",
        "zfs_txg_timeout",
        "zfs_vdev_scrub_max_active",
    ]


def test_a_default_off_by_a_few_pages_is_not_marked_as_changed() -> None:
    host = Host()
    host.arc["memory_all_bytes"] -= 100 * 4096
    assert "changed" not in run(host)


def test_values_that_break_a_rule_are_marked_and_explained() -> None:
    host = Host()
    host.module["zfs_vdev_async_write_active_min_dirty_percent"] = 60
    text = " ".join(run(host).split())
    assert "BREAKS A RULE" in text
    assert "divides by zero" in text
    assert "use zfs_vdev_async_write_active_min_dirty_percent=55" in text


def test_a_limit_that_zfs_ignores_is_marked() -> None:
    host = Host()
    host.module["zfs_arc_max"] = 64 * G
    text = run(host)
    assert row(text, "zfs_arc_max") == ["64G", "0", "15G", "IGNORED,", "changed"]
    assert "which ZFS ignores" in text and "zfs_arc_max=15G" in text


def test_values_that_lose_data_are_marked() -> None:
    host = Host()
    assert "zil_nocacheflush" not in run(host)
    host.module["zil_nocacheflush"] = 1
    text = run(host)
    assert row(text, "zil_nocacheflush") == ["1", "0", "DANGEROUS"]
    assert "! zil_nocacheflush is 1: A power failure loses" in text


def test_the_list_has_json() -> None:
    host = Host()
    host.module["zfs_dirty_data_sync_percent"] = 50
    data = found(run(host, "list", "--json"))
    assert data["type"] == "params" and data["version"] == "2.3.9-1"
    entries = {entry["name"]: entry for entry in data["parameters"]}
    assert entries["zfs_arc_max"]["in_force"] == 15 * G
    assert entries["zfs_txg_timeout"] == {
        "name": "zfs_txg_timeout",
        "freebsd": "vfs.zfs.txg.timeout",
        "unit": "s",
        "access": "rw",
        "value": 5,
        "default": 5,
        "in_force": 5,
        "changed": False,
        "low": 1,
        "high": 120,
    }
    (violation,) = data["violations"]
    assert not violation["hard"] and violation["nearest"]["zfs_dirty_data_sync_percent"] == 29


def test_without_zfs_nothing_can_be_set() -> None:
    host = Host()
    host.module = {}
    with pytest.raises(NotPossible, match="cannot set parameters: ZFS is not loaded"):
        run(host, "set", "zfs_dirty_data_max=10%", "--dry-run")


def test_the_command_line_is_checked_before_the_host() -> None:
    """Sizes in percent of the memory, and names that only a module may have, are left to it."""
    command.check_values(["zfs_dirty_data_max=10%", "vfs.zfs.txg.timeout=5s"])
    require_possible(["zfs_abd_scatter_max_order", "zfs_dirty_data_max", "vfs.zfs.txg.timeout"])
    for name in ("x", "", "zfs dirty_data", "vfs.zfs.txg"):
        with pytest.raises(UsageError, match="no parameter"):
            require_possible([name])


@pytest.mark.parametrize("release", ["2.1.11-1", "2.2.9-1", "2.3.9-1", "2.4.4-1"])
def test_the_defaults_of_every_version_are_legal(release: str) -> None:
    survey = look(Host(release))
    assert survey.violations == []
    assert not [name for name, one in survey.rows.items() if one.changed]


def test_without_zfs_the_list_fails() -> None:
    host = Host()
    host.module = {}
    with pytest.raises(NotPossible, match="ZFS is not loaded"):
        require_module(look(host))


# --- get


def test_get_prints_what_set_takes() -> None:
    text = run(Host(), "get", "vfs.zfs.txg.timeout", "zil_slog_bulk", "zfs_abd_scatter_max_order")
    assert text == "zfs_txg_timeout=5\nzil_slog_bulk=67108864\nzfs_abd_scatter_max_order=10\n"
    assert run(Host(), "get", "--value", "zfs_txg_timeout") == "5\n"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("zfs_txg_timout", "no parameter 'zfs_txg_timout'; did you mean zfs_txg_timeout"),
        ("dirty_data_max", "did you mean zfs_dirty_data_max"),
        ("xyzzy", "see `zfstune params --all`"),
        ("zfs_vdev_raidz_impl", "is not a number"),
        ("zfs_arc_free_target", "no parameter 'zfs_arc_free_target' in ZFS 2.3.9-1"),
    ],
)
def test_unknown_names_are_refused_with_a_guess(name: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        run(Host(), "get", name)
    assert message in error.value.in_one_line()


# --- explain


def test_explain_has_the_meaning_and_the_value_here() -> None:
    text = " ".join(run(Host(), "explain", "zfs_dirty_data_max").split())
    assert "here 1.60G (1717986918), the default" in text
    assert "bounds 16M to 4G" in text
    assert "Here zfs_wrlog_data_max is 3.20G." in text
    assert "Here zfs_arc_max is 15G." in text
    assert "raised after and lowered before zfs_wrlog_data_max" in text
    assert "fully after 3 txgs" in text
    assert "vfs.zfs.dirty_data_max on FreeBSD" in text


def test_explain_has_the_effect_of_a_write() -> None:
    text = " ".join(run(Host(), "explain", "zil_maxblocksize").split())
    assert "bounds 36K to 128K in steps of 4K" in text
    assert "source zil.c zil_alloc(), zil_lwb_commit(), zfs_log.c zfs_log_symlink()" in text
    assert "takes effect when a dataset or volume is opened (mounted), not before" in text
    assert "which is only asserted (read in 2.1.11, 2.2.9, 2.3.9, 2.4.4)" in text
    assert "goes back the previous value is written" in text
    assert "remains datasets and volumes opened meanwhile keep the size" in text


@pytest.mark.parametrize(
    ("name", "zero", "back"),
    [
        (
            "zfs_arc_shrink_shift",
            "0 stands for 7; writing it changes nothing",
            "if it was 0, 7 is written, then 0",
        ),
        (
            "zfs_arc_sys_free",
            "0 stands for what was computed at load; writing it changes nothing",
            "arc_sys_free in arcstats shows that it is in force",
        ),
        (
            "zfs_arc_dnode_limit",
            "0 stands for arc_c_max * zfs_arc_dnode_limit_percent // 100; writing it restores that",
            "the previous value is written",
        ),
    ],
)
def test_explain_has_the_meaning_of_0(name: str, zero: str, back: str) -> None:
    host = Host()
    host.module[name] = 0
    text = " ".join(run(host, "explain", name).split())
    assert zero in text and back in text
    assert "changes ZFS checks all limits of the ARC again" in text


def test_explain_as_json_has_all_of_the_catalogue() -> None:
    entry, other = json.loads(
        run(Host(), "explain", "vfs.zfs.zil.maxblocksize", "zfs_arc_sys_free", "--json")
    )["parameters"]
    assert entry["name"] == "zil_maxblocksize" and entry["step"] == "4K"
    assert entry["takes_effect"] == "open" and entry["remains"].startswith("datasets")
    assert entry["source"].startswith("zil.c zil_alloc()")
    assert other["in_force"] == "arc_sys_free" and other["most"] == "memory // 4"
    assert json.loads(run(Host(), "--json", "explain", "zfs_txg_timeout"))["parameters"]


def test_explain_works_without_zfs() -> None:
    host = Host()
    host.module = {}
    text = run(host, "explain", "zfs_txg_timeout")
    assert "ZFS is not loaded" in text and "5 s" in text
    text = run(host, "explain", "zil_maxblocksize", "zfs_arc_sys_free")
    assert "36K to 128K in steps of 4K" in text
    assert "max(16M, memory // 64) to memory // 4" in text


def test_every_parameter_can_be_explained() -> None:
    assert run(Host(), "explain", *catalogue.load(), "zfs_abd_scatter_max_order")


# --- set


def test_a_dry_run_shows_the_order_and_why() -> None:
    text = run(
        Host(), "set", "zfs_dirty_data_max=64M", "zfs_wrlog_data_max=128M", "--dry-run"
    ).splitlines()
    assert text[0] == "writes in this order:"
    assert text[1].split() == ["1", "zfs_delay_min_dirty_percent", "60", "%", "->", "100", "%"]
    assert "nothing was written" in text[-1]


def test_a_dry_run_as_json() -> None:
    data = found(run(Host(), "set", "zfs_txg_timeout=10s", "--dry-run", "--json"))
    (write,) = data["writes"]
    assert (write["before"], write["value"], data["dry_run"]) == (5, 10, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["zfs_txg_timeout"], "sets nothing"),
        (["zfs_txg_timeout=5", "vfs.zfs.txg.timeout=6"], "given twice"),
        (["zfs_txg_timeout=5x"], "cannot set zfs_txg_timeout: '5x' is not a time"),
        (["zfs_txg_timeout=0"], "the minimum is 1 s"),
        (["zil_nocacheflush=1", "--force"], "not even with --force"),
        (["zfs_abd_scatter_max_order=3"], "zfstune does not know it"),
    ],
)
def test_illegal_values_are_refused_with_the_reason(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run(Host(), "set", "--dry-run", *words)


def test_nothing_to_do_is_said() -> None:
    assert run(Host(), "set", "zfs_txg_timeout=5s", "--dry-run") == ("nothing to do: already set\n")


def test_set_writes_through_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    host = ModuleHost(tmp_path)
    monkeypatch.setattr(session, "places", lambda: host.where)
    out = io.StringIO()
    command.set_values(host, args_of("set", "zfs_txg_timeout=10s"), out)
    assert host.now()["zfs_txg_timeout"] == 10
    assert "undo: `zfstune revert`" in out.getvalue()
    with pytest.raises(CommandError):
        command.set_values(host, args_of("set", "zfs_txg_timeout=0"), out)
    assert host.now()["zfs_txg_timeout"] == 10
