"""The examples on the page of `zfstune flame` print what the page says."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

import pytest
from support.paths import ROOT

PAGE = (ROOT / "docs/tools/zfstune-flame.md").read_text()


def examples() -> list[tuple[str, str]]:
    """Commands, which end with their last quote, and what they print; without those of others."""
    found = []
    for block in re.findall(r"<!-- example:begin \S+ -->\n(.*?)<!-- example:end", PAGE, re.DOTALL):
        for text in re.split(r"^# ", textwrap.dedent(block), flags=re.MULTILINE)[1:]:
            lines, count = text.splitlines(keepends=True), 1
            while "".join(lines[:count]).count("'") % 2:
                count += 1
            found.append(("".join(lines[:count]), "".join(lines[count:])))
    return [(command, output) for command, output in found if not command.startswith("go ")]


EXAMPLES = examples()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 6


@pytest.mark.parametrize(("command", "output"), EXAMPLES)
def test_an_example_prints_what_the_page_says(command: str, output: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tests/data/flame", tmp_path / "flame")
    done = subprocess.run(
        ["sh", "-c", f"exec 2>&1\n{command}"],
        cwd=tmp_path / "flame",
        env={**os.environ, "PATH": f"{ROOT / 'bin'}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert done.stdout == output
