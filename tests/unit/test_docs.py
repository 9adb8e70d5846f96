"""What pages say about the tree is true: files, names in files, links, folders and their order."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.packages import ORDER, SOURCES
from support.paths import ROOT

CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = sorted(
    path
    for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("tracers/**/*.md"))
    if path.name != "CHANGELOG.md"  # that one is of its time
)
# Where a path in a page begins; others are those of a host, such as /proc/self/mountinfo.
TOPS = ("bin/", "docs/", "platform/", "scripts/", "tests/", "tracers/", "tuner/")
SUFFIXES = ("bt", "c", "css", "d", "h", "js", "md", "py", "sh", "toml", "txt", "yml")


@cache
def tree() -> frozenset[str]:
    """All paths below TOPS."""
    tops = [ROOT / top for top in TOPS]
    paths = [path for top in tops for path in (top, *top.rglob("*"))]
    return frozenset(str(path.relative_to(ROOT)) for path in paths)


def outside_examples(text: str) -> str:
    """In one line."""
    return " ".join(line for line in text.split("\n") if not line.startswith("    "))


def spans(text: str) -> list[str]:
    """What stands in backticks."""
    return re.findall(r"`([^`]+)`", outside_examples(text))


def wrong_paths(text: str) -> list[str]:
    """Paths of this tree that do not exist; NAME stands for any."""
    words = [span.split(" ")[0].partition(":")[0].rstrip("/") for span in spans(text)]
    words += re.findall(r"(?<![\w./-])[a-z]+/[\w./-]+\.[a-z]\w*", outside_examples(text))
    paths = {word.replace("NAME", "*") for word in words if word.startswith(TOPS)}
    return sorted(path for path in paths if path not in tree() and not list(ROOT.glob(path)))


def claims(text: str) -> Iterator[tuple[str, str]]:
    """`name`, `other` in `path`; and `  -> name() does something   path` of the sketches."""
    flat = " ".join(text.split())
    for names, path in re.findall(r"((?:`[^`]+`(?:,? and |, )?)+) in `([^`]+\.[a-z]+)`", flat):
        for name in re.findall(r"`([^`]+)`", names):
            yield name, path
    for line in text.split("\n"):
        sketch = re.fullmatch(rf"    .*?\s\s+(\S+\.(?:{'|'.join(SUFFIXES)}))", line)
        if sketch:
            for name in re.findall(r"[\w*.]+(?=\(\))", line):
                yield name, sketch[1]


def wrong_claims(text: str) -> list[str]:
    """Names that are not in the file that a page says."""
    return [
        f"{name} in {path}"
        for name, path in claims(text)
        if path.startswith(TOPS) and not has(ROOT / path, name)
    ]


def wrong_tests(text: str) -> Iterator[str]:
    """Test files and functions that do not exist; `::test_x` is in the file named before."""
    tests = {file: f"/{file}" for file in tree() if file.startswith("tests/")}
    found: list[str] = []
    for span in spans(text):
        named = re.fullmatch(r"((?:[\w/]+/)?test_\w+\.py)?(?:::(test_[\w*]+))?", span)
        if not named:
            continue
        if named[1]:
            found = [file for file, end in tests.items() if end.endswith(f"/{named[1]}")]
        pattern = rf"def {(named[2] or 'test_*').replace('*', chr(92) + 'w+')}\("
        if not any(re.search(pattern, (ROOT / file).read_text()) for file in found):
            yield span


def has(file: Path, name: str) -> bool:
    """As code, not as a word of a comment; of Class.method both, `*` for any part of a name."""
    names = re.findall(r"[\w*]+", name.partition("(")[0].replace("NAME", "*"))
    patterns = [
        rf"(?:def|class|define|enum|struct) {one}\b|\b{one}\b\s*[\[(:={{]"
        for one in (name.replace("*", r"\w+") for name in names)
    ]
    text = file.read_text(encoding="utf-8") if file.is_file() else ""
    return all(re.search(pattern, text) for pattern in patterns)


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def headings(page: Path) -> set[str]:
    return {slug(line.lstrip("# ")) for line in page.read_text().split("\n") if line[:1] == "#"}


def wrong_links(page: Path) -> Iterator[str]:
    """Links to files and headings that are not there."""
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        there = (page.parent / name).resolve() if name else page
        if not there.exists() or (anchor and anchor not in headings(there)):
            yield target


def test_a_wrong_name_is_found() -> None:
    text = (
        "`fsync_probes` in `tracers/libzfstrace/tables.c`, `probe_defs` in\n"
        "`tracers/libzfstrace/tables.c`; see `docs/no.md` and `docs/lab.md`\n"
        "    ->  nothing() goes on     tracers/libzfstrace/tables.c\n"
    )
    assert wrong_claims(text) == [
        "probe_defs in tracers/libzfstrace/tables.c",
        "nothing in tracers/libzfstrace/tables.c",
    ]
    assert wrong_paths(text) == ["docs/no.md"]
    tests = "`test_docs.py::test_a_wrong_*`, `::test_no`, `unit/test_no.py`"
    assert list(wrong_tests(tests)) == ["::test_no", "unit/test_no.py"]


def test_a_wrong_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One head\n[a](#one-head) [b](#two) [c](no.md) [d](https://example.org)\n")
    assert list(wrong_links(page)) == ["#two", "no.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_links_and_names_on_a_page_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert wrong_paths(text) == []
    assert wrong_claims(text) == []
    assert list(wrong_tests(text)) == []
    assert list(wrong_links(page)) == []


@pytest.mark.parametrize("page", sorted((ROOT / "docs/man").iterdir()), ids=lambda path: path.name)
def test_files_in_a_manual_page_exist(page: Path) -> None:
    assert wrong_paths(page.read_text(encoding="utf-8")) == []


def test_recipes_give_files_by_their_whole_path() -> None:
    """So that the tests above see them."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    ends = tuple(f".{suffix}" for suffix in SUFFIXES)
    short = [span for span in spans(text) if span.endswith(ends) and "/" not in span]
    # the names that every command's package has, and data that has a whole path further down
    assert set(short) <= {
        *("args.py", "command.py", "text.py", "__init__.py", ".py"),
        *("traces.py", "parameters.py", "boot.py", "mounts.py", "disks.py"),
        *("parameters.toml", "advice.toml", "causes.toml"),
    }


