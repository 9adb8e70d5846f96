"""Runs a scenario of tests/lab/guest once per flavour; the tests judge what it found."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from lab import freebsd_features, packaging
from lab.fault_rounds import FEW as FEW_FAULTS
from lab.guests import ATTEMPTS, REPEATED, again, count_boots
from support import prometheus

from benchmarks import instructions
from zfslab import debian

pytest.register_assert_rewrite("lab.diagnoses", "lab.everything")

ROOT = Path(__file__).resolve().parents[2]
# for exporting.py, which tests have in common with guests; last: scenarios have names of packages
sys.path.append(str(ROOT / "tests/lab/guest"))
Json = dict[str, Any]

# The disks each scenario finds as /dev/vdb and on, and how long it may take (seconds); in the order
# in which they run: the longest first, so that no guest is alone for long at the end.
SCENARIOS: dict[str, tuple[tuple[str, ...], int]] = {
    "tune": (("size=8G,write-bps=30M,write-iops=600", "size=4G"), 5400),
    # the cache has something to win where reads are slow; log writes have the disk to themselves
    "arc": (("size=2G,read-iops=250",), 5400),
    "robust": (("size=2G", "size=1G"), 1500),
    "tools": (("size=4G", "size=2G,flush-delay=40ms"), 1500),
    "views": (("size=6G", "size=2G"), 1500),
    "freebsd_views": (
        ("size=4G", "size=2G,flush-delay=40ms", "size=2G,write-delay=40ms", "size=1G"),
        2400,
    ),
    "counts": (("size=4G",), 1500),
    "exporter": (("size=4G", "size=1G,flush-delay=130ms"), 1800),
    "diagnose": (
        ("size=4G", "size=4G", "size=1G", "size=4G,write-bps=30M,write-iops=600", "size=1G"),
        9000,
    ),
    "advise": (("size=1G,sector=4K", "size=1G,sector=4K", "size=1G", "size=1G", "size=1G"), 900),
    "causes": (
        (
            "size=4G",
            "size=4G,flush-delay=40ms",
            "size=4G,write-delay=40ms",
            "size=4G,write-bps=30M,write-iops=600",
            "size=1G",
        ),
        1200,
    ),
    "flame": (("size=4G,flush-delay=40ms", "size=4G"), 1200),
    "faults": (("size=2G",), 9000),
    "service": (("size=2G",), 2400),
    "role": (("size=1G",), 3600),
    "recorder": (("size=2G", "size=1G"), 2400),
    "monitored": (
        (
            "size=2G,cache=unsafe",
            "size=1G,cache=unsafe,flush-delay=130ms",
            "size=1G,cache=unsafe",
            "size=2G,cache=unsafe,write-bps=6M",
            *("size=1G,cache=unsafe",) * 3,
        ),
        3600,
    ),
    "beside": (("size=4G",), 900),
    "slots": (("size=4G",), 2400),
    "light": (("size=4G", "size=2G,flush-delay=40ms"), 1500),
    "reads": (("size=4G", "size=1G", "size=1G"), 1500),
    "cost": ((), 1500),
    "bench": (("size=4G", "size=1G"), 900),
    "packages": (("size=2G",), 1500),
    "dist": (("size=4G,flush-delay=20ms",), 1500),
    "python39": (("size=4G,flush-delay=20ms",), 1500),
    "bench_matrix": (
        ("size=4G,flush-delay=5ms", "size=2G", "size=2G", "size=2G", "size=128M"),
        1200,
    ),
    "endurance": (("size=4G",), 1500),
    "weeks": (("size=4G", "size=1G"), 100_000),
    "lasting": (("size=4G", "size=1G"), 100_000),
    "reports": (("size=4G,flush-delay=5ms", "size=2G"), 3600),
    "databases": (("size=8G,write-bps=30M,write-iops=600", "size=1G"), 7200),
    "freebsd_diagnose": (
        (
            "size=3G",
            "size=2G,flush-delay=40ms",
            "size=3G,write-bps=30M,write-iops=600",
            "size=1G",
            "size=1G",
        ),
        7200,
    ),
    "freebsd_tune": (("size=4G,write-bps=20M,write-iops=400",), 5400),
    "freebsd_faults": (("size=2G",), 9000),
    "freebsd_changes": ((), 1800),
    "freebsd_robust": (("size=1G,sector=4K", "size=1G", "size=1G"), 1800),
    "freebsd_bench": (("size=2G",), 1200),
    "freebsd_exporter": (("size=1G",), 1800),
    "freebsd_check": (("size=1G",), 1800),
    "dtrace": (("size=4G", "size=2G,flush-delay=40ms"), 2400),
    "dtrace_traces": (("size=4G", "size=2G,flush-delay=40ms"), 2400),
    "freebsd_counts": (("size=2G", "size=1G"), 2400),
    "freebsd_reads": (("size=2G", "size=1G,read-delay=10ms", "size=1G"), 1800),
}

# Arguments of scripts/lab beside those. DTrace makes all CPUs meet for each probe, which takes long
# where they are emulated.
MACHINES = {
    "arc": ("--memory", "2G"),
    "cost": instructions.MACHINE,
    "databases": ("--reboots", "3"),
    "role": ("--systemd",),
    "service": ("--systemd",),
    "slots": ("--max-cpus", "64"),
    "light": ("--max-cpus", "64"),
    "monitored": ("--memory", "2G"),
    # txgs are short with little memory, and so are the waits for them
    "tune": ("--memory", "1G"),
    "weeks": ("--max-cpus", "64"),
    "freebsd_changes": ("--reboots", "1"),
    "freebsd_check": ("--cpus", "1"),
    "freebsd_diagnose": ("--cpus", "1"),
    "freebsd_tune": ("--cpus", "1", "--memory", "2G"),
}

DATABASES = ("postgresql", "postgresql-contrib", "mariadb-server", "sysbench")
# The role has the last one installed, for which Ansible needs the second
ANSIBLE = ("ansible-core", "python3-apt", "python3-prometheus-client")


def _role() -> Path:
    """Ansible's packages and the one file."""
    at = debian.fetched("role", ONE_FLAVOUR["role"], *ANSIBLE)
    # packages of ours would be installed with those of Ansible
    ours = shutil.ignore_patterns("*.deb", "*.rpm", "*.whl")
    return Path(shutil.copytree(packaging.one_files(), at, dirs_exist_ok=True, ignore=ours))


