"""zfstrace.h is for programs in C and C++, and says what each function takes and returns."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from support.paths import ROOT

HEADER = ROOT / "tracers/libzfstrace/zfstrace.h"
FUNCTION = re.compile(r"^(?!typedef)([\w *]+?)\b(zfstrace_\w+)\(([^;]*?)\);", re.M)
COMMENT = re.compile(r"/\*\*\n(?: \*.*\n)+? \*/\n\Z")


def functions() -> dict[str, tuple[str, list[str], str]]:
    """By name: type of the result, names of the parameters, the comment right before it."""
    text = HEADER.read_text(encoding="utf-8")
    code = re.sub(r"/\*.*?\*/", lambda comment: " " * len(comment[0]), text, flags=re.S)
    found = {}
    for match in FUNCTION.finditer(code):
        comment = COMMENT.search(text, 0, match.start())
        names = re.findall(r"(\w+)(?:,|$)", match[3]) if match[3] != "void" else []
        found[match[2]] = match[1].strip(), names, comment[0] if comment else ""
    return found


def test_functions_are_found_with_their_arguments() -> None:
    assert functions()["zfstrace_table"][:2] == (
        "void *",
        ["t", "name", "entries", "entry_bytes"],
    )
    assert functions()["zfstrace_abi"][:2] == ("int", [])


@pytest.mark.parametrize("name", functions())
def test_every_function_is_documented(name: str) -> None:
    result, parameters, comment = functions()[name]
    assert f" * {name}() - " in comment
    assert re.findall(r"^ \* @(\w+):", comment, re.M) == parameters
    assert ("\n * Return: " in comment) == (result != "void")


@pytest.mark.parametrize(
    ("compiler", "standard"), [("gcc", "c99"), ("clang", "c17"), ("g++", "c++11")]
)
def test_the_header_compiles_alone(compiler: str, standard: str) -> None:
    if not shutil.which(compiler):
        pytest.skip(f"there is no {compiler}")
    flags = ["-Wall", "-Wextra", "-Werror", "-pedantic", f"-std={standard}", "-fsyntax-only"]
    language = "c++" if "++" in compiler else "c"
    subprocess.run([compiler, *flags, "-x", language, HEADER], check=True)
