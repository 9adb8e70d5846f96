"""The rules of advice.toml as data."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zfstune.advise import args, rules
from zfstune.advise.judge import judge
from zfstune.advise.rules import Rule
from zfstune.advise.subjects import Subject
from zfstune.rules import language
from zfstune.tunables import catalogue

ALL = rules.load()

HOST = """memory pools load zfs_version arc_size l2_size l2_asize l2_hdr_size l2_hits l2_misses
arc_c_max arc_c_min arc_sys_free largest_block"""
DATABASE = """config page buffers fsync full_page_writes wal_init_zero wal_recycle
synchronous_commit wal_compression doublewrite flush_neighbors native_aio write_ahead
flush_method sync_binlog flush_log"""
POOL = """pool pool_size pool_free pool_capacity pool_fragmentation pool_health pool_autotrim
redundant raidz slogs rotating specials caches sector_min sector_max block_min block_max"""
VDEV = "group kind vdev_redundant ashift block disks"
DISK = "physical logical disk_rotating disk_volatile below_native state"
DATASET = """dataset recordsize volblocksize compression atime relatime checksum dedup copies
primarycache secondarycache logbias sync xattr redundant_metadata special_small_blocks direct
has_data has_log"""
PARAMETER = """parameter value default in_force default_number writable changed ignored dangerous
hazard ours"""
COUPLING = "broken advice hard"
# the facts of each scope
FACTS = {
    "host": HOST,
    "parameter": HOST + " " + PARAMETER,
    "coupling": HOST + " " + COUPLING,
    "database": HOST + " " + DATABASE,
    "pool": HOST + " " + POOL,
    "vdev": " ".join((HOST, POOL, VDEV)),
    "disk": " ".join((HOST, POOL, VDEV, DISK)),
    "filesystem": " ".join((HOST, DATABASE, POOL, DATASET)),
    "volume": " ".join((HOST, DATABASE, POOL, DATASET)),
    "dataset": " ".join((HOST, DATABASE, POOL, DATASET)),
}


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_every_rule_is_complete(rule: Rule) -> None:
    assert rule.severity in rules.SEVERITIES
    assert rule.scope in rules.SCOPES
    assert rule.rewrite in rules.REWRITES
    assert set(rule.loads) <= set(rules.LOADS)
    assert set(rule.id) <= set(string.ascii_lowercase + string.digits + "-")
    for text in (rule.why, rule.effect, rule.risk):
        assert text.endswith((".", "}")), text
    assert rule.what and rule.source and (rule.command or rule.how)
    assert not rule.what.endswith(".") and not rule.how.endswith(".")
    assert 1 <= rule.why.count(". ") + 1 <= 3
    if rule.property_:
        assert rule.scope in ("dataset", "filesystem", "volume")
        assert rule.property_ in DATASET.split()


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_rules_use_known_facts_only(rule: Rule) -> None:
    known = {*FACTS[rule.scope].split(), *catalogue.load()}
    assert set(language.names(rule.when)) <= known
    for text in rule.texts:
        assert set(rules.placeholders(text)) <= known | {"name"}
    # facts in texts are known if the rule holds: they are in its condition, or always known
    always = {"pool", "config", "page", "load", "memory", "arc_c_max", "pools"}
    always |= {"parameter", "value", "hazard", "default", "in_force", "default_number"}
    always |= {"broken", "advice", "name"}
    for text in rule.texts:
        shown = set(rules.placeholders(text)) - always
        assert shown <= {*language.names(rule.when), "physical", "block"}


@pytest.mark.parametrize("rule", ALL, ids=lambda rule: rule.id)
def test_what_lowers_durability_is_never_a_command(rule: Rule) -> None:
    text = f"{rule.command} {rule.how}"
    if rule.lowers_durability:
        assert not rule.command and rule.severity != "high"
        assert "`" not in rule.how and "zfs set" not in rule.how
    assert "sync=disabled" not in text and "checksum=off" not in text
    if "redundant" in rule.id and rule.lowers_durability:
        assert "redundant" in rule.when


def test_ids_are_unique_and_loads_are_the_same_everywhere() -> None:
    assert len({rule.id for rule in ALL}) == len(ALL)
    assert rules.LOADS == args.LOADS
    assert [rule.severity for rule in ALL] == sorted(
        (rule.severity for rule in ALL), key=rules.SEVERITIES.index
    )


@given(st.sampled_from(ALL), st.dictionaries(st.text(), st.integers() | st.text()))
def test_any_facts_are_judged(rule: Rule, facts: dict[str, int | str]) -> None:
    names = (*language.names(rule.when), *facts)
    strange = dict(zip(names, [*facts.values(), *facts.values()], strict=False))
    for scope in ("filesystem", "volume", rule.scope):
        judge([Subject(scope, "x", strange, load=(*rule.loads, "")[0])], "2.3.1", [rule])


# --- versions


def test_rules_of_other_versions_do_not_apply() -> None:
    rule = replace(ALL[0], scope="host", when="1", since="2.3", until="", loads=(), what="w")
    host = [Subject("host", "h", {})]
    assert judge(host, "2.3.0-1", [rule]).findings
    assert not judge(host, "2.2.9", [rule]).findings
    assert judge(host, "", [rule]).findings
    old = replace(rule, since="", until="2.2")
    assert judge(host, "2.2.9", [old]).findings
    assert not judge(host, "2.3.0", [old]).findings
