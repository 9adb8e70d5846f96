"""The tools that must read what zfstune writes; one that is missing is a failure, not a skip."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from flame.browser import Browser, browser

from zfstrace.flame import read, write
from zfstrace.stacks import Stacks

HERE = Path(__file__).parent
SAMPLE = HERE.parent / "data/flame/offcpu.folded"


def tool(name: str, package: str) -> str:
    """The path of a program. Fails the test when it is not there."""
    found = shutil.which(name)
    if not found:
        pytest.fail(f"{name} is not installed: run scripts/bootstrap (package {package})", False)
    return found


@pytest.fixture(scope="session")
def go() -> str:
    return tool("go", "golang-go")


@pytest.fixture(scope="session")
def speedscope_app() -> Path:
    """The directory of speedscope's application."""
    found = HERE / "node_modules/speedscope/dist/release"
    if not found.is_dir():
        pytest.fail("npm's speedscope is not installed: run scripts/bootstrap", False)
    return found


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser(tool("chromium", "chromium")) as found:
        yield found


@pytest.fixture(scope="session")
def sample() -> Stacks:
    """Off-CPU stacks as zfstune records them."""
    return read(str(SAMPLE)).stacks


@pytest.fixture
def written(sample: Stacks, tmp_path: Path) -> Callable[[str], Path]:
    """Writes the sample into a file of that name."""

    def to(name: str) -> Path:
        path = tmp_path / name
        write(sample, str(path))
        return path

    return to
