"""`zfstune tools` and `licences`: what comes out is what the checkout has, and nothing is lost."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import install
import pytest
from support.errors import ONE_ERROR
from support.paths import ROOT

from zfstune import cli
from zfstune.inside import collect, tools


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    status = cli.main(words)
    printed = capsys.readouterr()
    return status, printed.out, printed.err


def test_every_tool_of_the_checkout_is_listed_with_its_purpose(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status, text, _ = run(capsys, "tools", "list")
    assert status == 0
    assert all(len(line) < 100 for line in text.splitlines())
    found = json.loads(run(capsys, "tools", "list", "--json")[1])["tools"]
    names = {(tool["system"], tool["name"]) for tool in found}
    assert names == {
        (system, path.name)
        for system, patterns in collect.PATTERNS.items()
        for pattern in patterns
        for path in ROOT.glob(pattern)
    }
    for tool in found:
        assert tool["name"] in text
        assert len(tool["about"]) > 20, tool
        assert tool["runner"] in ("bpftrace", "bcc", "dtrace")


@pytest.mark.parametrize("system", ["linux", "freebsd"])
def test_extracted_files_are_those_of_the_checkout(
    system: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    status, text, _ = run(capsys, "tools", "extract", str(folder), "--system", system)
    assert status == 0
    paths = [Path(line) for line in text.splitlines()]
    assert sorted(paths) == sorted(folder.iterdir())
    sources = {
        path.name: path for pattern in collect.PATTERNS[system] for path in ROOT.glob(pattern)
    }
    assert {path.name for path in paths} == set(sources)
    for path in paths:
        assert path.read_bytes() == sources[path.name].read_bytes()
        assert os.access(path, os.X_OK)


def test_again_is_no_error_and_a_changed_file_stays(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("tools", "extract", "--system", "linux", str(tmp_path))
    assert run(capsys, *words, "zilcommit.bt")[0] == 0
    assert run(capsys, *words, "zilcommit.bt", "--json")[0] == 0
    mine = tmp_path / "zilslower.bt"
    mine.write_text("mine")
    status, text, errors = run(capsys, *words)
    assert (status, text) == (3, "")
    assert re.fullmatch(ONE_ERROR, errors) and "is there, and differs" in errors
    assert mine.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 2
    assert run(capsys, *words, "--force")[0] == 0
    assert mine.read_text() != "mine"


@pytest.mark.parametrize(
    "words",
    [
        "DIR zilcommit.bt zilslower.bt --system linux",
        "DIR --system linux zilcommit.bt zilslower.bt",
        "--system linux DIR zilcommit.bt --json zilslower.bt",
        "--json DIR zilcommit.bt --force zilslower.bt --system=linux",
    ],
)
def test_names_and_options_come_in_any_order(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "new"
    given = (str(folder) if word == "DIR" else word for word in words.split())
    status, _, errors = run(capsys, "tools", "extract", *given)
    assert (status, errors) == (0, "")
    assert {path.name for path in folder.iterdir()} == {"zilcommit.bt", "zilslower.bt"}


def test_a_link_is_not_followed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    other.write_text("keep")
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / "zilcommit.bt").symlink_to(other)
    words = ("tools", "extract", str(folder), "zilcommit.bt", "--system", "linux")
    assert run(capsys, *words)[0] == 3
    assert run(capsys, *words, "--force")[0] == 0
    assert other.read_text() == "keep"


def test_a_pipe_in_the_way_is_not_opened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That would wait for its writer."""
    os.mkfifo(tmp_path / "zilcommit.bt")
    words = ("tools", "extract", str(tmp_path), "zilcommit.bt", "--system", "linux")
    status, _, errors = run(capsys, *words)
    assert status == 3
    assert re.fullmatch(ONE_ERROR, errors) and "is there, and differs" in errors
    assert run(capsys, *words, "--force")[0] == 0
    assert (tmp_path / "zilcommit.bt").is_file()


@pytest.mark.parametrize(
    ("words", "status", "why"),
    [
        (("dir", "zilcomit.bt"), 2, "did you mean zilcommit.bt?"),
        (("dir", "zildist.py", "--system", "freebsd"), 2, "no tool 'zildist.py' for freebsd"),
        (("file",), 3, "File exists"),
        (("file/dir",), 3, "Not a directory"),
        (("none/dir",), 3, "No such file or directory"),
        (("dir", "--system", "linux", "zilcomit.bt"), 2, "did you mean zilcommit.bt?"),
        (("dir", "zilcommit.bt", "--jsn", "zilslower.bt"), 2, "unrecognized arguments: "),
        (("",), 2, "DIR is empty"),
        ((), 2, "DIR is missing"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    words: tuple[str, ...],
    status: int,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tools, "HERE", "linux")
    (tmp_path / "file").write_text("")
    found = run(capsys, "tools", "extract", *words)
    assert found[:2] == (status, "")
    assert re.fullmatch(ONE_ERROR, found[2]) and why in found[2]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_the_licence_of_zfstune_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    status, text, _ = run(capsys, "licences")
    assert status == 0
    assert (ROOT / "LICENSE").read_text().rstrip() in text
    parts = json.loads(run(capsys, "licences", "--json")[1])["parts"]
    assert [part["name"] for part in parts] == ["zfstune"]


def test_a_copy_without_them_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(collect, "tools", lambda _root: [])
    monkeypatch.setattr(collect, "licences", lambda _root, _version: [])
    for words in (("tools", "list"), ("licences",)):
        status, _, errors = run(capsys, *words)
        assert status == 3
        assert re.fullmatch(ONE_ERROR, errors) and "came without them" in errors


def test_an_installation_has_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "libzfstrace.so").write_bytes(b"not a library")
    monkeypatch.setattr(install, "LIBRARY", tmp_path / "libzfstrace.so")
    assert install.main(["--prefix", "/opt/z", "--destdir", str(tmp_path / "stage")]) == 0
    command = [str(tmp_path / "stage/opt/z/bin/zfstune"), "tools", "extract", "out"]
    done = subprocess.run(
        [sys.executable, "-I", *command, "--system", "linux"], cwd=tmp_path, check=False
    )
    assert done.returncode == 0
    assert (tmp_path / "out/zilcommit.bt").is_file()
