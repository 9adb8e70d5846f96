"""The page of `make bench-tracing`, of made-up rounds, which survive the end of a run and come from
several: with a stand-in for the lab."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import instructions, tracing
from benchmarks.loads import LOADS
from benchmarks.tracing_guest import (
    ALL,
    ALWAYS,
    LIGHT,
    RESULT,
    SUMMARY,
    TOOLS,
    WINDOWS,
    peers,
)

Json = dict[str, Any]
ONE_LINER = "bpftrace one-liner"
MACHINE: Json = {
    "kernel": "6.1",
    "zfs": "2.1",
    "btf": False,
    "cpu": "QEMU Virtual CPU",
    "host": "2 cores of a CPU",
}
COUNTS: Json = {
    "of": {"kernel": "6.1", "zfs": "2.1"},
    "modes": {
        "plain": {
            "tank/db": {"all": 155202.4, "tracing": 0, "calls": 0},
            "tank/off": {"all": 21112.0, "tracing": 0, "calls": 0},
        },
        "fsync": {
            "tank/db": {"all": 160000.0, "tracing": 3474.7, "calls": 41.96},
            "tank/off": {"all": 22400.0, "tracing": 1279.0, "calls": 9.0},
        },
    },
}
PROGRAM: Json = {"ns": 500.0, "runs": 1.5}
PROGRAMS: Json = {name: {"b": PROGRAM} for name in LOADS} | {"1 job": {"b": PROGRAM, "a": PROGRAM}}


def a_round(ratio: float, lost: int | None = 1) -> Json:
    """In which a tool adds that with one job, and 1 % with the other loads."""
    ratios = dict.fromkeys(LOADS, 1.01) | {"1 job": ratio}
    loads = {name: {"none": 2e6, "traced": 2e6 * one} for name, one in ratios.items()}
    figures = {"attach_seconds": 1.2, "own": 0.01, "lost": lost}
    return {**figures, "loads": loads}


def lines(tool: str, *found: Json, date: str = "2026-11-28", **machine: str) -> list[Json]:
    of = {"tool": tool, "machine": MACHINE | machine, "date": date}
    return [of | one for one in found]


def rounds(*ratios: float) -> list[Json]:
    return [a_round(ratio) for ratio in ratios]


def measured(**tools: list[Json]) -> dict[str, tracing.Measured]:
    return {name: tracing.Measured(found) for name, found in tools.items()}


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The page of what is there."""
    monkeypatch.setattr(tracing, "PAGE", tmp_path / "tracing.md")
    words = ["tracing.py", "--minutes", "0", "--data", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)

    def write(flavour: str, *found: Json, counts: Json | None = None) -> str:
        file = tmp_path / f"{flavour}.jsonl"
        file.write_text("".join(f"{json.dumps(one)}\n" for one in found))
        if counts:
            (tmp_path / f"{flavour}-instructions.json").write_text(json.dumps(counts))
        assert tracing.main() == 0
        return (tmp_path / "tracing.md").read_text()

    return write


def test_the_page_has_changes_with_their_intervals(page: Callable[..., str]) -> None:
    text = page(
        "bookworm",
        *lines(SUMMARY, {"programs": PROGRAMS}, *rounds(*[1.02] * 9)),
        *lines(ONE_LINER, *[a_round(1.1, lost=None)] * 8, {"error": "did not end"}),
        *lines("zilcommit.d", {"error": "not there"}),
        *lines(ALL, *rounds(1.0, 1.1)),
        counts=COUNTS,
    )
    assert "## bookworm: kernel 6.1, ZFS 2.1\n" in text
    assert "Measured 2026-11-28 on 2 cores of a CPU, QEMU with software emulation (TCG).\n" in text
    assert "| none |  | 2,000 us | 2,000 us | 2,000 us | 2,000 us | - | - | - |" in text
    ours, rest = "**+2.0%** (+2.0% to +2.0%)", "**+1.0%** (+1.0% to +1.0%)"
    assert f"| {SUMMARY} | 9 | {ours} | {rest} | {rest} | {rest} | 1.0% | 1.20 s | 9 |" in text
    assert f"{ONE_LINER}, after 8 rounds: did not end.\n" in text
    assert "| zilcommit.d | 0 | not there |  |  |  |  |  |  |\n" in text
    assert f"| {ALL} | 2 | too few rounds |  |  |  |  |  |  |\n" in text
    each = "3.3 us, 290 instructions"
    tells = TOOLS[SUMMARY].tells
    assert f"| {SUMMARY} | {tells} | {ours} | 3,475 | 12 | {each} | 1.20 s | 9 |" in text
    assert "| not there | - | 9 | - |  |  |\n" in text
    assert "| plain | 155,202 | - | 21,112 |\n" in text
    assert "| fsync | 3,475, 42.0 | - | 1,279, 9.0 |\n" in text
    assert "|  | a | 1.50, 0.50 us | - | - | - |\n" in text
    assert f"| **{SUMMARY}** |  | 3.00, 1.00 us | 1.50, 0.50 us |" in text