def rows() -> dict[str, str]:
    """The table of folders."""
    found = {}
    for line in CONTRIBUTING.read_text(encoding="utf-8").split("\n"):
        cells = line.strip("|").split(" | ")
        if line.startswith("| `") and len(cells) == 2:
            for folder in re.findall(r"`([^`]+/)`", cells[0]):
                found[folder] = cells[1].strip()
    return found


def test_every_package_has_its_sentence_in_the_table() -> None:
    table = rows()
    for directory in SOURCES.values():
        for init in directory.rglob("__init__.py"):
            folder = f"{init.parent.relative_to(ROOT)}/"
            says = ast.get_docstring(ast.parse(init.read_text(encoding="utf-8"))) or ""
            assert table.get(folder) == " ".join(says.partition("\n\n")[0].split()), folder


def test_the_written_order_of_packages_is_that_of_the_tree() -> None:
    text = CONTRIBUTING.read_text(encoding="utf-8")
    block = text.partition("### The order of packages")[2].partition("\n    ")[2]
    written = [set(line.split()) for line in block.partition("\n\n")[0].split("\n")]
    known = [row for row in ORDER if row != ("zfstune",)]  # its version, which is in no package
    order = [{name.removeprefix("zfstune.") for name in row} for row in known]
    assert written == order[::-1]


@pytest.mark.parametrize("page", sorted((ROOT / "docs/tools").glob("*.md")), ids=lambda p: p.name)
def test_options_are_described_in_the_manual_only(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert not headings(page) & {"options", "exit-status"}
    assert "show this help message" not in text
