"""The catalogue of parameters."""

from __future__ import annotations

import pytest
from data.record_functions import functions
from support.paths import DATA

from zfstune.rules import language
from zfstune.tunables import catalogue, guard, planner
from zfstune.tunables.catalogue import Parameter

FACTS = {"memory", "arc_c_min", "arc_c_max", "arc_sys_free", "largest_block"}
ALL = list(catalogue.load().values())


@pytest.mark.parametrize("parameter", ALL, ids=lambda p: p.name)
def test_every_entry_is_complete(parameter: Parameter) -> None:
    assert parameter.unit in catalogue.UNITS
    assert parameter.access in ("rw", "load", "never")
    assert parameter.what.endswith(".")
    assert parameter.linux or parameter.freebsd
    texts = (parameter.latency, parameter.throughput, parameter.memory, parameter.hazard)
    assert all(not text or text.endswith(".") for text in texts)
    if parameter.access == "rw":
        assert parameter.low is not None and parameter.high is not None and parameter.defaults
        assert parameter.settle_txgs or parameter.settles
    if parameter.access == "never":
        assert parameter.hazard
    assert not (parameter.tunes and parameter.access != "rw")


@pytest.mark.parametrize("parameter", ALL, ids=lambda p: p.name)
def test_expressions_refer_to_facts_and_parameters(parameter: Parameter) -> None:
    texts = [text for _, text in parameter.defaults]
    given = (parameter.low, parameter.high, parameter.step, parameter.zero)
    texts += [text for text in given if text]
    for text in texts:
        names = set(language.names(text))
        assert names <= FACTS | set(catalogue.load())
        language.evaluate(text, dict.fromkeys(names, 1))


def test_names_of_freebsd_are_all_different() -> None:
    names = [parameter.freebsd for parameter in ALL if parameter.freebsd]
    assert len(names) == len(set(names))
    assert catalogue.canonical("vfs.zfs.txg.timeout") == "zfs_txg_timeout"
    assert catalogue.canonical("zfs_txg_timeout") == "zfs_txg_timeout"


def test_the_default_set_is_ordered_by_effect() -> None:
    assert catalogue.default_set() == (
        "zfs_dirty_data_max",
        "zfs_vdev_async_write_max_active",
        "zfs_vdev_async_write_min_active",
        "zfs_dirty_data_sync_percent",
        "zfs_delay_min_dirty_percent",
        "zfs_vdev_async_write_active_min_dirty_percent",
        "zfs_vdev_async_write_active_max_dirty_percent",
        "zfs_delay_scale",
        "zfs_txg_timeout",
        "zfs_commit_timeout_pct",
        "zil_slog_bulk",
    )


@pytest.mark.parametrize("parameter", [p for p in ALL if p.search], ids=lambda p: p.name)
def test_searched_parameters_can_be_written(parameter: Parameter) -> None:
    assert parameter.access == "rw" and parameter.search and not parameter.follows
    for text in (parameter.search.low, parameter.search.high):
        names = set(language.names(text or "0"))
        assert names <= FACTS | {parameter.name}
    orders = [one.search.order for one in ALL if one.search]
    assert orders.count(parameter.search.order) == 1


@pytest.mark.parametrize("parameter", [p for p in ALL if p.follows], ids=lambda p: p.name)
def test_a_coupled_parameter_is_set_with_its_partner(parameter: Parameter) -> None:
    assert parameter.tunes and not parameter.search
    assert parameter.follows in catalogue.default_set()


@pytest.mark.parametrize(
    ("name", "below", "value", "least"),
    [
        ("zfs_arc_max", "zfs_dirty_data_max", 3, 12),
        ("zfs_wrlog_data_max", "zfs_dirty_data_max", 3, 6),
        (
            "zfs_vdev_async_write_active_max_dirty_percent",
            "zfs_vdev_async_write_active_min_dirty_percent",
            30,
            35,
        ),
        ("zfs_vdev_async_write_active_min_dirty_percent", "zfs_dirty_data_sync_percent", 20, 21),
        ("zfs_vdev_max_active", "zfs_vdev_scrub_min_active", 3, 0),
    ],
)
def test_the_least_value_follows_from_a_rule(name: str, below: str, value: int, least: int) -> None:
    assert catalogue.least(name, below, value) == least


def test_what_can_lose_data_is_never_written() -> None:
    for name in (
        "zfs_nocacheflush",
        "zil_nocacheflush",
        "zil_replay_disable",
        "zfs_recover",
        "zfs_flags",
    ):
        assert catalogue.load()[name].access == "never"


def test_every_rule_is_of_known_parameters_and_grows_with_each() -> None:
    rules = catalogue.rules()
    assert len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        assert set(rule.names) <= set(catalogue.load())
        left, right, _ = language.sides(rule.text)
        for side, names in ((left, rule.below), (right, rule.above)):
            base = dict.fromkeys(names, 10)
            value = language.evaluate(side, base)
            assert all(language.evaluate(side, {**base, n: 11}) > value for n in names)


