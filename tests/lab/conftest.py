"""Runs a scenario of tests/lab/guest once per flavour; the tests judge what it found."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]

# The disks each scenario finds as /dev/vdb and on, and how long it may take (seconds).
SCENARIOS: dict[str, tuple[tuple[str, ...], int]] = {
    "counts": (("size=4G",), 900),
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
    "views": (("size=6G", "size=2G"), 1500),
    "robust": (("size=2G", "size=1G"), 1500),
    "endurance": (("size=4G",), 1500),
    "tools": (("size=4G", "size=2G,flush-delay=40ms"), 1500),
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--flavour", action="append", default=None, help="lab flavour to test on (repeatable)"
    )
    parser.addoption("--endurance", default="45", help="seconds that test_endurance takes")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "flavour" in metafunc.fixturenames:
        wanted = metafunc.config.getoption("--flavour") or ["trixie"]
        metafunc.parametrize("flavour", wanted, scope="session")


@pytest.fixture(scope="session")
def scenario(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str, str], Json]:
    """scenario(name, flavour) -> its results; each runs at most once."""
    arguments = {"endurance": [request.config.getoption("--endurance")]}
    cache: dict[tuple[str, str], Json | str] = {}

    def get(name: str, flavour: str) -> Json:
        key = (name, flavour)
        if key not in cache:
            out = tmp_path_factory.mktemp(f"{name}-{flavour}")
            cache[key] = _run(name, flavour, out, arguments.get(name, []))
        result = cache[key]
        if isinstance(result, str):
            pytest.fail(result)
        return result

    return get


def _run(name: str, flavour: str, out: Path, arguments: list[str]) -> Json | str:
    disks, timeout = SCENARIOS[name]
    command = [str(ROOT / "scripts/lab"), "run", "--flavour", flavour, "--out", str(out)]
    for disk in disks:
        command += ["--disk", disk]
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
    if status or not results.exists():
        return (
            f"scenario {name} on {flavour} ended with status {status}:\n{log.read_text()[-4000:]}"
        )
    found: Json = json.loads(results.read_text())
    return found