# What else a guest is given: the directory, made when it is needed.
SHARES: dict[str, Callable[[], Path]] = {
    "databases": lambda: debian.fetched("databases", ONE_FLAVOUR["databases"], *DATABASES),
    "dist": packaging.one_files,
    "freebsd_exporter": lambda: ROOT / ".venv/guest",
    "monitored": lambda: prometheus.located("prometheus").parent,
    "packages": packaging.built,
    "python39": packaging.debian_11,
    "role": _role,
}

# With --sample these run on few flavours, by index, -1 for the last: others test the kernel's part
# in it as well, or it is small. The two of counts attach in different ways.
SAMPLE: dict[str, tuple[int, ...]] = {
    "tune": (0,),
    "robust": (1,),
    "views": (-1,),
    "tools": (1,),
    "diagnose": (0,),
    "flame": (0,),
    "faults": (1,),
    "counts": (0, 1),
    "exporter": (0,),
    "dist": (0,),
}

# With --sample these do less, by the word "few".
SHORTENED = {
    *("counts", "diagnose", "dist", "exporter", "flame", "freebsd_views", "tools", "tune", "views"),
}

# With --sample these do not run: they are about long runs and large machines, take long, or repeat
# for a system or a way to install what others show.
MATRIX_ONLY = {
    *("slots", "endurance", "packages", "python39", "bench_matrix", "databases", "arc", "cost"),
    *("advise", "bench", "causes", "light", "reads", "weeks"),
    *("beside", "service", "role", "recorder", "lasting", "monitored"),
    *("freebsd_robust", "freebsd_check", "freebsd_tune", "freebsd_bench", "freebsd_changes"),
    *("freebsd_diagnose", "freebsd_exporter", "freebsd_reads"),
}

# These run on one flavour: numbers of others would need records of their own, a role does the same
# on both, and bookworm's ZFS does not count what one of the alerts asks for.
ONE_FLAVOUR: dict[str, str] = dict.fromkeys(("cost", "databases", "monitored", "role"), "trixie")

# Of these scenarios in a run that is not about them.
FEW = {
    "diagnose": "healthy,slow_flush",
    "freebsd_diagnose": "healthy,slow_flush",
}

# Arguments of the scenarios "tune" and "freebsd_tune", by --tune.
TUNE = {"short": [], "full": ["15m", "10s"]}
FREEBSD_TUNE = {"short": ["4m", "4s"], "full": ["30m", "20s"]}

# Messages of scenarios for the end of the run.
SUMMARIES: list[str] = []