def test_rules_do_not_go_in_circles() -> None:
    """Otherwise there need not be a safe order."""
    above = {n: {m for r in catalogue.rules() if n in r.below for m in r.above} for n in _ruled()}
    for name in above:
        seen: set[str] = set()
        todo = set(above[name])
        while todo:
            one = todo.pop()
            assert one != name
            seen.add(one)
            todo |= above[one] - seen


def _ruled() -> set[str]:
    return {name for rule in catalogue.rules() for name in rule.names}


def test_a_rule_without_values_has_nothing_to_say() -> None:
    rule = catalogue.rules()[0]
    assert rule.holds({})


@pytest.mark.parametrize(
    ("name", "version", "default"),
    [
        ("zfs_commit_timeout_pct", "2.1.11-1+deb12u1", "5"),
        ("zfs_commit_timeout_pct", "2.2.3", "5"),
        ("zfs_commit_timeout_pct", "2.2.4", "10"),
        ("zfs_commit_timeout_pct", "", "10"),
        ("zil_slog_bulk", "2.2.0", "768K"),
        ("zil_slog_bulk", "2.3.9-0+deb13u1", "64M"),
        ("zfs_txg_timeout", "2.0.3", "5"),
    ],
)
def test_defaults_depend_on_the_version(name: str, version: str, default: str) -> None:
    assert catalogue.load()[name].default_in(version) == default


def test_computed_defaults_follow_the_memory() -> None:
    gib = 1 << 30
    known = {"memory": 16 * gib}
    dirty = 16 * gib // 10
    assert catalogue.default_value("zfs_dirty_data_max", "2.3.9", known) == dirty
    assert catalogue.default_value("zfs_wrlog_data_max", "2.3.9", known) == 2 * dirty
    large = {"memory": 512 * gib}
    assert catalogue.default_value("zfs_dirty_data_max", "2.3.9", large) == 4 * gib
    capped = {**known, "zfs_dirty_data_max_max": gib}
    assert catalogue.default_value("zfs_dirty_data_max", "2.3.9", capped) == gib
    assert catalogue.default_value("zfs_dirty_data_max", "2.3.9", {}) is None


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("dirty_data_max", "zfs_dirty_data_max"),
        ("zfs_dirty_data_mx", "zfs_dirty_data_max"),
        ("slog_bulk", "zil_slog_bulk"),
        ("vfs.zfs.arc.max", "zfs_arc_max"),
        ("ZFS_TXG_TIMEOUT", "zfs_txg_timeout"),
        ("async_write_max_active", "zfs_vdev_async_write_max_active"),
    ],
)
def test_a_misspelt_name_has_a_nearest_one(name: str, first: str) -> None:
    assert catalogue.near(name, catalogue.load())[0] == first


def test_nonsense_has_no_nearest_name() -> None:
    assert catalogue.near("xyzzy", catalogue.load()) == []


# Of the versions in catalogue.READ (record_parameters.py).
RECORDED = [
    line.split()
    for line in (DATA / "zfs_parameters.txt").read_text().splitlines()
    if not line.startswith("#")
]


@pytest.mark.parametrize("parameter", ALL, ids=lambda p: p.name)
def test_names_and_access_are_those_of_the_sources(parameter: Parameter) -> None:
    ((_name, sysctl, linux, freebsd),) = [
        row
        for row in RECORDED
        if (row[0] == parameter.name if row[0] != "-" else row[1] == parameter.freebsd)
    ]
    assert parameter.freebsd == (sysctl if freebsd != "----" else None)
    assert parameter.linux == (linux != "----")
    if parameter.access != "never":
        # where it could only be set at load time for some versions, the host knows (writable())
        assert ("w" in linux + freebsd) == (parameter.access == "rw")
    there = [letter != "-" for letter in (linux if parameter.linux else freebsd)]
    assert [version in parameter.read_in for version in catalogue.READ] == there


# --- what the sources of OpenZFS say

GIB = 1 << 30
HOST = guard.Facts(64 * GIB, 2 * GIB, 62 * GIB, arc_sys_free=2 * GIB)


