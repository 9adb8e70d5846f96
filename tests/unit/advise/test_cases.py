"""Each rule of advice.toml: facts under which it holds, and facts under which it does not."""

from __future__ import annotations

import pytest

from zfstune.advise import rules
from zfstune.rules import language
from zfstune.rules.language import Fact

K, M, G = 1 << 10, 1 << 20, 1 << 30

# rule, what both have in common, holds with, does not hold with
CASES: list[tuple[str, dict[str, Fact], dict[str, Fact], dict[str, Fact]]] = [
    ("sync-disabled", {}, {"sync": "disabled"}, {"sync": "standard"}),
    ("sync-always", {}, {"sync": "always"}, {"sync": "disabled"}),
    ("checksum-off", {}, {"checksum": "off"}, {"checksum": "sha256"}),
    ("parameter-dangerous", {}, {"dangerous": 1}, {"dangerous": 0}),
    ("ashift-below-sector", {"group": "log"}, {"below_native": 1}, {"below_native": 0}),
    ("ashift-below-sector", {"below_native": 1}, {"group": "data"}, {"group": "cache"}),
    ("special-not-redundant", {"group": "dedup", "vdev_redundant": 0},
     {"redundant": 1}, {"redundant": 0}),
    ("special-not-redundant", {"group": "special", "redundant": 1},
     {"vdev_redundant": 0}, {"vdev_redundant": 1}),
    ("logbias-throughput-with-slog", {"logbias": "throughput"}, {"slogs": 1}, {"slogs": 0}),
    ("primarycache-none", {}, {"primarycache": "none"}, {"primarycache": "metadata"}),
    ("pool-nearly-full", {}, {"pool_capacity": 90}, {"pool_capacity": 89}),
    ("pool-full", {}, {"pool_capacity": 80}, {"pool_capacity": 79}),
    ("pool-full", {}, {"pool_capacity": 89}, {"pool_capacity": 90}),
    ("postgresql-fsync-off", {}, {"fsync": 0}, {"fsync": 1}),
    ("dedup-on", {}, {"dedup": "sha256,verify"}, {"dedup": "off"}),
    ("coupling-hard", {}, {"hard": 1}, {"hard": 0}),
    ("coupling-soft", {}, {"hard": 0}, {"hard": 1}),
    ("pool-suspended", {}, {"pool_health": "SUSPENDED"}, {"pool_health": "DEGRADED"}),
    ("pool-degraded", {}, {"pool_health": "DEGRADED"}, {"pool_health": "SUSPENDED"}),
    ("pool-degraded", {}, {"pool_health": "DEGRADED"}, {"pool_health": "ONLINE"}),
    ("recordsize-above-page", {"recordsize": 128 * K, "page": 8 * K},
     {"compression": "off"}, {"compression": "lz4"}),
    ("recordsize-large-compressed", {"recordsize": 128 * K, "page": 8 * K},
     {"compression": "zstd"}, {"compression": "off"}),
    ("recordsize-below-page", {"page": 16 * K}, {"recordsize": 8 * K}, {"recordsize": 16 * K}),
    ("metadata-cache-large-records", {"primarycache": "metadata", "page": 8 * K},
     {"recordsize": 16 * K}, {"recordsize": 8 * K}),
    ("compression-off", {}, {"compression": "off"}, {"compression": "on"}),
    ("ashift-mixed", {"block_max": 4096}, {"block_min": 512}, {"block_min": 4096}),
    ("sectors-mixed", {"sector_max": 4096}, {"sector_min": 512}, {"sector_min": 4096}),
    ("slog-volatile", {"group": "log"}, {"disk_volatile": 1}, {"disk_volatile": 0}),
    ("slog-rotating", {"disk_rotating": 1}, {"group": "log"}, {"group": "data"}),
    ("slog-not-mirrored", {"group": "log"}, {"vdev_redundant": 0}, {"vdev_redundant": 1}),
    ("no-slog-on-rotating", {"rotating": 1, "sync": "standard", "specials": 0},
     {"slogs": 0}, {"slogs": 1}),
    ("no-slog-on-rotating", {"rotating": 1, "sync": "standard", "slogs": 0, "specials": 1},
     {"zfs_version": 203}, {"zfs_version": 204}),
    ("logbias-throughput-sync-load", {"slogs": 0},
     {"logbias": "throughput"}, {"logbias": "latency"}),
    ("atime-on", {"atime": "on"}, {"relatime": "off"}, {"relatime": "on"}),
    ("relatime", {"atime": "on"}, {"relatime": "on"}, {"relatime": "off"}),
    ("copies-on-redundancy", {"copies": 2}, {"redundant": 1}, {"redundant": 0}),
    ("special-takes-all", {"specials": 1, "recordsize": 128 * K},
     {"special_small_blocks": 128 * K}, {"special_small_blocks": 64 * K}),
    ("special-rotating", {"group": "special"}, {"disk_rotating": 1}, {"disk_rotating": 0}),
    ("redundant-metadata-none", {}, {"redundant_metadata": "some"}, {"redundant_metadata": "most"}),
    ("redundant-metadata-most", {"redundant_metadata": "all"}, {"redundant": 1}, {"redundant": 0}),
    ("arc-and-buffers", {"memory": 64 * G, "arc_c_max": 32 * G},
     {"buffers": 26 * G}, {"buffers": 24 * G}),
    ("arc-small", {"memory": 64 * G}, {"arc_c_max": 3 * G}, {"arc_c_max": 4 * G}),
    ("dirty-limits-against-memory", {"memory": 16 * G, "zfs_dirty_data_max": 2 * G},
     {"pools": 3}, {"pools": 2}),
    ("parameter-ignored", {}, {"ignored": 1}, {"ignored": 0}),
    ("parameter-changed", {"changed": 1, "ignored": 0, "dangerous": 0, "writable": 1},
     {"ours": 0}, {"ours": 1}),
    ("parameter-changed", {"changed": 1, "ours": 0, "dangerous": 0, "writable": 1},
     {"ignored": 0}, {"ignored": 1}),
    ("parameter-changed-at-load", {"changed": 1, "dangerous": 0, "ours": 0},
     {"writable": 0}, {"writable": 1}),
    ("full-page-writes", {"recordsize": 8 * K, "page": 8 * K},
     {"full_page_writes": 1}, {"full_page_writes": 0}),
    ("full-page-writes", {"full_page_writes": 1, "page": 8 * K},
     {"recordsize": 128 * K}, {"recordsize": 4 * K}),
    ("full-page-writes-needed", {"page": 8 * K, "full_page_writes": 0},
     {"recordsize": 4 * K}, {"recordsize": 8 * K}),
    ("full-page-writes-needed", {"page": 8 * K, "recordsize": 4 * K},
     {"full_page_writes": 0}, {"full_page_writes": 1}),
    ("innodb-doublewrite-needed", {"page": 16 * K, "doublewrite": 0},
     {"recordsize": 8 * K}, {"recordsize": 16 * K}),
    ("innodb-doublewrite-needed", {"page": 16 * K, "recordsize": 8 * K},
     {"doublewrite": 0}, {"doublewrite": 1}),
    ("wal-with-data", {"config": "postgresql.conf"}, {}, {"has_log": 0}),
    ("innodb-doublewrite", {"page": 16 * K, "doublewrite": 1},
     {"recordsize": 16 * K}, {"recordsize": 8 * K}),
    ("innodb-direct-io", {"flush_method": "o_direct", "page": 16 * K, "recordsize": 128 * K},
     {"direct": "standard"}, {"direct": "disabled"}),
    ("innodb-flush-method", {}, {"flush_method": "o_direct"}, {"flush_method": "fsync"}),
    ("innodb-flush-neighbors", {}, {"flush_neighbors": 1}, {"flush_neighbors": 0}),
    ("innodb-native-aio", {}, {"native_aio": 1}, {"native_aio": 0}),
    ("innodb-write-ahead", {"recordsize": 16 * K}, {"write_ahead": 8192}, {"write_ahead": 16384}),
    ("innodb-durability", {"sync_binlog": 1}, {"flush_log": 2}, {"flush_log": 1}),
    ("innodb-durability", {"flush_log": 1}, {"sync_binlog": 0}, {"sync_binlog": 100}),
    ("innodb-asynchronous-commit", {}, {"flush_log": 1}, {"flush_log": 2}),
    ("postgresql-durability", {}, {"synchronous_commit": "off"}, {"synchronous_commit": "local"}),
    ("postgresql-asynchronous-commit", {"fsync": 1},
     {"synchronous_commit": "on"}, {"synchronous_commit": "off"}),
    ("postgresql-asynchronous-commit", {"synchronous_commit": "on"}, {"fsync": 1}, {"fsync": 0}),
    ("wal-init-zero", {}, {"wal_init_zero": 1}, {"wal_init_zero": 0}),
    ("wal-recycle", {}, {"wal_recycle": 1}, {"wal_recycle": 0}),
    ("double-caching", {"primarycache": "all", "recordsize": 8 * K, "page": 8 * K, "memory": 8 * G},
     {"buffers": 5 * G}, {"buffers": 4 * G}),
    ("secondarycache-useless", {"caches": 1, "secondarycache": "all"},
     {"primarycache": "metadata"}, {"primarycache": "all"}),
    ("l2arc-headers", {"arc_c_max": 8 * G}, {"l2_hdr_size": 1 * G}, {"l2_hdr_size": 300 * M}),
    ("l2arc-misses", {"l2_misses": 2_000_000}, {"l2_hits": 100}, {"l2_hits": 1_000_000}),
    ("l2arc-rotating", {"group": "cache"}, {"disk_rotating": 1}, {"disk_rotating": 0}),
    ("xattr-dir", {"zfs_version": 202}, {"xattr": "on"}, {"xattr": "sa"}),
    ("xattr-dir", {"xattr": "on"}, {"zfs_version": 202}, {"zfs_version": 203}),
    ("volblocksize-raidz", {"raidz": 1, "block_max": 4096},
     {"volblocksize": 8 * K}, {"volblocksize": 16 * K}),
    ("volblocksize-large", {}, {"volblocksize": 128 * K}, {"volblocksize": 64 * K}),
    ("volblocksize-small", {}, {"volblocksize": 4 * K}, {"volblocksize": 8 * K}),
    ("recordsize-vm", {}, {"recordsize": 128 * K}, {"recordsize": 64 * K}),
    ("recordsize-sequential", {}, {"recordsize": 128 * K}, {"recordsize": 1 * M}),
    ("fragmentation", {}, {"pool_fragmentation": 50}, {"pool_fragmentation": 49}),
    ("ashift-small-flash", {"block": 512, "below_native": 0, "group": "data"},
     {"disk_rotating": 0}, {"disk_rotating": 1}),
]  # fmt: skip

BY_ID = {rule.id: rule for rule in rules.load()}


@pytest.mark.parametrize(("name", "both", "yes", "no"), CASES)
def test_each_rule_holds_only_for_the_facts_it_is_about(
    name: str, both: dict[str, Fact], yes: dict[str, Fact], no: dict[str, Fact]
) -> None:
    both = {"has_data": 1, "has_log": 1, **both}
    assert language.holds(BY_ID[name].when, both | yes)
    assert not language.holds(BY_ID[name].when, both | no)


def test_every_rule_has_a_case() -> None:
    assert {name for name, *_ in CASES} == set(BY_ID)
