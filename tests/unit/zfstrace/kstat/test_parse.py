"""Readers of kstats and mountinfo, with samples and with any text."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.paths import DATA
from support.samples import TXGS

from zfs_linux import kstat, mounts
from zfstrace.kstat.parse import parse_history
from zfstrace.kstat.txgs import parse_txgs, txg_state

OBJSET = """\
32 1 0x01 20 2720 8723476412 91872364871236
name                            type data
dataset_name                    7    tank/my data 4 x
writes                          4    17
nwritten                        4    1048576
zil_commit_count                4    12
"""

ASSIGN = """\
27 1 0x01 42 11424 19823649182 1928364918236
name                            type data
1 ns                            4    0
2 ns                            4    3
1024 ns                         4    15
"""

MOUNTS = r"""23 1 0:21 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 23 0:50 / /tank/my\040data rw,noatime shared:20 master:1 - zfs tank/my\040data rw,xattr,posixacl
41 23 0:51 / /tank/b rw,noatime - zfs tank/b\134c rw,xattr
42 23 0:52 / /snap rw - zfs tank/b@s ro
43 23 broken line - zfs
"""


def test_a_named_kstat_is_read() -> None:
    assert kstat.parse_named(OBJSET) == {
        "dataset_name": "tank/my data 4 x",
        "writes": 17,
        "nwritten": 1048576,
        "zil_commit_count": 12,
    }
    assert kstat.dataset_name(OBJSET) == "tank/my data 4 x"


def test_names_with_blanks_and_negative_values_are_read() -> None:
    assert kstat.parse_named(ASSIGN)["1024 ns"] == 15
    text = "1 2 3\nname type data\nmemory_available_bytes          3    -4096\n"
    assert kstat.parse_named(text) == {"memory_available_bytes": -4096}


@pytest.mark.parametrize("cut", range(0, len(OBJSET), 7))
def test_a_torn_file_loses_lines_only(cut: int) -> None:
    whole = kstat.parse_named(OBJSET)
    for name in kstat.parse_named(OBJSET[:cut]):
        assert name in whole


def test_one_count_is_read_by_its_name() -> None:
    assert kstat.count(OBJSET, "nwritten") == 1048576
    assert kstat.count(OBJSET, "written") is None
    # a string that looks like a line would have to begin one
    assert kstat.count("dataset_name   7    nwritten  4    12\n", "nwritten") is None


def test_rows_of_a_history_are_read() -> None:
    rows = parse_history(TXGS)
    assert [row["state"] for row in rows] == ["C", "S", "O"]
    assert rows[0]["stime"] == 300


@given(st.text())
def test_any_text_is_read(text: str) -> None:
    kstat.parse_named(text)
    kstat.dataset_name(text)
    txg_state(parse_txgs(text), 0, 10)
    mounts.parse_mountinfo(text)


@given(st.lists(st.sampled_from([*OBJSET, *TXGS, *MOUNTS]), max_size=300).map("".join))
def test_damaged_text_is_read(text: str) -> None:
    header = "name type data\n"
    for value in kstat.parse_named(header + text).values():
        assert isinstance(value, (int, str))
    txg_state(parse_txgs(TXGS[:40] + text), 0, 2000)
    mounts.parse_mountinfo(text)


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_]{0,30}", fullmatch=True), st.integers(-(2**63), 2**64 - 1)
    )
)
def test_what_is_written_is_read(values: dict[str, int]) -> None:
    lines = [f"{name:<31} 4    {value}" for name, value in values.items()]
    text = "\n".join(["1 1 0x01 2 3 4 5", "name                            type data", *lines])
    assert kstat.parse_named(text) == values


def test_devices_of_zfs_mounts_are_read() -> None:
    assert mounts.parse_mountinfo(MOUNTS) == {
        (0, 50): "tank/my data",
        (0, 51): "tank/b\\c",
        (0, 52): "tank/b@s",
    }


def recorded(pattern: str) -> list[Path]:
    return sorted(path for path in DATA.rglob(pattern) if path.is_file())


@pytest.mark.parametrize("path", recorded("objset-0x*"), ids=str)
def test_a_recorded_objset_is_read_completely(path: Path) -> None:
    values = kstat.parse_named(kstat.read(path))
    assert isinstance(values["dataset_name"], str)
    assert isinstance(values["nwritten"], int)
    for name, value in values.items():
        assert kstat.count(kstat.read(path), name) == (value if isinstance(value, int) else None)


@pytest.mark.parametrize("path", recorded("zil") + recorded("arcstats"), ids=str)
def test_recorded_kstats_are_read_completely(path: Path) -> None:
    text = kstat.read(path)
    values = kstat.parse_named(text)
    # two lines are no values, the rest all are
    assert len(values) == len(text.splitlines()) - 2
    assert all(isinstance(value, int) for value in values.values())


@pytest.mark.parametrize("path", recorded("txgs"), ids=str)
def test_recorded_txgs_are_read_completely(path: Path) -> None:
    text = kstat.read(path)
    assert len(parse_history(text)) == len(parse_txgs(text)) >= len(text.splitlines()) - 2


@pytest.mark.parametrize("path", recorded("mountinfo"), ids=str)
def test_a_recorded_mountinfo_has_mounts(path: Path) -> None:
    assert mounts.parse_mountinfo(kstat.read(path))
