"""The page of `make test-databases`: pairs, ranges, and that each scene has its part."""

from __future__ import annotations

from typing import Any

from pages import databases

Json = dict[str, Any]


def block(setting: str, tps: float, p99: float | None = 2e6, **more: float) -> Json:
    fsync = {"count": 50, "p50": p99 and p99 / 2, "p99": p99, "lost": 0}
    size = {"transactions": 100, "disk_bytes": 2048.0}
    return {"setting": setting, "tps": tps, "fsync": fsync, **size, **more}


def test_pairs_are_within_one_pass_over_the_settings() -> None:
    blocks = [block("on", 100), block("off", 110), block("off", 60), block("on", 50)]
    assert databases.pairs(blocks, lambda one: one["tps"]) == {"on": [1, 1], "off": [1.1, 1.2]}


def test_a_change_has_its_range() -> None:
    assert databases.change([1.1, 1.1]) == "+10 % (+10 to +10)"
    assert databases.change([0.5, 2]) == "+0 % (-50 to +100)"
    assert databases.change([4, 9]) == "x 6.0 (4.0 to 9.0)"
    assert databases.change([]) == ""


def test_a_table_has_a_line_for_each_setting_and_no_number_that_is_unknown() -> None:
    blocks = [block("on", 100, wal_bytes=1024), block("off", 110, None, wal_bytes=512)]
    lines = databases.table(blocks)
    assert lines[2] == "| on | 1 | 100 |  | 0.50 | 1.0 ms | 2.0 ms |  | 1.0 KiB | 2.0 KiB |"
    assert lines[3] == "| off | 1 | 110 | +10 % (+10 to +10) | 0.50 |  |  |  | 0.5 KiB | 2.0 KiB |"
    assert len({line.count("|") for line in lines}) == 1


def result() -> Json:
    counted = {"count": 5, "kinds": {"fdatasync": 5}, "lost": 0}
    row = {"name": "sync=disabled", "recovered": True, "confirmed": 9, "lost": 2, "lost_s": 1.25}
    gone = {"name": "sync=disabled", "recovered": False, "error": "no"}
    return {
        "packages": {"sysbench": "1"},
        "date": "2026-11-25",
        "uname": "6.12",
        "zfs": "2.3.9",
        "counts": {
            "load": {"transactions": 7},
            "wal_sync_with_checkpoint": 5,
            "file_fsyncs": 3,
            "wal": counted,
            "data": counted,
        },
        "knobs": {"logbias": [block("latency", 10), block("throughput", 9)]},
        "crash": [[{**row, "bad_pages": 0}], [gone]],
    }


def test_a_page_has_the_scenes_that_ran() -> None:
    text = databases.page([result()], "a machine")
    assert "| WAL: wal_sync of pg_stat_wal, fdatasync | 5 | 5 | 0 |" in text
    assert "### logbias" in text
    assert "### full_page_writes" not in text
    assert "| sync=disabled | 9 | 2 | 1.2 s | 1 of 2 | 0 |" in text
    assert "MariaDB" not in text.partition("## ")[2]
    prose = [line for line in text.splitlines() if line[:1] not in ("|", " ", "#", "*")]
    assert max(map(len, prose)) <= 100


def test_a_scene_of_a_later_result_counts() -> None:
    later = {**result(), "knobs": {"sync": [block("standard", 10), block("disabled", 50)]}}
    text = databases.page([result(), later], "a machine")
    assert "### sync of the WAL" in text
    assert "### logbias" not in text
    assert "2 emulated guests" in text
