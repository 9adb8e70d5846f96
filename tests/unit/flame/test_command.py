"""`zfstune flame diff` and `convert`, and the options of a recording."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.errors import ONE_ERROR
from support.paths import DATA

from zfstrace import flame
from zfstune import cli

SAMPLE = DATA / "flame/offcpu.folded"


def fails(command: list[str], capsys: pytest.CaptureFixture[str], status: int = 2) -> str:
    """The error on stderr."""
    assert cli.main(command) == status
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.fullmatch(ONE_ERROR, captured.err)
    return captured.err


def test_convert_round_trips_all_formats(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = str(SAMPLE)
    for name in ("a.speedscope.json", "b.pb.gz", "c.txt"):
        assert cli.main(["flame", "convert", source, "-o", str(tmp_path / name)]) == 0
        source = str(tmp_path / name)
    assert cli.main(["flame", "convert", source, "-o", "-"]) == 0
    captured = capsys.readouterr()
    lines = sorted(SAMPLE.read_text().splitlines())
    assert sorted(captured.out.splitlines()) == lines
    assert "a.speedscope.json has 18.0 s in 117 distinct stacks" in captured.err


def test_convert_takes_a_title_a_kind_and_a_unit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "a.pb.gz")
    command = ["flame", "convert", str(SAMPLE), "-o", path, "--title", "T", "--kind", "on-cpu"]
    assert cli.main([*command, "--unit", "samples"]) == 0
    found = flame.read(path).stacks
    assert (found.title, found.kind, found.unit) == ("T", "on-cpu", "samples")
    again = ["flame", "convert", path, "-o", path, "--unit", "us"]
    assert cli.main(again) == 0
    stacks = flame.read(path).stacks
    assert (stacks.unit, stacks.total) == ("ns", 1000 * found.total)
    capsys.readouterr()
    assert "says that it counts time\nhint: leave out --unit us\n" in fails(again, capsys)


def test_diff_of_a_file_with_itself_is_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.svg"
    assert cli.main(["flame", "diff", str(SAMPLE), str(SAMPLE), "-o", str(path)]) == 0
    assert "Difference: offcpu to offcpu" in path.read_text()
    assert "compares 18.0 s before with 18.0 s after" in capsys.readouterr().err
    assert cli.main(["flame", "diff", str(SAMPLE), str(SAMPLE), "-o", "-"]) == 0
    for line in capsys.readouterr().out.splitlines():
        _, before, after = line.rsplit(" ", 2)
        assert before == after


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (
            ["diff", str(SAMPLE), str(SAMPLE), "-o", "x.pb.gz"],
            "end the name in .folded, .txt or .svg",
        ),
        (["diff", "-", "-", "-o", "x.svg"], "both standard input"),
        (["diff", str(SAMPLE), "no.folded", "-o", "x.svg"], "cannot read 'no.folded'"),
        (["convert", str(SAMPLE), "-o", "x.png"], "unknown output format"),
        (["convert", "x.svg", "-o", "y.svg"], "is a picture"),
        (["convert", "/dev/null", "-o", "-"], "nothing was recorded"),
        (
            ["--pool", "tank", "convert", "a", "-o", "-"],
            "\nhint: leave out the options before convert\n",
        ),
        (["--duration", "1s", "diff", "a", "b", "-o", "-"], "`flame diff` records nothing"),
    ],
)
def test_errors_leave_no_file(
    words: list[str],
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert hint in fails(["flame", *words], capsys)
    assert list(tmp_path.iterdir()) == []


def test_a_full_device_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # the directory vanishes between the check and the writing
    path = tmp_path / "gone" / "a.svg"
    path.parent.mkdir()
    target = str(path)
    flame.check_output(target)
    path.parent.rmdir()
    with pytest.raises(flame.WriteFailed, match="No such file or directory"):
        flame.save(target, ["x"])


@pytest.mark.parametrize("command", ["convert a", "diff a b"])
def test_options_of_the_picture_may_stand_before_the_command(command: str) -> None:
    parser = cli.build_parser()
    args = parser.parse_args(
        ["flame", "--title", "T", "--inverted", *command.split(), "-o", "x.svg"]
    )
    assert (args.title, args.inverted) == ("T", True)
    args = parser.parse_args(["flame", *command.split(), "-o", "x.svg"])
    assert (args.title, args.inverted) == (None, False)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", {"mode": "off-cpu", "target": "fsync", "pid": None, "duration": 10_000_000_000}),
        ("--on-cpu --txg-sync", {"mode": "on-cpu", "target": "txg-sync"}),
        ("--wakeup --all-zfs --pool tank", {"mode": "wakeup", "target": "zfs", "pool": "tank"}),
        ("--pid 42 -o x.svg --title T", {"target": "pid", "pid": 42, "output": "x.svg"}),
        ("--duration 5s --inverted", {"duration": 5_000_000_000, "inverted": True, "output": "-"}),
    ],
)
def test_options_choose_kind_and_target(words: str, expected: dict[str, object]) -> None:
    args = vars(cli.build_parser().parse_args(["flame", *words.split()]))
    assert args["run"] == "flame.command"
    assert {name: args[name] for name in expected} == expected