def test_what_was_measured_on_two_days_is_one_table(page: Callable[..., str]) -> None:
    """A tool that failed once is measured after all."""
    text = page(
        "bookworm",
        *lines(SUMMARY, *rounds(*[1.02] * 5), {"error": "did not attach"}),
        *lines(SUMMARY, *rounds(*[1.02] * 5), date="2026-11-30"),
        *lines(ONE_LINER, *rounds(*[1.1] * 8), date="2026-11-30"),
    )
    assert "Measured 2026-11-28 to 2026-11-30 on" in text
    assert f"| {SUMMARY} | 10 | **+2.0%**" in text and "did not attach" not in text
    assert text.index("### Against peers") < text.rindex(f"| {ONE_LINER} |")


def test_a_newer_kernel_is_another_machine(page: Callable[..., str]) -> None:
    text = page(
        "bookworm",
        *lines(SUMMARY, *rounds(*[1.02] * 8)),
        *lines(SUMMARY, *rounds(*[1.3] * 8), kernel="6.2"),
        counts=COUNTS,
    )
    old, new = text.split("## bookworm: kernel ")[1:]
    assert "| 8 | **+2.0%**" in old and "| 3,475 |" in old
    assert "| 8 | **+30.0%**" in new
    # which is of the other
    assert f"| {TOOLS[SUMMARY].tells} | **+30.0%** (+30.0% to +30.0%) | - |" in new
    assert "kernel 6.1, ZFS 2.1:\n" in new


def test_a_tool_that_is_gone_is_passed_over(page: Callable[..., str]) -> None:
    gone = lines("one of long ago", *rounds(*[1.02] * 8))
    assert "long ago" not in page("bookworm", *gone, *lines(SUMMARY, *rounds(*[1.02] * 8)))


