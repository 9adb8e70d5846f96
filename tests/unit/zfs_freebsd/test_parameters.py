"""Parameters by sysctl, and the files that keep them over a boot."""

from __future__ import annotations

import json
import os
import re
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.freebsd import standin
from support.freebsd.standin import Table

from zfs_freebsd.boot import BootFiles, by_name
from zfs_freebsd.host import FreeBSDHost
from zfs_freebsd.parameters import ALIASES, FreeBSDParameters
from zfs_freebsd.sysctl import Sysctl
from zfs_freebsd.watch import TracedWatch
from zfstrace import files
from zfstrace.errors import ParameterError
from zfstrace.params import BootConfig, Change, ComparingWatch, Watch
from zfstune.tunables import catalogue, guard, planner

LEAST = "zfs_vdev_async_write_active_min_dirty_percent"
MOST = "zfs_vdev_async_write_active_max_dirty_percent"


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Table:
    monkeypatch.setenv("SYSCTL_STANDIN_TABLE", str(tmp_path / "table"))
    (tmp_path / "etc").mkdir()
    return Table(tmp_path / "table").host().write()


@pytest.fixture
def params(table: Table, tmp_path: Path) -> FreeBSDParameters:
    sysctl = Sysctl(str(standin.build()))
    return FreeBSDParameters(sysctl, catalogue.freebsd_names, by_name, tmp_path)


def test_parameters_are_read_by_their_linux_names(params: FreeBSDParameters) -> None:
    assert "zfs_txg_timeout" in params.names()
    # Linux only, other versions only
    assert not {"zfs_arc_shrinker_limit", "zfs_sync_taskq_batch_pct"} & set(params.names())
    assert params.read("zfs_txg_timeout") == 5
    assert params.read("zfs_dirty_data_max") == 4 << 30
    assert params.read("zfs_arc_shrinker_limit") is None


def test_a_write_reaches_the_sysctl(params: FreeBSDParameters, table: Table) -> None:
    params.write("zfs_dirty_data_max", 1 << 30)
    assert params.read("zfs_dirty_data_max") == 1 << 30
    assert table.read("vfs/zfs/dirty_data_max") == 1 << 30


@pytest.mark.parametrize("kind", ["int", "uint", "long", "ulong", "s64", "u64"])
def test_the_type_of_a_parameter_is_looked_up(
    params: FreeBSDParameters, table: Table, kind: str
) -> None:
    """2.1 has other types than 2.2 and later."""
    table.add("vfs/zfs/dirty_data_max", kind, 5, "wt").write()
    params.write("zfs_dirty_data_max", 64 << 20)
    assert params.read("zfs_dirty_data_max") == 64 << 20


def test_aliases_of_older_versions_are_used(params: FreeBSDParameters, table: Table) -> None:
    table.remove("vfs/zfs/arc/").add("vfs/zfs/arc_max", "ulong", 0, "wtM").write()
    assert params.read("zfs_arc_max") == 0
    params.write("zfs_arc_max", 8 << 30)
    assert params.shell("zfs_arc_max", 1) == "sysctl vfs.zfs.arc_max=1"
    kept = params.boot().update({"zfs_arc_max": 8 << 30})
    assert kept.lines == (f"vfs.zfs.arc_max={8 << 30}  # zfstune keep",)
    assert params.boot().values() == {"zfs_arc_max": 8 << 30}
    assert set(ALIASES.values()) <= set(catalogue.freebsd_names().values())


def test_arc_limits_follow_the_rules_of_the_kernel(params: FreeBSDParameters, table: Table) -> None:
    params.write("zfs_arc_max", 16 << 30)
    assert table.read("kstat/zfs/misc/arcstats/c_max") == 16 << 30
    params.write("zfs_arc_max", 0)
    assert params.read("zfs_arc_max") == 0
    assert table.read("kstat/zfs/misc/arcstats/c_max") == 16 << 30
    for value in (1 << 20, 2 << 30, standin.MEMORY):
        with pytest.raises(ParameterError, match="between the other limit and the memory"):
            params.write("zfs_arc_max", value)
    with pytest.raises(ParameterError, match=r"refuses it for vfs\.zfs\.arc\.min"):
        params.write("zfs_arc_min", 17 << 30)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("zfs_nothing", 1, "cannot set zfs_nothing: ZFS has no such parameter here"),
        (
            "zfs_txg_timeout",
            -1,
            r"cannot set zfs_txg_timeout .* to -1: out of range .*unsigned int",
        ),
        (
            "zfs_dirty_data_max_max",
            1,
            r"vfs.zfs.dirty_data_max_max is read-only; set it in /boot/loader.conf",
        ),
    ],
)
def test_errors_say_why_and_what_to_do(
    params: FreeBSDParameters, name: str, value: int, text: str
) -> None:
    with pytest.raises(ParameterError) as raised:
        params.write(name, value)
    assert re.search(text, raised.value.in_one_line())
    assert "\n" not in str(raised.value)


