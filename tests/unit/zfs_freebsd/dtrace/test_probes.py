"""The available probes, and that their table agrees with the D scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.freebsd import linux_probes
from support.paths import ROOT

from zfs_freebsd.dtrace import probes, scripts
from zfstrace import processes, stages

SCRIPTS = ROOT / "tracers/dtrace"
# Tracer -> the script of its command, and the one-file tools that watch the same.
RUNS = {
    "fsync": ("zilevent-json.d", "zilslower.d", "zilcommit.d"),
    "txg": ("txgstate-json.d", "txgstate.d"),
    "throttle": ("zfsthrottle-json.d", "zfsthrottle.d"),
    "device": ("zfsdevice-json.d",),
    "arc": ("arcstate-json.d", "arcstate.d"),
    "read": ("zfsread-json.d",),
    "stacks": ("fsyncstack.d",),
    "sysctl": ("sysctlwrite-json.d",),
    "flush": ("zfsflush.d",),
}
ENDS = (
    "zil_commit_impl",
    "zfs_fsync",
    "zfs_write",
    "zvol_cdev_ioctl",
    "zvol_cdev_write",
    "zpl_fsync",
)
HEADING = "   ID   PROVIDER            MODULE                          FUNCTION NAME\n"


def enabled(script: Path) -> set[str]:
    """The probe descriptions before the clauses of a script."""
    text = re.sub(r"/\*.*?\*/", "", script.read_text(), flags=re.DOTALL)
    text = re.sub(r'"(?:\\.|[^"\\])*"', '""', text)
    found = re.findall(r"^(\w+:[^\s:]*:[^\s:]*:[\w-]+),?$", text, re.MULTILINE)
    return {probe for probe in found if not probe.startswith("dtrace:")}


def of(tracer: str, needs: Sequence[probes.Need] = probes.NEEDS) -> set[str]:
    return {probe for need in needs if need.tracer == tracer for probe in need.any_of}


def kernel(*there: str) -> probes.Run:
    """dtrace(1) on a kernel with these probes."""

    def run(argv: Sequence[str]) -> tuple[str, str]:
        assert (Path(argv[0]).name, *argv[1:3]) == ("dtrace", "-xnolibs", "-l")
        assert set(argv[3::2]) == {"-P", "-n"}
        text = HEADING
        for number, probe in enumerate(there):
            provider, module, function, name = probe.split(":")
            if {provider, probe} & set(argv[4::2]):
                text += f"{number:5} {provider:>10} {module:>17} {function:>33} {name}\n"
        return text, ""

    return run


EVERY = {probe for need in probes.NEEDS for probe in need.any_of}


@pytest.mark.parametrize("tracer", RUNS)
def test_the_table_is_that_of_the_scripts(tracer: str) -> None:
    """No probe of a script is missing in the table, and none is in the table alone."""
    used = [enabled(SCRIPTS / "freebsd" / name) for name in RUNS[tracer]]
    assert of(tracer) == used[0]
    for more in used[1:]:
        assert more <= used[0]


def test_every_script_has_a_tracer() -> None:
    names = {name for scripts in RUNS.values() for name in scripts}
    assert names == {path.name for path in (SCRIPTS / "freebsd").glob("*.d")}
    assert {need.tracer for need in probes.NEEDS} == set(RUNS)
    assert set(probes.TRACERS) < set(RUNS)
    assert {name for name in names if not name.endswith("-json.d")} == set(scripts.TRACERS)
    for name, tracer in scripts.TRACERS.items():
        assert name in RUNS[tracer]


@pytest.mark.parametrize("tracer", sorted(RUNS.keys() - {"sysctl", "read"}))
def test_the_table_for_the_lab_is_that_of_the_linux_scripts(tracer: str) -> None:
    used = set().union(*(enabled(SCRIPTS / "linux" / name) for name in RUNS[tracer][:1]))
    # of commits Linux asks only the function itself for its end
    more = {f"fbt::{name}:return" for name in ENDS}
    assert of(tracer, linux_probes.needs()) - more == used - more


def test_rows_are_named_once() -> None:
    rows = [(need.tracer, need.name) for need in probes.NEEDS]
    assert len(rows) == len(set(rows))
    for need in probes.NEEDS:
        assert bool(need.cost) != bool(need.merges)
        assert not need.cost.endswith(".")
        assert set(need.merges) <= set(stages.NAMES)


def test_with_all_probes_nothing_is_missing() -> None:
    found = probes.survey(probes.TRACERS, run=kernel(*EVERY))
    assert {probe.how for probe in found} == {"found"}
    assert {probe.why for probe in found} == {""}
    assert {probe.tracer for probe in found} == set(probes.TRACERS)
    by_name = {(probe.tracer, probe.name): probe for probe in found}
    assert by_name["fsync", "zil_commit"].symbol == "fbt:zfs:zil_commit_flags:entry"


def test_a_missing_probe_says_which_stage_it_merges() -> None:
    found = {probe.name: probe for probe in probes.survey(("fsync",), run=kernel())}
    assert found["mutex"].missing
    assert found["mutex"].merges == ("issuer_lock", "issue")
    assert found["mutex"].cost == "`issuer_lock` is part of `issue`"


def test_one_probe_of_a_group_is_enough() -> None:
    """2.2 has neither zil_commit_flags nor txg_wait_synced_flags."""
    old = {probe for probe in EVERY if "_flags:" not in probe}
    found = {probe.name: probe for probe in probes.survey(("fsync",), run=kernel(*old))}
    assert not [probe for probe in found.values() if probe.missing]
    assert found["zil_commit"].symbol == "fbt:zfs:zil_commit:entry"
    assert found["txg_wait_synced"].symbol == "fbt:zfs:txg_wait_synced:entry"


def test_a_missing_probe_says_why() -> None:
    lacks = {"fbt:kernel:cv_broadcastpri:entry", "fbt:kernel:_cv_wait:entry"}
    found = probes.survey(("fsync", "arc"), run=kernel(*(EVERY - lacks)))
    missing = {probe.name: probe for probe in found if probe.missing}
    assert set(missing) == {"cv_wait", "cv_broadcast"}
    assert missing["cv_wait"].required
    assert missing["cv_wait"].why == "the kernel has no fbt:kernel:_cv_wait:entry"
    assert not missing["cv_broadcast"].required
    assert probes.lacks(found, "fsync") == "the kernel has no fbt:kernel:_cv_wait:entry"
    assert probes.lacks(found, "arc") == ""


def test_another_function_of_that_name_does_not_count() -> None:
    """fbt is asked by function; `entry` alone says nothing."""

    def run(_argv: Sequence[str]) -> tuple[str, str]:
        return HEADING + "    7        fbt            kernel       zil_commit_other entry\n", ""

    assert all(probe.missing for probe in probes.survey(("fsync",), run=run))


def test_a_list_is_read_once_for_all_tracers() -> None:
    lists = []

    def run(argv: Sequence[str]) -> tuple[str, str]:
        lists.append(argv)
        return kernel(*EVERY)(argv) if len(lists) > 1 else ("", "busy")

    assert {probe.why for probe in probes.survey(("fsync",), run=run)} == {"busy"}
    for tracer in ("fsync", "arc"):
        assert not [probe for probe in probes.survey((tracer,), run=run) if probe.missing]
    assert len(lists) == 2


def test_a_description_matches_in_its_module_or_in_any() -> None:
    lines = (
        "12345        fbt            kernel                        zil_commit entry\n"
        "  901        sdt                                                     txg-synced\n"
        "   43    profile                                                     tick-500ms\n"
    )
    there = {"fbt::zil_commit:entry", "sdt:::txg-synced", "profile:::tick-500ms"}
    wanted = {"fbt:zfs:zil_commit:entry", "fbt:kernel:zil_commit:return", *there}
    found, why = probes.look_up(wanted, run=lambda _argv: (HEADING + lines, ""))
    assert found == there
    assert why == ""


def test_a_recorded_list_of_dtrace_is_read() -> None:
    """Recorded; dtrace.c of FreeBSD prints the same columns."""
    text = (ROOT / "tests/data/dtrace/list.out").read_text()
    there, _ = probes.look_up(
        (
            "fbt:zfs:zil_commit:entry",
            "fbt:zfs:zil_commit:return",
            "fbt:zfs:nosuch_function:entry",
            "sched:::off-cpu",
            "profile:::tick-1s",
            "profile:::profile-97",
            "nosuch:::probe",
        ),
        run=lambda _argv: (text, ""),
    )
    assert there == {
        "fbt:zfs:zil_commit:entry",
        "sched:::off-cpu",
        "profile:::tick-1s",
        "profile:::profile-97",
    }


def test_without_dtrace_every_probe_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = probes.survey(("fsync", "txg"))
    assert all(probe.missing for probe in found)
    assert {probe.why for probe in found} == {"dtrace is not installed"}
    assert probes.lacks(found, "txg") == "dtrace is not installed"


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (
            "echo 'dtrace: failed to initialize dtrace: DTrace requires additional privileges' >&2"
            "; exit 1",
            "dtrace: failed to initialize dtrace: DTrace requires additional privileges",
        ),
        ("exit 3", "dtrace ended with status 3"),
    ],
)
def test_a_failing_dtrace_gives_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str, why: str
) -> None:
    (tmp_path / "dtrace").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "dtrace").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert {probe.why for probe in probes.survey(("arc",))} == {why}


def test_a_hanging_dtrace_gives_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(*_args: object, **_more: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(processes, "run", hang)
    assert {probe.why for probe in probes.survey(("arc",))} == {
        "dtrace did not answer within 180 s"
    }


def test_doctor_requires_only_probes_of_fsyncs() -> None:
    found = probes.of_host(kernel(*(EVERY - {"sdt:::txg-synced"})))
    assert {p.name: p.required for p in found if p.missing} == {"txg-synced": False}
    assert {p.tracer for p in found if p.required} == {"fsync"}


def test_tools_say_what_they_lack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(scripts, "why_not", lambda _root: ("", ""))
    gone = EVERY - {
        "sdt:::txg-synced",
        "fbt:zfs:zil_commit:entry",
        "fbt:zfs:zil_commit_flags:entry",
    }
    whys = {tool.name: tool.why for tool in scripts.tools(tmp_path, run=kernel(*gone))}
    commit = "the kernel has no fbt:zfs:zil_commit_flags:entry or fbt:zfs:zil_commit:entry"
    assert whys == {
        "arcstate.d": "",
        "fsyncstack.d": "",
        "txgstate.d": "the kernel has no sdt:::txg-synced",
        "zfsflush.d": "",
        "zfsthrottle.d": "",
        "zilcommit.d": commit,
        "zilslower.d": commit,
    }


def test_tools_do_not_load_dtrace(tmp_path: Path) -> None:
    """As root dtrace(1) loads its modules by itself."""

    def run(_argv: Sequence[str]) -> tuple[str, str]:
        raise AssertionError("dtrace is started")

    assert all(tool.why for tool in scripts.tools(tmp_path, run=run))