def _defaults() -> dict[str, int]:
    return guard.at_load({}, "2.3.9", HOST)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        # a record of a long symbolic link or of an extended attribute does not fit the block
        ("zil_maxblocksize", 4 << 10),
        ("zil_maxblocksize", 32 << 10),
        # lowers arc_no_grow_shift, which nothing raises again
        ("zfs_arc_shrink_shift", 5),
        ("zfs_arc_shrink_shift", 3),
        # frees of regular blocks would be put off in the pass that syncs such frees
        ("zfs_sync_pass_deferred_free", 1),
        # a sync that starts over in each pass, and one that ends after many
        ("zfs_sync_pass_deferred_free", 100),
        ("zfs_sync_pass_dont_compress", 100),
        ("zfs_sync_pass_rewrite", 100),
        # a block with three copies never gets its slots: the sync hangs
        ("zfs_vdev_def_queue_depth", 2),
        # the share of metadata falls below zero, and is random from then on
        ("zfs_arc_meta_balance", 31),
        # less than the kernel's reserve
        ("zfs_arc_sys_free", 64 << 20),
        # allocations wait for the eviction of dnodes
        ("zfs_arc_dnode_limit", 1 << 20),
        ("zfs_arc_dnode_limit_percent", 1),
        # usual I/Os are errors of the disk
        ("zio_slow_io_ms", 1),
    ],
)
def test_values_that_overrun_hang_or_cannot_be_undone_are_refused(name: str, value: int) -> None:
    with pytest.raises(guard.Refused) as refused:
        planner.plan(_defaults(), {name: value}, HOST)
    assert refused.value.nearest[name] != value


@pytest.mark.parametrize("total", [1 << 20, 1 << 33, (1 << 40) - 1])
@pytest.mark.parametrize("share", [0.001, 0.05, 0.199, 0.201, 0.25, 0.5, 1.0])
def test_the_share_of_metadata_is_bounded_as_a_share(total: int, share: float) -> None:
    """arc_evict_adj() of arc.c (2.2.9, 2.3.9, 2.4.4) subtracts what it computed without a check:
    with the least legal zfs_arc_meta_balance no number of hits of evicted data is too large."""
    balance = language.evaluate(catalogue.load()["zfs_arc_meta_balance"].low or "0", {})
    part = int(share * (1 << 32))
    for hits in (1, total // 64, total // 16 - 1, total // 16, total * 3 // 32 - 1, total):
        assert _subtracted(part, total, hits, balance) <= part
    assert _subtracted(1 << 30, total, total // 16 - 1, 10) > 1 << 30


def _subtracted(part: int, total: int, hits: int, balance: int) -> int:
    if hits >= total // 16:
        hits //= hits // (total // 32)
    shift, rest = min(64 - total.bit_length(), 32), (1 << 32) - part
    if rest >= 4 * part:
        hits //= rest // (2 * part + 1)
    return (hits << shift) // (total >> (32 - shift)) * 100 // balance


FUNCTIONS = {
    (file, function): there
    for file, function, there in (
        line.split()
        for line in (DATA / "zfs_functions.txt").read_text().splitlines()
        if not line.startswith("#")
    )
}


@pytest.mark.parametrize("parameter", [p for p in ALL if p.access == "rw"], ids=lambda p: p.name)
def test_each_bound_says_which_function_it_is_from(parameter: Parameter) -> None:
    """In each of the four versions that has the parameter at least one of them is there."""
    named = functions(parameter.source)
    assert named and parameter.source.partition(": ")[2]
    assert set(named) <= set(FUNCTIONS)
    for at, version in enumerate(catalogue.READ):
        if version in parameter.read_in:
            assert any(FUNCTIONS[one][at] == "y" for one in named)


@pytest.mark.parametrize("parameter", ALL, ids=lambda p: p.name)
def test_each_entry_says_when_a_value_takes_effect(parameter: Parameter) -> None:
    if parameter.access == "rw":
        assert parameter.takes_effect in ("now", "open", "import")
        # an object opened with a value keeps it
        assert parameter.remains or parameter.takes_effect == "now"
    else:
        assert not (parameter.takes_effect or parameter.remains or parameter.source)
    assert not parameter.changes or parameter.changes.endswith(".")
    assert not parameter.remains or parameter.remains.endswith(".")
    assert not parameter.recomputes or parameter.zero
    assert parameter.in_force in (None, "c_max", "c_min", "arc_sys_free", "arc_dnode_limit")


def test_all_steps_are_kept_by_bounds_and_defaults() -> None:
    for parameter in (p for p in ALL if p.step):
        step = language.evaluate(parameter.step or "", {})
        texts = [parameter.low, parameter.high, *(text for _, text in parameter.defaults)]
        assert all(language.evaluate(text or "", {}) % step == 0 for text in texts)


@pytest.mark.parametrize("name", ["zfs_arc_grow_retry", "zfs_arc_shrink_shift"])
def test_where_0_is_ignored_its_meaning_is_put_back(name: str) -> None:
    meant = language.evaluate(catalogue.load()[name].zero or "", {})
    now = _defaults() | {name: meant + 2}
    writes = planner.plan(now, {name: 0}, HOST, back=True)
    assert [write.value for write in writes] == [meant, 0]


def test_a_key_that_the_catalogue_does_not_know_is_refused() -> None:
    with pytest.raises(TypeError):
        catalogue._parameter("zfs_txg_timeout", {"unit": "s", "what": "x.", "lowest": "1"})


def test_every_lasting_effect_is_described() -> None:
    (told,) = catalogue.remains(["zil_maxblocksize", "zfs_txg_timeout", "no_such_name"])
    assert told.startswith("zil_maxblocksize: datasets and volumes opened meanwhile keep")
