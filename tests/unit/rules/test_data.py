"""Rule files: the JSON that commands read is that of the TOML that people write."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import compile_rules
import pytest
from support.paths import ROOT

from zfstune.rules import data

SOURCES = compile_rules.sources()


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.stem)
def test_the_json_is_that_of_the_toml(source: Path) -> None:
    target = source.with_suffix(".json")
    assert target.read_text(encoding="utf-8") == compile_rules.compiled(source), "run `make rules`"


@pytest.mark.parametrize("source", [one for one in SOURCES if "tuner" in one.parts], ids=str)
def test_commands_read_it(source: Path) -> None:
    package = ".".join(source.parent.relative_to(ROOT / "tuner").parts)
    assert data.read(package, source.stem) == tomllib.loads(source.read_text())


def test_no_json_is_left_without_its_toml() -> None:
    written = {source.with_suffix(".json") for source in SOURCES if "tuner" in source.parts}
    assert set((ROOT / "tuner").rglob("*.json")) == written


def test_no_command_reads_toml() -> None:
    """Python 3.9 has no reader, and it would cost each start."""
    code = "import sys; sys.modules['tomllib'] = None; import zfstune.cli as c; sys.exit(c.main())"
    command = [sys.executable, "-c", code, "params", "explain", "zfs_dirty_data_max"]
    path = ":".join(str(ROOT / part) for part in ("tracers", "tuner", "platform/linux"))
    done = subprocess.run(command, env={"PYTHONPATH": path}, capture_output=True, text=True)
    assert "zfs_dirty_data_max" in done.stdout, done.stderr
