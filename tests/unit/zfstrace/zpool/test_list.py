"""Names of vdevs, from what zpool(8) of each flavour prints and from anything at all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import DATA

from zfstrace.zpool import list as vdevs

FLAVOURS = ("bookworm", "trixie", "trixie-backports")


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_recorded_lists_give_names_and_counts(flavour: str) -> None:
    named = (DATA / flavour / "zpool_list").read_text(encoding="utf-8")
    numbered = (DATA / flavour / "zpool_list_guids").read_text(encoding="utf-8")
    names = vdevs.parse_names(named, numbered)
    assert list(names.values()) == ["mirror-0", "vdc", "vdd", "vde", "vdf"]
    assert vdevs.count_data(named) == 1
    assert vdevs.count_logs(named) == 1
    # the guids stand in the second text only
    assert all(f"\t{guid}\t" in numbered for guid in names)


def test_data_vdevs_are_counted() -> None:
    text = "tank\t2G\t1G\t1G\n\tvdb\t1G\t500M\t1G\n\tvdc\t1G\t0\t1G\nspecial   -\n\tvdd\t1G\t1M\n"
    assert vdevs.count_data(text) == 2
    assert vdevs.count_data("") == 0
    assert vdevs.count_logs(text) == vdevs.count_logs("") == 0


def test_a_name_with_a_blank_is_read() -> None:
    assert vdevs.parse_names("\t/a b/disk\t1G\n", "\t42\t1G\n") == {42: "/a b/disk"}


def test_a_disk_replaced_between_the_calls() -> None:
    assert vdevs.parse_names("\tvdb\t1G\n\tvdc\t1G\n", "\t42\t1G\n") == {}


LINES = st.lists(st.text(alphabet="\tab12 -", max_size=20), max_size=6).map("\n".join)


@given(LINES, LINES)
def test_any_text_gives_names(named: str, numbered: str) -> None:
    for guid, name in vdevs.parse_names(named, numbered).items():
        assert str(guid).lstrip("0") or guid == 0
        assert f"\t{name}" in named


def test_without_zpool_there_are_no_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert vdevs.names("tank") == {}


def test_without_an_answer_it_is_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def hangs(argv: list[str], _limit_s: float) -> str:
        asked.append(argv)
        return ""

    monkeypatch.setattr("zfstrace.processes.output", hangs)
    assert vdevs.names("tank") == {}
    assert asked == [["zpool", "list", "-v", "-H", "--", "tank"]]


def test_when_one_pool_takes_long_the_others_are_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]

    def ask(pool: str) -> str:
        now[0] += 5 if pool == "b" else 0
        return pool.upper()

    monkeypatch.setattr(vdevs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert vdevs.of_each("abcd", ask) == {"a": "A", "b": "B"}
    assert vdevs.of_each("acd", ask) == {"a": "A", "c": "C", "d": "D"}
