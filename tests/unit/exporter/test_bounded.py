"""Names as label values: few, and printable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from support.exported import Exported, buckets
from support.fake_host import FakeHost, FakeSession
from support.hostile import EVIL, raw
from support.samples import counts, from_values, ios, read_state, reads, vdev

from zfstrace.light import CommitCounts
from zfstrace.types import OTHERS, DatasetCounts
from zfstune.exporter.bounded import IDLE_S, MOST_POOLS, MOST_VDEVS, UNKNOWN, Names, label


@given(st.text(st.characters()))
def test_a_label_value_is_printable_text(text: str) -> None:
    shown = label(text)
    assert not raw(shown) and len(shown) <= 256
    shown.encode()


def test_who_comes_first_keeps_its_series() -> None:
    names = Names(2)
    found = [names.dataset(("tank", f"tank/{one}")) for one in "abcab"]
    assert found == [
        ("tank", "tank/a"),
        ("tank", "tank/b"),
        ("tank", OTHERS),
        ("tank", "tank/a"),
        ("tank", "tank/b"),
    ]


def test_a_dataset_that_counts_nothing_leaves_its_place() -> None:
    now, ended = [0.0], list[str]()
    names = Names(2, clock=lambda: now[0])
    names.ending.append(ended.append)

    def shown(one: str) -> str:
        return names.dataset(("tank", f"tank/{one}"))[1]

    assert [shown(one) for one in "abc"] == ["tank/a", "tank/b", OTHERS]
    now[0] += IDLE_S - 1
    assert [shown(one) for one in "ac"] == ["tank/a", OTHERS]
    now[0] += 1
    # nobody needed the place of b before
    assert [shown(one) for one in "cab"] == ["tank/c", "tank/a", OTHERS]
    assert ended == ["tank/b"]


def test_the_series_of_a_dataset_that_leaves_end_in_all_views() -> None:
    def fsyncs(db: int, home: int) -> list[DatasetCounts]:
        numbers = {68: db, 70: home}
        return [counts(objset=i, stages={"flush": [10] * n}) for i, n in numbers.items()]

    now, hist = [0.0], from_values([10])
    host = FakeHost()
    host.sessions = {
        "fsync": FakeSession([fsyncs(3, 5), fsyncs(3, 9), fsyncs(4, 9)]),
        "read": FakeSession([read_state(reads(write=[10]))]),
        "light": FakeSession([([CommitCounts("tank", 68, (0, 0), False, hist)], [], [])]),
    }
    it = Exported(host, "fsync", "read", "light", names=Names(1, clock=lambda: now[0]))

    def found() -> tuple[dict[tuple[str, ...], float], set[str]]:
        scrape = it.scrape()
        named = {dict(labels).get("dataset", "") for _, labels in scrape.samples} - {""}
        return scrape.of("zfstune_fsync_duration_seconds_count"), named

    assert found() == ({("tank/db", "tank"): 3, (OTHERS, "tank"): 5}, {"tank/db", OTHERS})
    now[0] += IDLE_S
    assert found() == ({("tank/home", "tank"): 4, (OTHERS, "tank"): 5}, {"tank/home", OTHERS})
    # it is busy again
    assert found()[0] == {("tank/home", "tank"): 4, (OTHERS, "tank"): 6}


def test_only_what_fits_a_pattern_has_series() -> None:
    names = Names(16, ["tank/db/*", "rpool/?"])
    shown = [
        names.dataset((one.split("/")[0], one))[1]
        for one in ("tank/db/a", "tank/db/a/b", "tank/db", "tank/x", "rpool/r", "rpool/rr")
    ]
    assert shown == ["tank/db/a", "tank/db/a/b", OTHERS, OTHERS, "rpool/r", OTHERS]


def test_names_that_the_kernel_made_up_take_no_place() -> None:
    names = Names(1)
    for text in ("<objset 0x44>", "<device 0:50>", "<unknown>"):
        assert names.dataset(("tank", text)) == ("tank", UNKNOWN)
    assert names.dataset((None, OTHERS)) == (UNKNOWN, OTHERS)
    assert names.dataset(("tank", OTHERS)) == ("tank", OTHERS)
    assert names.dataset(("tank", "tank/db")) == ("tank", "tank/db")


def test_a_vdev_without_a_name_takes_no_place() -> None:
    names = Names()
    assert names.vdev("tank", UNKNOWN) == ("tank", UNKNOWN)
    assert names.vdev("", UNKNOWN) == (OTHERS, OTHERS)
    disks = [("tank", f"sd{i}") for i in range(MOST_VDEVS)]
    assert [names.vdev(*disk) for disk in disks] == disks


def test_pools_and_vdevs_are_bounded() -> None:
    names = Names(64)
    pools = {names.dataset((f"p{i}", f"p{i}/a"))[0] for i in range(1000)}
    assert len(pools) == MOST_POOLS + 1 and OTHERS in pools
    assert names.dataset(("p999", "p999/a")) == (OTHERS, OTHERS)
    vdevs = {names.vdev("p1", f"sd{i}") for i in range(1000)}
    assert len(vdevs) == MOST_VDEVS + 1 and ("p1", OTHERS) in vdevs
    # a disk of the same name in another pool is another one
    assert names.vdev("p2", "sd1") == ("p2", OTHERS)


def test_a_host_of_hostile_names_has_few_series_and_valid_text() -> None:
    host = FakeHost()
    host.names = {("tank", i): f"tank/{EVIL}{i}" for i in range(500)}
    host.names[("tank", 7)] = 'tank/a\\"b'
    host.vdevs = {i: f"{EVIL}{i}" for i in range(500)}
    host.imported = [f"pool{i}\udcff" for i in range(100)]
    host.sessions = {
        "fsync": FakeSession([[counts(objset=i, stages={"flush": [10]}) for i in range(500)]]),
        "device": FakeSession([[vdev(i, flush=ios([1000])) for i in range(500)]]),
    }
    host.state = EVIL
    scrape = Exported(host, "fsync", "device", names=Names(8)).scrape()
    assert not [text for text in scrape.values() if raw(text)]
    assert 'tank/a\\"b' in scrape.values()
    assert len(scrape.of("zfstune_fsync_duration_seconds_count")) == 9
    others = buckets(scrape, "zfstune_fsync_duration_seconds", pool="tank", dataset=OTHERS)
    assert others[-1] == 500 - 8
    assert len(scrape.of("zfstune_device_io_duration_seconds_count")) == MOST_VDEVS + 1
    assert len(scrape.samples) < 2000
