"""No name leaves, and the same name is the same word everywhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support import incidents

from zfstrace.types import Json
from zfstune.incident import fields, writer
from zfstune.incident.anonymise import Anonymiser
from zfstune.incident.reader import Reader, taken

NAMES = ("tank", "tank/db", "db", "postgres", "sda", "sdb", "sdc", "idle", "db1.example.net")
KEY = b"k" * 32


def anonymised(records: list[Json], **given: Any) -> list[Json]:
    made = Anonymiser(KEY, **given)
    made.header(taken_header())
    found = [made.record(one) for one in records]
    return [one for one in found if one is not None]


def taken_header() -> Json:
    return fields.HEADER.taken(incidents.HEADER)


def words(value: Any) -> set[str]:
    """The words of all texts in it."""
    text = json.dumps(value)
    return set(text.replace("/", " ").replace('"', " ").replace("`", " ").split())


def test_no_name_is_left() -> None:
    made = Anonymiser(KEY)
    found = [made.header(taken_header())]
    found += [one for record in incidents.one_of_each() if (one := made.record(record))]
    assert len(found) == 1 + len(fields.RECORDS)
    assert words(found).isdisjoint(NAMES)
    text = json.dumps(found)
    for name in ("postgres", "db1.example", "tank/", "on sda"):
        assert name not in text


def test_the_same_name_is_the_same_word_everywhere() -> None:
    made = Anonymiser(KEY)
    header = made.header(taken_header())
    found = {one["type"]: made.record(one) for one in incidents.one_of_each()}
    pool = next(iter(header["pools"]))
    assert pool.startswith("pool-")
    assert len({one["pool"] for one in found.values() if one and one.get("pool")} | {pool}) == 1
    slow, diagnosis = found["slow_fsync"], found["diagnosis"]
    assert slow and diagnosis and found["throttle"] and found["device"]
    assert slow["dataset"].startswith(f"{pool}/dataset-")
    assert slow["comm"] == found["throttle"]["comm"]
    assert slow["dataset"] == diagnosis["measurements"]["dataset"]
    disk = found["device"]["vdev"]
    layout = " ".join(header["pools"][pool]["layout"])
    assert disk in layout
    assert f"{pool} ONLINE" in layout
    assert "mirror-0" in layout
    evidence = json.dumps(diagnosis["causes"])
    assert f"on {disk} p50" in evidence
    assert f"zpool add {pool} log" in evidence


def test_a_name_that_was_learned_is_found_in_earlier_texts() -> None:
    made = Anonymiser(KEY)
    header = taken_header() | {"reason": "trigger: 300 ms on gone", "pools": None}
    slow = taken(incidents.slow_fsync(3).to_json() | {"pool": "gone", "dataset": "gone/db"})
    made.learn(header)
    made.learn(slow)
    found, row = made.header(header), made.record(slow)
    assert row and found["reason"] == f"trigger: 300 ms on {row['pool']}"


def test_another_key_makes_other_words() -> None:
    slow = incidents.slow_fsync(3).to_json()
    one, other = (Anonymiser().record(slow) for _ in range(2))
    assert one and other
    assert one["dataset"] != other["dataset"]
    assert one["comm"] != other["comm"]


def test_what_has_no_name_keeps_its_word() -> None:
    slow = incidents.slow_fsync(3).to_json()
    for name in ("<others>", "<unknown>", "<objset 0x36>", "<device 0:52>"):
        (found,) = anonymised([slow | {"dataset": name}])
        assert found["dataset"] == name
    (found,) = anonymised([slow | {"dataset": "<objset 0x36>/secret"}])
    assert "secret" not in found["dataset"]


def test_numbers_that_identify_are_replaced_too() -> None:
    device = next(one for one in incidents.one_of_each() if one["type"] == "device")
    first, second = anonymised([device, device])
    assert first["guid"] == second["guid"] != device["guid"]
    made = Anonymiser(KEY).header(
        fields.HEADER.taken({**incidents.HEADER, "parameters": {"spl_hostid": 7, "zfs_x": 1}})
    )
    assert made["parameters"] == {"zfs_x": 1}
    assert made["anonymised"] is True


def test_the_number_of_a_missing_disk_is_a_name() -> None:
    """`zpool status` has its guid where it stood; counts of errors stay."""
    line = "4520394958732019823  UNAVAIL  3  1.2K  0  was /dev/sdq1"
    pools = {"tank": {"state": "DEGRADED", "layout": [line]}}
    header = fields.HEADER.taken({**incidents.HEADER, "pools": pools})
    (found,) = Anonymiser(KEY).header(header)["pools"].values()
    words = found["layout"][0].split()
    assert words[1:5] == ["UNAVAIL", "3", "1.2K", "0"]
    assert words[0].startswith("vdev-") and "sdq1" not in words[6]


def test_a_name_that_is_a_word_betrays_nothing_with_texts_made_again() -> None:
    """A pool with the name of a word of the texts."""
    found = incidents.diagnosis(3, 180_000_000, "flush")
    (replaced,) = anonymised([found])
    # known names are replaced wherever they are
    assert "flush" not in json.dumps(replaced["causes"]).split()

    def judged(measurements: Json) -> Json:
        from zfstune.diagnose.judge import judge

        return judge(measurements).to_json()

    (again,) = anonymised([found], judged=judged)
    assert "stage flush has" in json.dumps(again["causes"])
    assert "pool-" in json.dumps(again["causes"])


def test_what_the_reader_would_refuse_is_dropped() -> None:
    assert Anonymiser(KEY).record({"type": "future", "name": "tank"}) is None
    (found,) = anonymised([{"type": "note", "time": incidents.BEGIN, "text": "tank", "x": "tank"}])
    assert "tank" not in json.dumps(found)


@pytest.mark.parametrize("record", incidents.one_of_each(), ids=lambda record: record["type"])
def test_it_stays_a_record(record: Json) -> None:
    (found,) = anonymised([record])
    assert taken(found) == found


def test_a_whole_file_can_be_anonymised(tmp_path: Path) -> None:
    made = Anonymiser()
    with Reader(str(incidents.write(tmp_path / "x"))) as reader:
        records = (one for record in reader.records() if (one := made.record(record)))
        writer.write(tmp_path / "y", made.header(reader.header), records)
    with Reader(str(tmp_path / "y")) as again:
        assert len(list(again.records())) == reader.count
        assert again.problems() == []
        assert again.header["anonymised"]


def test_every_text_that_names_something_says_so() -> None:
    """A new field with such a name needs its kind."""
    seen: list[str] = []

    def rename(of: str, value: Any) -> Any:
        seen.append(of)
        return value

    for name, kind in {**fields.RECORDS, "header": fields.HEADER}.items():
        for field, one in kind.fields.items():
            if field in ("pool", "dataset", "comm", "vdev", "guid", "summary", "text"):
                seen.clear()
                one.renamed(7 if field == "guid" else "x", rename)
                assert seen, f"{name}.{field}"
