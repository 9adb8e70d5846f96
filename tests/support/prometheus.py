"""Runs a Prometheus that scrapes exporters every second and evaluates rules as often."""

from __future__ import annotations

import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from support.waiting import wait_for


@contextmanager
def prometheus(
    program: str, directory: Path, targets: Sequence[str], rules: Sequence[Path]
) -> Iterator[str]:
    """Its URL. targets are ADDRESS:PORT, in the job zfstune; alerts fire within seconds."""
    loaded = [_hasty(path, directory) for path in rules]
    scraped = {"job_name": "zfstune", "static_configs": [{"targets": list(targets)}]}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(path) for path in loaded],
        "scrape_configs": [scraped],
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
            wait_for(lambda: process.poll() is not None or _ready(url))
            assert process.poll() is None, log.read_text()
            yield url
        finally:
            process.terminate()


def _hasty(path: Path, directory: Path) -> Path:
    """A copy whose rules are evaluated with every scrape, and whose alerts wait for nothing, and
    look at seconds where the file says minutes."""
    found: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    for group in found["groups"]:
        group["interval"] = "1s"
        for rule in group["rules"]:
            rule.pop("for", None)
            if "alert" in rule:
                rule["expr"] = re.sub(r"\[[25]m\]", "[10s]", rule["expr"])
    copy = directory / path.name
    copy.write_text(yaml.safe_dump(found, allow_unicode=True), encoding="utf-8")
    return copy


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