def test_nothing_is_no_page(page: Callable[..., str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        page("bookworm")


@pytest.mark.parametrize(
    ("btf", "ratios", "said"),
    [
        (True, [1.02] * 9, "above the goal of 1.5%"),
        (False, [1.02] * 9, "within the goal of 5.0%"),
        # on the average below it
        (
            True,
            [0.97, 1.06, 0.98, 1.05, 0.97, 1.05, 0.98, 1.04],
            "not resolved against the goal of",
        ),
    ],
)
def test_a_goal_is_met_by_the_whole_interval(btf: bool, ratios: list[float], said: str) -> None:
    tools = measured(**{"fsync": rounds(*ratios), SUMMARY: rounds(*ratios)})
    found = tracing.verdicts(tools, tracing.changes(tools), btf=btf)
    assert found[0].startswith("* fsync, 1 job: ") and said in found[0]
    assert found[-1].startswith(f"* {SUMMARY}, seconds to attach: **1.20** (")


def test_windows_count_as_often_as_they_come() -> None:
    """1 % always and 7 % in a window are 1.2 % with one of 2 s in a minute."""
    tools = measured(commit=rounds(*[1.01] * 9), fsync=rounds(*[1.07] * 9))
    added = tracing.changes(tools)
    assert added[LIGHT]["1 job"].best == pytest.approx(0.012)
    assert LIGHT not in tracing.changes({"commit": tools["commit"]})
    assert any(f"* {LIGHT}, 1 job" in line for line in tracing.verdicts(tools, added, btf=True))
    # its own time is that of its command: 1 % always, and 8.5 % with a window in 8 s
    tools |= measured(**{ALWAYS: rounds(1.0), WINDOWS: rounds(1.0)})
    tools[WINDOWS].rounds[0]["own"] = 0.085
    for of, own in ((tools, "| 2.0% |"), ({"commit": tools["commit"]}, "|  |")):
        rows = [line for line in tracing.costs(of, added) if line.startswith(f"| {LIGHT} |")]
        assert len(rows) == 1 and own in rows[0]


def test_the_interval_of_a_sum_has_those_of_its_parts() -> None:
    without, during = tracing.Estimate(0.01, 0.0, 0.02), tracing.Estimate(0.07, 0.04, 0.10)
    total = tracing.with_windows(without, during)
    share = tracing.WINDOW_S / tracing.EVERY_S
    assert total.low == pytest.approx(share * 0.04)
    assert total.high == pytest.approx((1 - share) * 0.02 + share * 0.10)


def test_a_mode_has_the_cost_of_its_command_among_peers() -> None:
    """The command was measured less often."""
    tools = measured(**{"fsync": rounds(*[1.03] * 9), SUMMARY: rounds(*[1.5] * 9)})
    assert "**+3.0%**" in "".join(tracing.compared(tools, tracing.changes(tools), {}))


def test_too_few_rounds_are_no_measurement() -> None:
    assert tracing.changes(measured(**{SUMMARY: rounds(*[1.0] * (tracing.FEWEST - 1))})) == {}


def test_each_tool_is_in_one_part() -> None:
    assert sorted(name for part in tracing.PARTS.values() for name in part) == sorted(TOOLS)
    assert tracing.GOALS.keys() - {LIGHT} < {*tracing.PARTS["modes"]}


class Lab:
    """Has a round of each tool that it is asked for, some at most: then the guest dies."""

    def __init__(self, most: int = 99, kernel: str = "6.1") -> None:
        self.most, self.kernel = most, kernel
        self.asked: Json = {}
        self.words: tuple[str, ...] = ()

    def __call__(self, *words: str, line: Callable[[str], None]) -> int:
        self.asked, self.words = json.loads(words[-1]), words
        line("bench: something else\n")
        names = list(self.asked["tools"])
        for name in names[: self.most]:
            found = {"tool": name, "machine": MACHINE | {"kernel": self.kernel}, **a_round(1.01)}
            line(f"{RESULT}{json.dumps(found)}\n")
        if len(names) <= self.most:
            return 0
        line(f'{RESULT}{{"tool": "zfst')
        return 125


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command with these words, whose lab is the first argument."""
    monkeypatch.setattr(tracing, "PAGE", tmp_path / "tracing.md")
    monkeypatch.setattr(instructions, "shared", lambda flavour: ["--share", "packages"])

    def count(flavour: str, args: Any) -> None:
        (tmp_path / "counted").write_text(flavour)

    monkeypatch.setattr(tracing, "count", count)

    def call(lab: Lab, *words: str) -> int:
        monkeypatch.setattr(tracing, "run_lab", lab)
        monkeypatch.setattr("sys.argv", ["tracing.py", "--data", str(tmp_path / "data"), *words])
        return tracing.main()

    return call


def test_rounds_that_have_ended_are_kept(
    main: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What the death of the guest has cut short is none, nor what the death of this process has."""
    assert main(Lab(3), "--tools", "modes", "trixie") == 125
    assert not (tmp_path / "tracing.md").exists()
    assert "trixie: go on with --resume" in capsys.readouterr().err
    with (tmp_path / "data/trixie.jsonl").open("a") as file:
        file.write('{"tool": "zfst')
    rest = Lab()
    assert main(rest, "--resume", "--tools", "modes", "--minutes", "40", "trixie") == 0
    # so that the others come first
    assert list(rest.asked["tools"].values()) == [1, 1, 1, 0, 0, 0, 0]
    assert rest.asked["machine"] == MACHINE and rest.asked["minutes"] == 40
    assert len(tracing.kept(tmp_path / "data/trixie.jsonl")) == 3 + 7


def test_parts_are_one_page(main: Callable[..., int], tmp_path: Path) -> None:
    """Of both flavours, whatever a run was about, and without --resume."""
    ours, theirs = Lab(), Lab()
    assert main(Lab(), "--tools", "modes", "bookworm") == 0
    assert main(ours, "--tools", "modes", "trixie") == 0
    assert main(theirs, "--tools", "peers", "trixie") == 0
    # what peers need is fetched for them alone
    assert ("--share" in ours.words, "--share" in theirs.words) == (False, True)
    assert list(theirs.asked["tools"]) == peers()
    text = (tmp_path / "tracing.md").read_text()
    assert text.index("## trixie") < text.index("## bookworm")
    assert text.count("| off-cpu | 1 | too few") == 2 and text.count(f"| {ONE_LINER} | 1 |") == 1
    # what is asked for begins anew
    assert main(Lab(), "--tools", "modes", "trixie") == 0
    text = (tmp_path / "tracing.md").read_text()
    assert text.count("| off-cpu | 1 |") == 2 and text.count(f"| {ONE_LINER} | 1 |") == 1


def test_instructions_are_a_part(main: Callable[..., int], tmp_path: Path) -> None:
    lab = Lab()
    assert main(lab, "--tools", "flame", "trixie") == 0
    assert not (tmp_path / "counted").exists()
    lab.asked = {}
    assert main(lab, "--tools", "instructions", "trixie") == 0
    assert (tmp_path / "counted").read_text() == "trixie" and lab.asked == {}
    assert main(lab) == 0
    assert (tmp_path / "counted").read_text() == "bookworm"
    assert list(lab.asked["tools"]) == list(TOOLS)


def test_nothing_is_left_to_measure(main: Callable[..., int]) -> None:
    words = ("--rounds", "8", "--resume", "--tools", "flame", "trixie")
    for _ in range(8):
        assert main(Lab(), *words) == 0
    lab = Lab()
    assert main(lab, *words) == 0 and lab.asked == {}


def test_a_name_that_no_tool_has_is_refused(main: Callable[..., int]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(Lab(), "--tools", "nothing like it")
