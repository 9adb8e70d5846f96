"""The D scripts: that they are what their generator writes, and that every probe of those for
FreeBSD was seen in source text."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
import tomllib
from types import ModuleType

import pytest
from support.paths import ROOT

DTRACE = ROOT / "tracers/dtrace"
SEEN = tomllib.loads((ROOT / "tests/data/dtrace_probes.toml").read_text())["probe"]
ALWAYS = {"dtrace:::BEGIN", "dtrace:::END", "dtrace:::ERROR"}


def load_generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DTRACE / "generate.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


generate = load_generator()
SCRIPTS = [(system, name) for system in generate.SYSTEMS for name in generate.tools(system)]
FREEBSD = generate.tools("freebsd")
PLAIN = [name for name in FREEBSD if not name.endswith("-json.d")]


def code(text: str) -> str:
    """Without comments and strings."""
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', text)


def probes(text: str) -> set[str]:
    """The probe descriptions before the clauses."""
    return set(re.findall(r"^(\w+:[^\s:]*:[^\s:]*:[\w-]+),?$", code(text), re.MULTILINE))


def test_every_script_of_both_systems_is_committed() -> None:
    assert set(PLAIN) == {
        "arcstate.d",
        "fsyncstack.d",
        "txgstate.d",
        "zfsflush.d",
        "zfsthrottle.d",
        "zilcommit.d",
        "zilslower.d",
    }
    assert set(FREEBSD) - set(PLAIN) == {
        "arcstate-json.d",
        "sysctlwrite-json.d",
        "txgstate-json.d",
        "zfsdevice-json.d",
        "zfsread-json.d",
        "zfsthrottle-json.d",
        "zilevent-json.d",
    }
    for system in generate.SYSTEMS:
        found = {path.name for path in (DTRACE / system).iterdir()}
        assert found == set(generate.tools(system))


@pytest.mark.parametrize(("system", "name"), SCRIPTS)
def test_the_committed_scripts_are_the_generated_ones(system: str, name: str) -> None:
    path = DTRACE / system / name
    assert path.read_text() == generate.script(name, system), "run tracers/dtrace/generate.py"
    assert os.access(path, os.X_OK)


@pytest.mark.parametrize(("system", "name"), SCRIPTS)
def test_each_script_needs_no_other_file(system: str, name: str) -> None:
    text = (DTRACE / system / name).read_text()
    assert text.startswith("#!/usr/sbin/dtrace -Zs\n")
    assert f"USAGE: {name}" in text
    assert "{{" not in text
    for option in ("quiet", "defaultargs", "bufsize=", "dynvarsize="):
        assert f"#pragma D option {option}" in text
    assert {"dtrace:::BEGIN", "dtrace:::END", "dtrace:::ERROR"} <= probes(text)
    # DTrace for Linux has neither, and its macros would change the meaning
    assert not re.search(r"\b(if|while|for|switch)\s*\(|\belse\b", code(text))


@pytest.mark.parametrize("name", FREEBSD)
def test_sums_printed_while_it_runs_are_new(name: str) -> None:
    """Without aggrate FreeBSD reads them once a second (dtrace_aggrate_default), and prints at a
    tick what it read last."""
    text = (DTRACE / "freebsd" / name).read_text()
    if re.search(r"^profile:::tick-", text, re.MULTILINE):
        assert "#pragma D option aggrate=10hz" in text


def test_the_page_says_what_buffers_take() -> None:
    """Two of each kind for each CPU, and variables once: dtrace_buffer_alloc() and
    dtrace_dstate_init() in sys/cddl/contrib/opensolaris/uts/common/dtrace/dtrace.c."""

    def mib(name: str, option: str) -> float:
        text = (DTRACE / f"freebsd/{name}-json.d").read_text()
        found = re.search(rf"^#pragma D option {option}=(\d+)([km])$", text, re.MULTILINE)
        assert found
        return int(found[1]) / {"k": 1024, "m": 1}[found[2]]

    def per_cpu(*names: str) -> float:
        return sum(2 * (mib(name, "bufsize") + mib(name, "aggsize")) for name in names)

    views = ("zilevent", "txgstate", "zfsthrottle", "zfsdevice", "arcstate")
    # the first two are of the view fsync, as its recorder wants slow ones
    exporter = ("zilevent", "zfsthrottle", "txgstate", "zfsthrottle", "arcstate")
    variables = {sum(mib(name, "dynvarsize") for name in names) for names in (views, exporter)}
    assert (per_cpu("zilevent"), variables) == (10, {26})
    assert per_cpu(*views) == per_cpu(*exporter) == 29
    page = " ".join((ROOT / "docs/freebsd.md").read_text().split())
    assert "10 MiB for each CPU by `trace fsync`, 29 MiB by the five views" in page
    assert "26 MiB for variables" in page
    assert f"64 CPUs needs {(29 * 64 + 26) / 1024:.1f} GiB" in page


@pytest.mark.parametrize("name", [name for name in FREEBSD if name.startswith("zil")])
def test_nothing_is_left_of_a_commit_whose_end_was_not_seen(name: str) -> None:
    """Up to 2.3 those of zfs_create(), zfs_putpages() and others have none."""
    clauses = re.findall(r"\n\{(.*?)\n\}", code((DTRACE / "freebsd" / name).read_text()), re.DOTALL)
    lost = [text for text in clauses if "@lost = sum(1)" in text]
    assert len(lost) == 2
    for text in lost:
        assert {"self->start = 0", "self->waiter = 0"} <= set(re.split(r";?\n\t", text.rstrip(";")))


def test_only_flushes_that_were_sent_are_timed() -> None:
    """vdev_geom_io_intr() is the end of every I/O, also of a zio at the address of a flush that
    did not come back."""
    for name in ("zfsdevice-json.d", "zfsflush.d"):
        text = code((DTRACE / "freebsd" / name).read_text())
        assert re.search(r"vdev_geom_io_start:entry\n\{\n\tsent\[arg0\] = .* : 0;", text)


@pytest.mark.parametrize("system", generate.SYSTEMS)
def test_a_pool_does_not_inherit_requests_of_another_at_its_address(system: str) -> None:
    """After zpool destroy and create: the new one begins with lower txgs."""
    text = code((DTRACE / system / "txgstate-json.d").read_text())
    other = re.search(r"\n/arg1 < open_txg\[arg0\]/\n\{\n(.*?)\n\}", text, re.DOTALL)
    assert other
    assert all(f"{name}[arg0] = 0;" in other[1] for name in ("first", "wanted", "last_sync"))
    assert other.start() < text.index("reason[arg0, arg1] =")


@pytest.mark.parametrize("name", ["txgstate.d", "txgstate-json.d"])
def test_nothing_is_kept_of_a_txg_that_has_ended(name: str) -> None:
    """Whichever pool is asked for: variables that stay take the room of all others."""
    text = code((DTRACE / "freebsd" / name).read_text())
    kept = set(re.findall(r"(\w+)\[arg0, arg1\](?: =|\+\+)", text))
    ends = "".join(re.findall(r"\nsdt:::txg-synced\n\{\n(.*?)\n\}", text, re.DOTALL))
    assert "syncing" in kept
    assert kept == set(re.findall(r"(\w+)\[arg0, arg1\] = 0;", ends))


@pytest.mark.parametrize("table", generate.SYSTEMS)
def test_every_name_of_a_table_is_used(table: str) -> None:
    sources = "".join(path.read_text() for path in (DTRACE / "source").glob("*.d"))
    words = set(tomllib.loads((DTRACE / f"{table}.toml").read_text())) - {"SYSTEM"}
    assert words == set(re.findall(r"\{\{([A-Z_]+)\}\}", sources))


def test_only_the_tables_tell_the_systems_apart() -> None:
    """What differs is in the two tables and nowhere else."""
    for name in FREEBSD:
        source = (DTRACE / "source" / name).read_text()
        assert not re.search(r"\b(zpl_|vdev_disk|vdev_geom|freebsd|_sx_|trace_zfs_)", source)


def test_every_probe_of_freebsd_has_a_source() -> None:
    used = set().union(*(probes((DTRACE / "freebsd" / n).read_text()) for n in FREEBSD))
    assert used - ALWAYS == {entry["name"] for entry in SEEN}
    names = [entry["name"] for entry in SEEN]
    assert names == sorted(set(names))


@pytest.mark.parametrize("entry", SEEN, ids=lambda entry: str(entry["name"]))
def test_the_source_of_a_probe_has_file_and_version(entry: dict[str, object]) -> None:
    assert set(entry) <= {"name", "file", "openzfs", "base", "manual", "note"}
    assert str(entry["file"]).startswith(("module/", "sys/"))
    assert ("openzfs" in entry) != ("base" in entry)
    # a probe that did not exist from the first version on is named with the version it came with
    late = entry.get("openzfs") not in (None, ["2.1.11", "2.2.9", "2.3.9", "2.4.4"])
    assert not late or entry["name"] in (
        "fbt:zfs:zil_commit_flags:entry",
        "fbt:zfs:zil_commit_flags:return",
        "fbt:zfs:txg_wait_synced_flags:entry",
        "fbt:zfs:txg_wait_synced_sig:entry",  # and went again
    )


def test_freebsd_waits_for_no_return_that_is_a_tail_call() -> None:
    """zfs_freebsd_fsync, _cv_wait and txg_wait_synced end in a call; so may zil_commit, whose
    callers are asked as well."""
    for name in FREEBSD:
        found = probes((DTRACE / "freebsd" / name).read_text())
        returns = {probe for probe in found if probe.endswith(":return")}
        assert not returns & {
            "fbt:zfs:zfs_freebsd_fsync:return",
            "fbt:kernel:_cv_wait:return",
            "fbt:kernel:_cv_timedwait_sbt:return",
            "fbt:zfs:txg_wait_synced:return",
            "fbt:zfs:zil_lwb_flush_vdevs_done:return",
        }
        if "fbt:zfs:zil_commit:return" in found:
            assert "fbt:zfs:zfs_fsync:return" in found


@pytest.mark.parametrize("name", PLAIN)
def test_each_script_has_its_pages(name: str) -> None:
    page = (ROOT / f"docs/tools/{name}.md").read_text()
    manual = (ROOT / f"docs/man/{name}.8").read_text()
    assert name in page
    for section in ("DESCRIPTION", "REQUIREMENTS", "LIMITS", "OVERHEAD", "EXAMPLES"):
        assert f".Sh {section}\n" in manual
    source = (DTRACE / "source" / name).read_text()
    assert f"See {name}(8)." in source
    assert max(map(len, source.expandtabs(8).splitlines())) <= 110


def test_the_page_on_json_has_every_type() -> None:
    page = (ROOT / "docs/dtrace-json.md").read_text()
    for name in FREEBSD:
        text = (DTRACE / "freebsd" / name).read_text()
        for kind in re.findall(r'\\"type\\":\\"(\w+)\\"', text):
            assert f'"type":"{kind}"' in page, f"{kind} of {name}"


def test_the_generator_is_executable() -> None:
    assert (DTRACE / "generate.py").stat().st_mode & stat.S_IXUSR
