"""The command `zfstune report` on the directory of a session."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest
from support.sample_session import session, with_flames

from zfstune.errors import UsageError
from zfstune.report import args as report_args
from zfstune.report import command as report_cmd
from zfstune.report import render


def command(*words: str) -> int:
    """`zfstune report` as the command line calls it."""
    parser = argparse.ArgumentParser()
    report_args.add(parser.add_subparsers())
    args = parser.parse_args(["report", *words])
    assert args.run == "report.command"
    return report_cmd.run(args)


@pytest.mark.usefixtures("no_plots")
def test_the_command_writes_the_page_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = session(trials=1)
    with_flames(found, tmp_path)
    (tmp_path / "session.json").write_text(json.dumps(found))
    expected = render.render(found, tmp_path)
    assert command(str(tmp_path)) == 0
    assert (tmp_path / "report.html").read_text() == expected
    assert f"report: {tmp_path}/report.html" in capsys.readouterr().err
    assert command(str(tmp_path / "session.json"), "-o", str(tmp_path / "b.html")) == 0
    assert (tmp_path / "b.html").read_text() == expected
    capsys.readouterr()
    assert command(str(tmp_path), "-o", "-") == 0
    assert capsys.readouterr().out == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "No such file"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("\xff", "is not JSON"),
        ("[]", "is not a session"),
        ('{"type": "fsync_summary", "schema": 1}', "is not a session"),
        ('{"type": "tune_session"}', "is not a session"),
        ('{"type": "tune_session", "schema": 1}', "is not a complete session"),
        ('{"type": "tune_session", "schema": 2}', "has schema 2: this zfstune reads only 1"),
    ],
)
def test_the_command_refuses_what_is_not_a_session(
    content: str | None, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "session.json"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(UsageError, match=words) as error:
        command(str(tmp_path))
    assert error.value.hint


def test_the_command_refuses_an_impossible_target(tmp_path: Path) -> None:
    (tmp_path / "session.json").write_text(json.dumps(session(trials=1)))
    for target in (tmp_path, tmp_path / "none/report.html"):
        with pytest.raises(UsageError, match=r"not a regular file|does not exist") as error:
            command(str(tmp_path), "-o", str(target))
        assert error.value.hint in ("name another", "create it first")
