"""What must hold for the source tree itself: which package may import which."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from support.packages import ORDER, SOURCES
from support.paths import ROOT

RANKS = {name: rank for rank, row in enumerate(ORDER) for name in row}
# Only the file that picks the platform imports both.
PICKS = "zfstune.host"


def files() -> Iterator[tuple[str, Path]]:
    """Every module, by its dotted name."""
    for top, directory in SOURCES.items():
        for path in sorted(directory.rglob("*.py")):
            parts = [top, *path.relative_to(directory).with_suffix("").parts]
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


MODULES = dict(files())


def imported(path: Path) -> set[str]:
    """The modules that a file imports, and what it takes from them, as dotted names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@functools.cache
def imports(module: str) -> frozenset[str]:
    """Our modules that a file imports, anywhere in it, including imports for types only."""
    found = imported(MODULES[module])
    names = {name if name in MODULES else name.rpartition(".")[0] for name in found}
    return frozenset(names & set(MODULES)) - {module}


def package(module: str) -> str:
    """What ORDER names: each package and file of zfstune, any other package as a whole."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "zfstune" else parts[0]


def circle(graph: Mapping[str, frozenset[str]]) -> list[str]:
    """One cycle of the graph, [] without any."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_package_has_its_place_in_the_order() -> None:
    assert {package(module) for module in MODULES} == set(RANKS)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_what_is_below_it(module: str) -> None:
    own = package(module)
    for other in imports(module):
        theirs = package(other)
        if theirs == own:
            continue
        assert RANKS[theirs] < RANKS[own], f"{module} imports {other}"
        platform = theirs in ("zfs_linux", "zfs_freebsd")
        assert not platform or module == PICKS, f"{module} imports {other}"


def test_files_form_no_circle() -> None:
    assert circle({module: imports(module) for module in MODULES}) == []


def test_packages_form_no_circle() -> None:
    graph: dict[str, frozenset[str]] = {}
    for module in MODULES:
        own = package(module)
        others = frozenset(map(package, imports(module))) - {own}
        graph[own] = graph.get(own, frozenset()) | others
    assert circle(graph) == []


def test_a_circle_is_found() -> None:
    graph = {"a": frozenset("b"), "b": frozenset("c"), "c": frozenset("a")}
    assert set(circle(graph)) == {"a", "b", "c"}


@pytest.mark.parametrize("module", MODULES)
def test_a_file_is_short_and_says_what_it_is(module: str) -> None:
    text = MODULES[module].read_text(encoding="utf-8")
    assert len(text.splitlines()) < 600
    assert ast.get_docstring(ast.parse(text))


def test_every_folder_is_a_package() -> None:
    for directory in SOURCES.values():
        for path in directory.rglob("*.py"):
            init = path.with_name("__init__.py")
            assert init.exists(), path.parent


def test_the_folder_platform_shadows_no_standard_module() -> None:
    assert list((ROOT / "platform").glob("*.py")) == []


@pytest.mark.parametrize("module", MODULES)
def test_types_are_imported_without_type_checking(module: str) -> None:
    """zfstune.cli says why."""
    assert not re.search(r"import .*TYPE_CHECKING", MODULES[module].read_text(encoding="utf-8"))


TESTS = sorted((ROOT / "tests").rglob("test_*.py"))


def test_no_test_imports_from_another() -> None:
    """Shared code belongs in tests/support, or beside the lab's tests."""
    names = {path.stem for path in TESTS}
    for path in TESTS:
        assert not [name for name in imported(path) if names & set(name.split("."))], path