# For --freebsd-page: whether each test in a guest of FreeBSD passed, and its system.
FREEBSD_TESTS: dict[str, bool] = {}
FREEBSD_SYSTEMS: set[str] = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if "/test_freebsd_" in report.nodeid and not report.skipped:
        FREEBSD_TESTS[report.nodeid] = report.passed and FREEBSD_TESTS.get(report.nodeid, True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    file = session.config.getoption("--freebsd-page")
    if file:
        where = f"{', '.join(sorted(FREEBSD_SYSTEMS))}, {time.strftime('%Y-%m-%d', time.gmtime())}"
        text = freebsd_features.table(FREEBSD_TESTS, where)
        page = Path(file)
        page.write_text(freebsd_features.replaced(page.read_text(encoding="utf-8"), text))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("lab")
    for line in SUMMARIES:
        terminalreporter.write_line(line)
    terminalreporter.write_line(f"boots and runs of a guest that were repeated: {len(REPEATED)}")
    for line in REPEATED:
        terminalreporter.write_line(f"  {line}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--flavour", action="append", default=None, help="lab flavour to test on (repeatable)"
    )
    parser.addoption(
        "--sample",
        action="store_true",
        help=f"{', '.join(SAMPLE)}: on a few flavours; {', '.join(sorted(MATRIX_ONLY))}: on none",
    )
    parser.addoption("--guests", default=2, type=int, help="how many run at a time (default: 2)")
    parser.addoption("--endurance", default="45", help="seconds that test_endurance takes")
    parser.addoption("--weeks", default="240", help="seconds that test_weeks takes")
    parser.addoption("--lasting", default="300", help="seconds that test_lasting takes")
    parser.addoption(
        "--tune", default="short", choices=list(TUNE), help="how long sessions of tune take"
    )
    parser.addoption("--rounds", default="20", help="rounds of test_faults")
    parser.addoption("--runs", default="0", help="runs of each cause in test_diagnose; 0 of a few")
    parser.addoption(
        "--signals", default="1", help="signals of test_bench_matrix; more than 1: all refusals"
    )
    parser.addoption("--page", help="the file that this test writes its page to")
    parser.addoption("--freebsd-page", help="the page whose table of features is to be written")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "flavour" in metafunc.fixturenames:
        flavours = flavours_of(scenario_of(metafunc.module), metafunc.config)
        metafunc.parametrize("flavour", flavours, scope="session")


def flavours_of(name: str, config: pytest.Config) -> list[str]:
    """Those that a scenario runs on."""
    freebsd = name.startswith("freebsd_")
    flavours = [one for one in wanted_flavours(config) if one.startswith("freebsd-") == freebsd]
    sample = config.getoption("--sample")
    if sample and name in MATRIX_ONLY:
        return []
    if flavours and sample and name in SAMPLE:
        return list(dict.fromkeys(flavours[i % len(flavours)] for i in SAMPLE[name]))
    if name in ONE_FLAVOUR:
        return [one for one in flavours if one == ONE_FLAVOUR[name]]
    if name.startswith("dtrace"):
        return [one for one in flavours if one.endswith("-dtrace")]
    return flavours


def scenario_of(module: ModuleType) -> str:
    return module.__name__.rpartition("test_")[2]


def wanted_flavours(config: pytest.Config) -> list[str]:
    return list(config.getoption("--flavour") or ["trixie"])


def arguments(name: str, config: pytest.Config) -> list[str]:
    option = config.getoption
    if name in FEW:
        return ["1", FEW[name]] if option("--runs") == "0" else [option("--runs")]
    return {
        "bench_matrix": [option("--signals")],
        "endurance": [option("--endurance")],
        "faults": [option("--rounds")],
        "freebsd_faults": [",".join(FEW_FAULTS) if option("--sample") else option("--rounds")],
        "freebsd_tune": FREEBSD_TUNE[option("--tune")],
        "lasting": [option("--lasting")],
        "robust": ["5" if option("--sample") else "25"],
        "tune": TUNE[option("--tune")],
        "weeks": [option("--weeks")],
    }.get(name, [])


def few(name: str, config: pytest.Config) -> list[str]:
    """The last argument of a scenario that does less, if it is to."""
    return ["few"] if config.getoption("--sample") and name in SHORTENED else []


def undisturbed(config: pytest.Config) -> set[str]:
    """Scenarios that measure: another guest would change their numbers too much."""
    option = config.getoption
    diagnose = option("--runs") != "0"
    asked = {
        "diagnose": diagnose,
        "freebsd_diagnose": diagnose,
        "freebsd_tune": option("--tune") == "full",
        "tune": option("--tune") == "full",
    }
    return {"arc", "databases", "reports", *(name for name in asked if asked[name])}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests without a scenario first: they run while the guests of the others do."""
    items.sort(key=lambda item: item.path.stem.removeprefix("test_") in SCENARIOS)


@pytest.fixture(scope="session", autouse=True)
def scenario(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Callable[[str, str], Json]]:
    """scenario(name, flavour) -> its results. Each that a test wants runs once, by default two at a
    time: an emulated guest seldom keeps more than one processor busy."""
    config = request.config
    wanted: dict[tuple[str, str], None] = {  # each once, in their order
        (scenario_of(item.module), flavour): None
        for item in request.session.items
        if isinstance(item, pytest.Function) and hasattr(item, "callspec")
        for flavour in [item.callspec.params.get("flavour")]
        # what can run on none has a parameter all the same, and is skipped
        if isinstance(flavour, str) and scenario_of(item.module) in SCENARIOS
    }
    alone = undisturbed(config)
    guests = ThreadPoolExecutor(config.getoption("--guests"))
    runs: dict[tuple[str, str], Future[Json | str]] = {}

    def start(name: str, flavour: str) -> None:
        out = tmp_path_factory.mktemp(f"{name}-{flavour}")
        words = [*arguments(name, config), *few(name, config)]
        runs[name, flavour] = guests.submit(_run, name, flavour, out, words)

    for one, where in sorted(wanted, key=lambda job: list(SCENARIOS).index(job[0])):
        if one not in alone:
            start(one, where)

    def get(name: str, flavour: str) -> Json:
        if (name, flavour) not in runs:
            wait(runs.values())
            start(name, flavour)
        result = runs[name, flavour].result()
        if isinstance(result, str):
            pytest.fail(result)
        return result

    yield get
    guests.shutdown(cancel_futures=True)


def _run(name: str, flavour: str, out: Path, arguments: list[str]) -> Json | str:
    lacks = {
        **dict.fromkeys(("databases", "role"), debian.missing),
        "monitored": prometheus.missing,
        "packages": packaging.missing,
    }
    if name in lacks and lacks[name]():
        return lacks[name]()
    for attempt in range(1, ATTEMPTS + 1):
        done = _run_once(name, flavour, out, arguments)
        count_boots(name, flavour, done.log)
        if done.results is not None:
            if flavour.startswith("freebsd-"):
                of = done.results["uname"], done.results["zfs"]
                FREEBSD_SYSTEMS.add(freebsd_features.system(*of))
            if "summary" in done.results:
                SUMMARIES.append(f"{name} on {flavour}: {done.results['summary']}")
            return done.results
        if not again(attempt, name, flavour, done.log):
            break
    return f"scenario {name} on {flavour} ended with status {done.status}:\n{done.log[-4000:]}"


class Results(Json):
    """Of a scenario. A test of what it left out, being a sample, is skipped."""

    def __missing__(self, key: str) -> Any:
        if key in self.get("left_out", ()):
            pytest.skip("not in a sample")
        raise KeyError(key)


@dataclass(frozen=True)
class Done:
    """One run of a scenario; results only if it came to its end."""

    status: int
    log: str
    results: Json | None


def _run_once(name: str, flavour: str, out: Path, arguments: list[str]) -> Done:
    disks, timeout = SCENARIOS[name]
    command = [str(ROOT / "scripts/lab"), "run", "--verbose", "--flavour", flavour]
    command += ["--out", str(out)]
    command += MACHINES.get(name, ())
    if name == "freebsd_bench" and os.environ.get("ZFSTUNE_FREEBSD_PROGRAMS"):
        command += ["--share", os.environ["ZFSTUNE_FREEBSD_PROGRAMS"]]
    if name in SHARES:
        command += ["--share", str(SHARES[name]())]
    for disk in disks:
        command += ["--disk", disk]
    if name == "cost":
        command += ["--instructions", str(out / "counts")]
    command += ["--timeout", f"{timeout}s", "--"]
    command += ["python3", f"/zfstune/tests/lab/guest/{name}.py", *arguments]
    print(f"\n{flavour}: scenario {name} ...", file=sys.stderr, flush=True)
    start = time.monotonic()
    log = out / "log"
    with log.open("w") as f:
        status = subprocess.run(command, stdout=f, stderr=subprocess.STDOUT, check=False).returncode
    took = time.monotonic() - start
    print(f"{flavour}: scenario {name} took {took:.0f} s", file=sys.stderr, flush=True)
    results = out / "results.json"
    whole = not status and results.exists()
    found = Results(json.loads(results.read_text())) if whole else None
    if found is not None and name == "cost":
        found["counted"] = [asdict(one) for one in instructions.read(out / "counts", out)]
    return Done(status, log.read_text(errors="replace"), found)
