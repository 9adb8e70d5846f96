"""The table at the end of a session: under 100 columns, the last three lines always there."""

from __future__ import annotations

import re

import pytest
from support.sample_session import Json, session

from zfstune.term.table import WIDTH, Style
from zfstune.tune.text import table

COLOR = re.compile(r"\x1b\[[0-9;]*m")


def shown(found: Json, style: Style | None = None) -> list[str]:
    """The lines of the table, none of them too wide."""
    style = style or Style()
    lines = table(found, style)
    for line in lines:
        assert len(COLOR.sub("", line)) <= style.width
        assert "\n" not in line
    return lines


def test_a_successful_session_has_verdict_changes_and_undo() -> None:
    lines = shown(session())
    assert lines[0] == "Better: p99 of fsync is 75 % lower (67 % to 82 % lower)."
    assert lines[1] == "p99 of fsync: 361 ms before, 103 ms after."
    assert "what was changed" in lines
    text = "\n".join(lines)
    assert re.search(r"^  zfs_dirty_data_max +392 MiB +32 MiB$", text, re.MULTILINE)
    assert "      The pool writes 29 MiB/s" in text
    assert "  write.throughput>=-5%  kept, 0.3 % higher" in lines
    assert "lost 0" in lines
    assert "foreign changes: none" in lines
    assert lines[-3:] == [
        "changed zfs_dirty_data_max 392 MiB -> 32 MiB, zfs_vdev_async_write_max_active 10 -> 2",
        "undo    zfstune revert",
        "keep    zfstune keep",
    ]


def test_trials_are_in_order_with_source_and_change() -> None:
    found = session(trials=3)
    lines = shown(found)
    rows = [line for line in lines if re.match(r" +[0-9]+  ", line)]
    for row, one in zip(rows, found["trials"], strict=True):
        percent = f"{abs(100 * one['change']):.0f} %"
        assert row.split()[0] == str(one["number"])
        assert ("model of the write path" if one["source"] == "model" else "TPE") in row
        assert percent in row
    assert any("zfs_dirty_data_max 32 MiB" in line for line in lines)


def test_values_of_many_trials_are_left_to_the_report() -> None:
    lines = shown(session(trials=40))
    assert "  the values of each are in the report" in lines
    assert sum(bool(re.match(r" +[0-9]+  ", line)) for line in lines) == 40


def test_what_comes_next_is_said_with_and_without_a_gain() -> None:
    for found in (session(), session(trials=2, confirm=0)):
        assert not any(line.startswith("Next:") for line in shown(found))
        found["more"] = "--budget 20m has time for a candidate and its proof"
        assert "Next: --budget 20m has time for a candidate and its proof." in shown(found)


def test_nothing_changed_is_nothing_to_undo() -> None:
    found = session(trials=2, confirm=0)
    found.update(state="stopped", note="stopped by Ctrl-C")
    lines = shown(found)
    assert lines[0] == "No verdict: the session was stopped before a result was confirmed."
    assert "note: stopped by Ctrl-C" in lines
    assert lines[-3:] == [
        "changed nothing",
        "undo    not needed",
        "keep    nothing to keep",
    ]


def test_a_winner_that_was_put_back_is_nothing_to_undo() -> None:
    found = session(trials=1)
    found["in_force"] = False
    lines = shown(found)
    assert "All parameters have their previous values." in " ".join(lines)
    assert "what was compared" in lines and "what was changed" not in lines
    assert lines[-2] == "undo    not needed"


def test_losses_overrides_and_missed_limits_are_reported() -> None:
    found = session(trials=1)
    found["lost"] = 1234
    found["limits"][0].update(ok=False, change=-0.12)
    found["overrides"] = [
        {"name": "zfs_txg_timeout", "value": 9, "pid": 812, "comm": "puppet", "time": "09:20:01Z"}
    ]
    text = " ".join(shown(found))
    assert "lost 1,234" in text
    assert "MISSED, 12 % lower" in text
    assert "zfs_txg_timeout was set to 9 s by puppet (812) at 09:20:01Z; left as it is" in text


@pytest.mark.parametrize("width", [60, WIDTH])
def test_names_from_outside_do_not_reach_the_terminal(width: int) -> None:
    found = session(trials=2)
    evil = "\x1b[2J\r\nevil\ud800 " + "long words " * 30
    found["note"] = found["more"] = evil
    found["trials"][0]["note"] = found["trials"][1]["source"] = evil
    found["reasons"] = dict.fromkeys(found["winner"], evil)
    found["overrides"] = [
        {"name": evil, "value": evil, "pid": 1, "comm": evil, "time": evil}  # as no one writes it
    ]
    found["dropped"][0].update(names=[evil], why=evil)
    found["limits"][0]["text"] = evil
    found["undo"] = "zfstune\nrevert"
    for line in table(found, Style(clip=True, width=width)):
        assert line.isprintable()
        assert len(line) <= width


def test_there_are_colours_only_when_wanted() -> None:
    assert not any("\x1b" in line for line in shown(session(trials=1)))
    painted = shown(session(trials=1), Style(color=True))
    assert [COLOR.sub("", line) for line in painted] == shown(session(trials=1))
    assert painted[0].startswith("\x1b[1m")


@pytest.mark.parametrize("pairs", [0, 4])
def test_the_detectable_effect_is_shown_when_measured(pairs: int) -> None:
    noise = {"pairs": pairs, "effect": 0.28, "ratios": []}
    lines = shown(session() | {"verdict": None, "state": "failed", "noise": noise})
    assert ("28 % or more can be detected" in " ".join(lines)) == bool(pairs)


def test_an_empty_session_has_a_table() -> None:
    assert shown({})[-3].startswith("changed nothing")