def test_without_privilege_a_write_says_what_to_do(
    params: FreeBSDParameters, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYSCTL_STANDIN_USER", "1")
    with pytest.raises(
        ParameterError, match=r"permission to write vfs\.zfs\.txg\.timeout"
    ) as caught:
        params.write("zfs_txg_timeout", 1)
    assert caught.value.hint == "run as root"
    table.add("security/jail/jailed", "int", 1).write()
    assert params.who() == "root outside jails"


def test_what_root_may_set_is_writable(
    params: FreeBSDParameters, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert params.writable("zfs_txg_timeout")
    assert not params.writable("zfs_dirty_data_max_max")
    assert not params.writable("zfs_nothing")
    table.add("security/jail/jailed", "int", 1).write()
    assert not params.writable("zfs_txg_timeout")
    table.add("security/jail/jailed", "int", 0).write()
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    assert not params.writable("zfs_txg_timeout")


def test_the_identity_changes_with_the_module(params: FreeBSDParameters, table: Table) -> None:
    first = params.identity()
    assert first
    table.generation = 1
    table.write()
    loaded_anew = params.identity()
    table.add("kern/boot_id", "opaque", "00" * 16).write()
    booted = params.identity()
    table.remove("kern/boot_id").add("kern/boottime", "opaque", "11" * 16).write()
    assert len({first, loaded_anew, booted, params.identity(), ""}) == 5
    table.remove("vfs/zfs").write()
    assert params.identity() == ""
    assert params.names() == []


def test_a_comparing_watch_sees_values_of_others(params: FreeBSDParameters, table: Table) -> None:
    watch = params.watch(["zfs_txg_timeout", "zfs_delay_scale", "zfs_nothing"])
    params.write("zfs_txg_timeout", 6)
    assert watch.poll() == []
    table.put("vfs/zfs/txg/timeout", 8)
    assert watch.poll() == [Change("zfs_txg_timeout")]
    assert watch.poll() == []
    watch.close()
    assert params._comparing == []


# What dtrace -xnolibs -Zs SCRIPT PID prints, line by line, is what is added to a file.
DTRACE = """\
#!/bin/sh
echo "$3 $4" > {directory}/arguments
echo '{{"schema":1,"type":"trace_begin","tool":"sysctlwrite"}}'
exec tail -n +1 -f {directory}/lines
"""


class Writers:
    """A stand-in for dtrace(1) that reports who has written."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines = directory / "lines"
        self.lines.touch()
        program = directory / "bin/dtrace"
        program.parent.mkdir()
        program.write_text(DTRACE.format(directory=directory))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        (directory / "dev/dtrace").mkdir(parents=True)
        (directory / "dev/dtrace/dtrace").touch()

    def tell(self, name: str, pid: int, comm: str = "sysctl") -> None:
        line = {"schema": 1, "type": "sysctl_write", "pid": pid, "comm": comm, "name": name}
        with self.lines.open("a") as file:
            # D escapes nothing
            file.write(json.dumps(line).replace("\\t", "\t") + "\n")


@pytest.fixture
def writers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Writers:
    return Writers(tmp_path, monkeypatch)


def polled(watch: Watch, wait_s: float = 5.0) -> list[Change]:
    """The changes of the next poll that has any."""
    end = time.monotonic() + wait_s
    while time.monotonic() < end:
        if changes := watch.poll():
            return changes
        time.sleep(0.005)
    return []


def numbers(name: str) -> str:
    return ".".join(map(str, Sysctl(str(standin.build())).mib(name)))


def test_the_traced_watch_names_the_writer(
    params: FreeBSDParameters,
    table: Table,
    writers: Writers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("zfs_freebsd.watch.LATE_S", 5.0)  # tail(1), here, is slow to begin
    watch = params.watch(["zfs_txg_timeout", "zfs_arc_max", "zfs_nothing"], {4711})
    script, reader = (tmp_path / "arguments").read_text().split()
    assert (Path(script).name, reader) == ("sysctlwrite-json.d", str(os.getpid()))
    # sysctl(8) asks by numbers, others by a name; writing the same value counts, too
    table.put("vfs/zfs/txg/timeout", 8)
    writers.tell(numbers("vfs.zfs.txg.timeout"), 12)
    assert polled(watch) == [Change("zfs_txg_timeout", 12, "sysctl")]
    writers.tell("vfs.zfs.txg.timeout", 13, "agent")
    assert polled(watch) == [Change("zfs_txg_timeout", 13, "agent")]
    writers.tell("vfs.zfs.txg.timeout", 14, "a\tb")
    assert polled(watch) == [Change("zfs_txg_timeout", 14, "a\tb")]
    assert polled(watch, 0.3) == []
    watch.close()
    assert params._comparing == []


def test_the_traced_watch_ignores_own_and_unwatched_writes(
    params: FreeBSDParameters, writers: Writers
) -> None:
    watch = params.watch(["zfs_txg_timeout"], {4711})
    params.write("zfs_txg_timeout", 6)
    for pid in (os.getpid(), 4711):
        writers.tell("vfs.zfs.txg.timeout", pid)
    writers.tell("vfs.zfs.delay_scale", 12)
    writers.tell("vfs.usermount", 12)
    assert polled(watch, 0.4) == []
    watch.close()


def test_the_traced_watch_also_compares_values(
    params: FreeBSDParameters, table: Table, writers: Writers
) -> None:
    """It lost the event, and then it ends."""
    watch = params.watch(["zfs_txg_timeout"])
    assert isinstance(watch, TracedWatch)
    table.put("vfs/zfs/txg/timeout", 8)
    assert watch.poll() == []  # the writer may still be reported
    assert polled(watch) == [Change("zfs_txg_timeout")]
    assert watch._trace
    watch._trace._process.kill()
    watch._trace._process.wait()
    table.put("vfs/zfs/txg/timeout", 9)
    assert polled(watch) == [Change("zfs_txg_timeout")]
    watch.close()
    watch.close()


def test_without_dtrace_values_are_compared(
    params: FreeBSDParameters,
    writers: Writers,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "bin/dtrace").write_text("#!/bin/sh\necho no probes >&2\nexit 1\n")
    assert isinstance(params.watch(["zfs_txg_timeout"]), ComparingWatch)
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    assert isinstance(params.watch(["zfs_txg_timeout"]), ComparingWatch)


def test_the_command_to_set_a_parameter_is_sysctl(params: FreeBSDParameters) -> None:
    assert params.shell("zfs_txg_timeout", 7) == "sysctl vfs.zfs.txg.timeout=7"
    assert params.loading() == "kldload zfs"


# --- what is kept


def lines(root: Path, name: str = "etc/sysctl.conf") -> list[str]:
    return (root / name).read_text().splitlines()


def test_kept_lines_can_be_dropped(params: FreeBSDParameters, tmp_path: Path) -> None:
    before = "# mine\nkern.maxfiles=9 # why\n\nvfs.zfs.arc_max=1G\n"
    conf = tmp_path / "etc/sysctl.conf"
    conf.write_text(before)
    conf.chmod(0o600)
    boot = params.boot()
    kept = boot.update({"zfs_txg_timeout": 9, "zfs_arc_max": 8 << 30})
    assert (kept.path, kept.backup) == (str(conf), f"{conf}.zfstune.bak")
    assert kept.lines == (
        f"vfs.zfs.arc.max={8 << 30}  # zfstune keep",
        "vfs.zfs.txg.timeout=9  # zfstune keep",
    )
    assert lines(tmp_path) == [
        "# mine",
        "kern.maxfiles=9 # why",
        "",
        "#zfstune-aside# vfs.zfs.arc_max=1G",
        *kept.lines,
    ]
    assert conf.stat().st_mode & 0o777 == 0o600
    assert Path(f"{conf}.zfstune.bak").read_text() == before
    assert kept.notes == (
        f"the line `vfs.zfs.arc_max=1G` of {conf} becomes a comment; `zfstune keep --remove` "
        "restores it",
    )
    assert boot.values() == {"zfs_txg_timeout": 9, "zfs_arc_max": 8 << 30}
    # again: nothing twice, and the backup is still the previous one
    again = boot.update({"zfs_txg_timeout": 9})
    assert (again.backup, again.notes) == (None, ())
    assert Path(f"{conf}.zfstune.bak").read_text() == before
    boot.update({}, ["zfs_arc_max"])
    assert lines(tmp_path)[3:] == ["vfs.zfs.arc_max=1G", "vfs.zfs.txg.timeout=9  # zfstune keep"]
    boot.update({}, ["zfs_txg_timeout"])
    assert conf.read_text() == before


SETTINGS = st.sampled_from(
    [
        "vfs.zfs.txg.timeout=3",
        " vfs.zfs.arc_max = 1G # x",
        "#vfs.zfs.arc.max=1",
        "kern.a=1",
        "",
        "\r",
    ]
)


@given(st.lists(SETTINGS | st.text().filter(lambda text: "\n" not in text)))
def test_lines_of_others_are_kept(lines_before: list[str]) -> None:
    text = "".join(f"{line}\n" for line in lines_before)
    hypothesis.assume("# zfstune keep" not in text)
    hypothesis.assume("#zfstune-aside# " not in text)
    names = {"zfs_txg_timeout": "vfs.zfs.txg.timeout", "zfs_arc_max": "vfs.zfs.arc.max"}
    with tempfile.TemporaryDirectory() as root:
        (Path(root) / "etc").mkdir()
        conf = Path(root) / "etc/sysctl.conf"
        conf.write_bytes(text.encode("utf-8", "surrogatepass"))
        before = conf.read_bytes()
        boot = BootFiles(Path(root), names, ALIASES, lambda _name: False, by_name)
        boot.update({"zfs_txg_timeout": 9, "zfs_arc_max": 1 << 30})
        assert boot.values() == {"zfs_txg_timeout": 9, "zfs_arc_max": 1 << 30}
        assert boot.preview({}).given == boot.values()
        boot.update({}, list(names))
        assert conf.read_bytes() == before


def test_boot_time_parameters_go_to_loader_conf(params: FreeBSDParameters, tmp_path: Path) -> None:
    boot, values = params.boot(), {"zfs_dirty_data_max_max": 8 << 30, "zfs_txg_timeout": 9}
    kept = boot.update(values)
    assert lines(tmp_path, "boot/loader.conf.d/zfstune.conf") == [
        f'vfs.zfs.dirty_data_max_max="{8 << 30}"  # zfstune keep'
    ]
    assert lines(tmp_path) == ["vfs.zfs.txg.timeout=9  # zfstune keep"]
    assert [one.path for one in (kept, *kept.more)] == [
        f"{tmp_path}/etc/sysctl.conf",
        f"{tmp_path}/boot/loader.conf.d/zfstune.conf",
    ]
    assert boot.values() == kept.given == values
    boot.update({}, list(values))
    assert not (tmp_path / "boot/loader.conf.d/zfstune.conf").exists()
    assert lines(tmp_path) == []


def test_it_warns_of_files_that_take_precedence(params: FreeBSDParameters, tmp_path: Path) -> None:
    for name, text in {
        "boot/loader.conf": 'vfs.zfs.txg.timeout="3"\nzfs_load="YES"\n',
        "boot/loader.conf.local": 'vfs.zfs.dirty_data_max_max="1G"\n',
        "etc/sysctl.conf.local": "vfs.zfs.txg.timeout = 4 # later\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    kept = params.boot().update({"zfs_txg_timeout": 9, "zfs_dirty_data_max_max": 8 << 30})
    local = f"{tmp_path}/boot/loader.conf.local"
    assert kept.notes == (
        f"{tmp_path}/boot/loader.conf also sets vfs.zfs.txg.timeout=3; {tmp_path}/etc/sysctl.conf "
        "is read later and wins",
        f"{local} also sets vfs.zfs.dirty_data_max_max={1 << 30}; it is read later and wins",
        f"{tmp_path}/etc/sysctl.conf.local also sets vfs.zfs.txg.timeout=4; it is read later and "
        "wins",
    )
    assert kept.given == {"zfs_txg_timeout": 4, "zfs_dirty_data_max_max": 1 << 30}


def test_a_line_with_a_colon_is_a_setting(params: FreeBSDParameters, tmp_path: Path) -> None:
    """As `sysctl NAME` prints it, and `sysctl -f` reads it."""
    conf, local = tmp_path / "etc/sysctl.conf", tmp_path / "etc/sysctl.conf.local"
    conf.write_text("vfs.zfs.txg.timeout: 3\n")
    local.write_text("vfs.zfs.txg.timeout: 4\n")
    kept = params.boot().update({"zfs_txg_timeout": 9})
    assert lines(tmp_path) == [
        "#zfstune-aside# vfs.zfs.txg.timeout: 3",
        "vfs.zfs.txg.timeout=9  # zfstune keep",
    ]
    assert f"{local} also sets vfs.zfs.txg.timeout=4; it is read later and wins" in kept.notes
    assert kept.given == {"zfs_txg_timeout": 4}
    params.boot().update({}, ["zfs_txg_timeout"])
    assert lines(tmp_path) == ["vfs.zfs.txg.timeout: 3"]


def test_sysctl_8_refuses_a_suffix_that_the_loader_reads(
    params: FreeBSDParameters, tmp_path: Path
) -> None:
    (tmp_path / "boot").mkdir()
    (tmp_path / "boot/loader.conf").write_text('vfs.zfs.arc.max="8G"\n')
    (tmp_path / "etc/sysctl.conf").write_text("vfs.zfs.arc.max=16G\n")
    assert params.boot().preview({}).given == {"zfs_arc_max": 8 << 30}


def test_all_files_are_written_or_none(
    params: FreeBSDParameters, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "etc/sysctl.conf").write_text("kern.maxfiles=9\n")
    real = files.replace_text

    def fail(path: Path, text: str, mode: int = 0o644) -> None:
        if path.name == "zfstune.conf":
            raise OSError(28, os.strerror(28))
        real(path, text, mode)

    monkeypatch.setattr("zfs_freebsd.boot.replace_text", fail)
    with pytest.raises(ParameterError, match=r"nothing was changed$") as caught:
        params.boot().update({"zfs_txg_timeout": 9, "zfs_dirty_data_max_max": 1})
    assert caught.value.hint == "make room"
    assert lines(tmp_path) == ["kern.maxfiles=9"]


def test_an_unreadable_file_is_not_replaced(params: FreeBSDParameters, tmp_path: Path) -> None:
    (tmp_path / "etc/sysctl.conf").mkdir()
    with pytest.raises(ParameterError, match="cannot read"):
        params.boot().update({"zfs_txg_timeout": 9})


def test_a_link_stays_a_link(params: FreeBSDParameters, tmp_path: Path) -> None:
    (tmp_path / "real.conf").write_text("a.b=1\n")
    (tmp_path / "etc/sysctl.conf").symlink_to(tmp_path / "real.conf")
    params.boot().update({"zfs_txg_timeout": 9})
    assert (tmp_path / "etc/sysctl.conf").is_symlink()
    assert lines(tmp_path, "real.conf")[0] == "a.b=1"


# --- lines of sysctl.conf are in force one after the other


@pytest.fixture
def host(table: Table, tmp_path: Path) -> FreeBSDHost:
    def order(values: Mapping[str, int]) -> list[str]:
        return planner.boot_order(made, values)

    made = FreeBSDHost(catalogue.freebsd_names, order, tmp_path, str(standin.build()))
    return made


def applied(boot: BootConfig, host: FreeBSDHost) -> None:
    """rc.d/sysctl: each state on the way must keep the hard rules."""
    state = guard.at_load({}, host.version(), guard.facts(host))
    for name, value in boot.values().items():
        state[name] = value
        broken = [v for v in guard.check(state, guard.facts(host)) if v.hard]
        assert not broken, (name, broken)


@pytest.mark.parametrize("values", [(60, 90), (10, 30), (5, 25), (30, 35), (65, 70), (20, 60)])
def test_lines_are_ordered_so_that_each_is_accepted(
    host: FreeBSDHost, values: tuple[int, int]
) -> None:
    boot = host.parameters().boot()
    for least, most in ((40, 80), values):
        boot.update({LEAST: least, MOST: most, "zfs_delay_min_dirty_percent": max(60, most)})
        applied(boot, host)


def test_arc_limits_are_ordered_so_that_each_is_accepted(host: FreeBSDHost, tmp_path: Path) -> None:
    boot = host.parameters().boot()
    boot.update({"zfs_arc_max": 1 << 30, "zfs_arc_min": 1 << 29})
    # the ARC begins with a minimum of 2G here, below which no maximum is taken
    names = [line.partition("=")[0] for line in lines(tmp_path)]
    assert names == [
        "vfs.zfs.arc.min",
        "vfs.zfs.arc.max",
    ]
    boot.update({"zfs_arc_max": 63 << 30, "zfs_arc_min": 20 << 30})
    assert len(lines(tmp_path)) == 2
