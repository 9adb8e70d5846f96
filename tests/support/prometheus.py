"""Runs a Prometheus that scrapes exporters every second or two, with rules whose time goes faster:
alerts that wait for minutes fire within seconds. Tests run it here and in guests."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from support.paths import ROOT
from support.waiting import wait_for

# where scripts/bootstrap unpacks Debian's package: installed, it would run a server
_UNPACKED = ROOT / ".venv/prometheus/usr/bin"
_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_WINDOW = re.compile(r"\[(\d+[a-z]+)\]")
# A rate needs some scrapes, and nothing is evaluated more often than it is scraped.
LEAST_WINDOW_MS, LEAST_INTERVAL_MS = 10_000, 1000
# An emulated guest takes long to load it.
_START_S = 120
_TARGETS = "targets.json"


def located(name: str) -> Path:
    """A program of Prometheus, unpacked or installed. Raises FileNotFoundError."""
    found = shutil.which(name, path=_UNPACKED) or shutil.which(name)
    if not found:
        raise FileNotFoundError(f"{name} is not there: run scripts/bootstrap")
    return Path(found)


def missing() -> str:
    """Why there is no Prometheus; "" if there is one."""
    try:
        located("prometheus")
    except FileNotFoundError as error:
        return str(error)
    return ""


def shorter(text: str, factor: float, least_ms: int = 0) -> str:
    """A duration of Prometheus, such as 5m, divided; not less than least_ms."""
    found = re.fullmatch(r"(\d+)(ms|[smhd])", text)
    if not found:
        raise ValueError(f"{text!r} is no duration that a rule here has had so far")
    return f"{max(round(int(found[1]) * _MS[found[2]] / factor), least_ms)}ms"


def faster(path: Path, directory: Path, factor: float) -> Path:
    """A copy of a file of rules for a world in which time goes faster: all durations (`for`,
    `interval`, the windows of ranges) are divided by the factor, but not below the limits above.
    Nothing else is another: what alerts ask for, and their thresholds, are those of the file."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    for group in found["groups"]:
        group["interval"] = shorter(group["interval"], factor, LEAST_INTERVAL_MS)
        for rule in group["rules"]:
            if "for" in rule:
                rule["for"] = shorter(rule["for"], factor)
            rule["expr"] = _WINDOW.sub(
                lambda window: f"[{shorter(window[1], factor, LEAST_WINDOW_MS)}]", rule["expr"]
            )
    copy = directory / path.name
    copy.write_text(yaml.safe_dump(found, allow_unicode=True), encoding="utf-8")
    return copy


def aim(directory: Path, targets: Sequence[str]) -> None:
    """What the Prometheus of a directory scrapes from now on, ADDRESS:PORT each."""
    (directory / _TARGETS).write_text(json.dumps([{"targets": list(targets)}]))


@contextmanager
def prometheus(
    program: Path,
    directory: Path,
    targets: Sequence[str],
    rules: Sequence[Path],
    *,
    factor: float,
    interval: str = "1s",
) -> Iterator[str]:
    """Its URL. targets are ADDRESS:PORT, in the job zfstune; aim() replaces them. interval is that
    of scrapes; factor is by how much the time of rules goes faster. Its log is prometheus.log in
    the directory."""
    aim(directory, targets)
    found = {"files": [str(directory / _TARGETS)], "refresh_interval": "1s"}
    pace = dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), interval)
    config = {
        "global": pace,
        "rule_files": [str(faster(path, directory, factor)) for path in rules],
        "scrape_configs": [{"job_name": "zfstune", "file_sd_configs": [found]}],
    }
    (directory / "prometheus.yml").write_text(yaml.safe_dump(config))
    port = _free_port()
    command = (
        program,
        f"--config.file={directory}/prometheus.yml",
        f"--storage.tsdb.path={directory}/data",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=warn",
    )
    log = directory / "prometheus.log"
    with log.open("w") as out, subprocess.Popen(command, stdout=out, stderr=out) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            wait_for(lambda: process.poll() is not None or _ready(url), _START_S)
            assert process.poll() is None, log.read_text()
            yield url
        finally:
            process.terminate()


def _ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])
