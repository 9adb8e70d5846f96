"""The sessions of `make bench-search-lab` survive its end, and each load makes a page of its own:
with made-up ones, and a stand-in for the lab."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks import search_lab
from benchmarks.search_guest import RESULT, SCENES

MADE_UP: dict[str, Any] = {
    "ended": "2026-11-27T22:17:47.362Z",
    "in_force": True,
    "verdict": {"change": -0.58},
    "winner": {"zfs_txg_timeout": 2},
    "blocks": [
        {"phase": "confirm", "start_s": 60.0, "seconds": 8.0},
        {"phase": "confirm", "start_s": 172.0, "seconds": 8.0},
        {"phase": "soak", "start_s": 300.0, "seconds": 8.0},
    ],
}


class Lab:
    """The sessions that were asked for, in runs of at most so many: then the guest dies."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.asked: list[tuple[str, str, str]] = []
        self.memory: list[str] = []

    def __call__(self, *words: str, line: Callable[[str], None]) -> int:
        self.memory.append(words[words.index("--memory") + 1])
        _python, _program, scene, budget, block, *rest = words[words.index("--") + 1 :]
        every = list(zip(rest[::2], rest[1::2], strict=True))
        line("search: something else\n")
        for way, seed in every[: self.most]:
            self.asked.append((scene, way, seed))
            run = {"scene": scene, "way": way, "seed": int(seed), "budget": budget, "block": block}
            line(RESULT + json.dumps(run | {"session": MADE_UP}) + "\n")
        return 0 if len(every) <= self.most else 125


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """The command with these words, whose lab is the first argument."""
    monkeypatch.setattr(search_lab, "DATA", tmp_path / "data")
    monkeypatch.setattr(search_lab, "PAGES", tmp_path)
    monkeypatch.setattr(search_lab, "OPTUNA", tmp_path)

    def call(lab: Lab, *words: str) -> int:
        monkeypatch.setattr(search_lab, "run_lab", lab)
        monkeypatch.setattr("sys.argv", ["search_lab.py", *words])
        return search_lab.main()

    return call


def stored(tmp_path: Path, scene: str) -> list[tuple[str, int]]:
    runs = json.loads((tmp_path / "data" / scene / "searches.json").read_text())
    return [(run["way"], run["seed"]) for run in runs]


def test_what_has_ended_is_kept_and_not_done_again(
    main: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--seeds", "1", "--scene", "paced")
    assert main(Lab(1), *words) == 125
    assert stored(tmp_path, "paced") == [("model + TPE", 1)]
    assert "paced: 2 sessions are missing; go on with --resume" in capsys.readouterr().err
    rest = Lab(9)
    assert main(rest, *words, "--resume") == 0
    assert [way for _, way, _ in rest.asked] == ["TPE alone", "random"]
    nothing = Lab(9)
    assert main(nothing, *words, "--resume") == 0
    assert nothing.asked == []


@pytest.mark.parametrize("other", [("--budget", "3m"), ("--block", "3s")])
def test_sessions_of_another_length_are_not_taken_for_these(
    main: Callable[..., int], other: tuple[str, str]
) -> None:
    words = ("--seeds", "1", "--scene", "full", "--resume")
    assert main(Lab(9), *words, *other) == 0
    lab = Lab(9)
    assert main(lab, *words) == 0
    assert len(lab.asked) == 3


def test_it_begins_anew_without_being_asked_to_go_on(main: Callable[..., int]) -> None:
    for _ in range(2):
        lab = Lab(9)
        assert main(lab, "--seeds", "2", "--scene", "full") == 0
        assert len(lab.asked) == 6


def test_each_load_has_a_guest_and_a_page_of_its_own(
    main: Callable[..., int], tmp_path: Path
) -> None:
    assert main(Lab(9), "--seeds", "1", "--scene", "full") == 0
    assert [page.name for page in tmp_path.glob("*.md")] == ["search-lab-full.md"]
    lab = Lab(9)
    assert main(lab, "--seeds", "2", "--resume") == 0
    assert lab.memory == [scene.memory for scene in SCENES.values()]
    assert ("full", "random", "1") not in lab.asked
    full, paced = ((tmp_path / f"search-lab-{scene}.md").read_text() for scene in ("full", "paced"))
    assert "| model + local | 2 of 2 | -58%, -58% | 3.0 |" in full
    assert "| model + TPE | 2 of 2 | -58%, -58% | 3.0 |" in paced
    assert "| model + TPE |" not in full
    assert "\non 2026-11-27: " in full
    assert "| random | 2 | zfs_txg_timeout 2 |" in paced
    assert "Without TPE" not in paced


def test_no_page_is_written_of_a_part(main: Callable[..., int], tmp_path: Path) -> None:
    assert main(Lab(2), "--seeds", "1") == 125
    assert not list(tmp_path.glob("*.md"))


def test_without_optuna_tpe_is_left_out_and_the_page_says_so(
    main: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_lab, "OPTUNA", tmp_path / "nothing")
    lab = Lab(9)
    assert main(lab, "--seeds", "1") == 0
    assert {way for _, way, _ in lab.asked} == {"model + local", "random"}
    text = (tmp_path / "search-lab-full.md").read_text()
    assert "Without TPE: there was no optuna in the guest." in text
    assert "| TPE alone |" not in text


def test_a_row_of_sessions_without_a_gain() -> None:
    none = MADE_UP | {"in_force": False, "verdict": None}
    row = search_lab.row("random", [None, none, MADE_UP])
    assert row == "| random | 1 of 3 | -, -, -58% | 3.0 |\n"
    assert search_lab.row("random", [None]) == "| random | 0 of 1 | - | - |\n"
    shown = MADE_UP | {"in_force": False}
    assert search_lab.row("random", [shown]) == "| random | 0 of 1 | (-58%) | - |\n"


def test_the_page_says_why_nothing_is_in_force() -> None:
    none = MADE_UP | {"in_force": False, "note": "the limit may be missed"}
    runs = [{"way": "random", "seed": k, "session": one} for k, one in ((1, MADE_UP), (2, none))]
    assert search_lab.reasons(runs).endswith("|\n| random | 2 | the limit may be missed |\n")
    assert "| random | 1 |" not in search_lab.reasons(runs)
    assert search_lab.reasons(runs[:1]) == ""


def test_seeds_beyond_those_asked_for_are_not_on_the_page() -> None:
    args = argparse.Namespace(seeds=1, budget="10m", block="8s")
    run = {"scene": "full", "way": "random", "budget": "10m", "block": "8s"}
    assert search_lab.asked(run | {"seed": 1}, args)
    assert not search_lab.asked(run | {"seed": 2}, args)
