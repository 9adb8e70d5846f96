"""The rows of the dashboard on all hosts, and on what is counted by default."""

from __future__ import annotations

from pages.dashboard_types import (
    BLIND,
    COMMIT,
    DATASET,
    DOWN,
    FSYNC,
    HOST,
    LIGHT,
    PER_DATASET,
    PER_POOL,
    POOL,
    RATE,
    Panel,
    Query,
    Row,
    either,
    number,
    quantile,
    rate,
    rates,
    uncounted,
    unfinished,
)

FLEET = Row(
    "All hosts",
    (
        number(
            "Hosts measured",
            "count(count by (job, instance) (zfstune_build_info{@fleet})) or vector(0)",
            "Hosts whose exporter answers. Fewer than you run: look at Status, Targets in "
            "Prometheus.",
            None,
        ),
        number(
            "Exporters down",
            f"count({DOWN}) or vector(0)",
            "Targets that do not answer, and hosts whose metrics came by node_exporter in the last "
            "day and come no more: `systemctl status zfstune-exporter` there.",
        ),
        number(
            "Hosts blind",
            f"count(count by (job, instance) ({BLIND})) or vector(0)",
            "Hosts on which a view is off though a pool is imported. Why is in the last row.",
        ),
        number(
            "Hosts losing",
            f"count(sum by (job, instance) ({uncounted('@fleet', '15m')}) > 0) or vector(0)",
            "Hosts on which operations were not counted in 15 minutes: their numbers are too "
            "small. docs/stages.md#losses says what each loss is.",
        ),
        number(
            "Pools blocked",
            'count(zfstune_pool_state{@fleet,state=~"SUSPENDED|FAULTED|UNAVAIL"} == 1) '
            "or vector(0)",
            "Pools in which writes wait for ever: `zpool status -x` there.",
        ),
        number(
            "Hosts over budget",
            "count(sum by (job, instance) (zfstune_trace_cost_ratio{@fleet}) > "
            "max by (job, instance) (zfstune_trace_budget_ratio{@fleet})) or vector(0)",
            "Hosts on which tracing takes more of a CPU than it may. It detaches views by itself; "
            "`zfstune doctor --cost` there says which cost most.",
        ),
        Panel(
            "Hosts, slowest first",
            "table",
            "short",
            14,
            9,
            (
                Query(
                    "max by (job, instance) (instance_pool:zfstune_commit_seconds:p99_5m{@fleet})",
                    column="commit p99",
                    unit="s",
                ),
                Query(
                    "sum by (job, instance) (instance_pool:zfstune_commits:rate_5m{@fleet})",
                    column="commits/s",
                    unit="ops",
                ),
                Query(unfinished("@fleet"), column="unfinished", unit="short"),
                Query(f"count by (job, instance) ({BLIND})", column="views blind", unit="short"),
                Query(
                    f"sum by (job, instance) ({uncounted('@fleet', '15m')})",
                    column="lost in 15 m",
                    unit="short",
                ),
                Query(
                    'count by (job, instance) (zfstune_parameter_changed{@fleet,by="other"})',
                    column="parameters changed",
                    unit="short",
                ),
            ),
            "p99 of the slowest pool in 5 minutes, by the rules of recording.yml. A click on a "
            "host shows it alone. The next step on it: `zfstune diagnose POOL`.",
        ),
        Panel(
            "The five slowest hosts",
            "timeseries",
            "s",
            10,
            9,
            (
                Query(
                    "topk(5, max by (job, instance) "
                    "(instance_pool:zfstune_commit_seconds:p99_5m{@fleet}))",
                    "{{instance}}",
                ),
            ),
            "p99 of commits of the slowest pool, by the rules of recording.yml. All hosts at once "
            "are a cause they share: a storage network, a hypervisor, a deployment.",
            log=True,
        ),
    ),
)

POOLS = Row(
    "Pools",
    (
        Panel(
            "Commits, p99",
            "timeseries",
            "s",
            8,
            9,
            (Query(either(0.99, "@pool", POOL), PER_POOL, exemplars=True),),
            "How long the slowest hundredth of ZIL commits takes: what an fsync, an O_SYNC write "
            "or the sync of a virtual disk waits for. docs/stages.md#what-is-counted. A dot is "
            "the slowest commit, with its program. Next: `zfstune diagnose POOL` on the host.",
            log=True,
        ),
        Panel(
            "Commits per second",
            "timeseries",
            "ops",
            8,
            9,
            (Query(rates("@pool", POOL), PER_POOL),),
            "A fall together with a rise of p99 is a slower pool; a rise of both is more load.",
        ),
        Panel(
            "Objective: budget left",
            "timeseries",
            "percentunit",
            8,
            9,
            (
                Query(
                    f"min by ({POOL}) "
                    "(instance_pool:zfstune_commit_budget_left:ratio_30d{@pool})",
                    PER_POOL,
                ),
            ),
            "What is left of the slow commits that the objective of slo.yml allows: 0.1 % of those "
            "of 30 days, or of as many as Prometheus keeps, may take longer than 100 ms. Below 0 "
            "it is missed. Without slo.yml this is empty.",
            signed=True,
        ),
        Panel(
            "Commits not ended",
            "timeseries",
            "short",
            8,
            8,
            (Query(unfinished("@host"), "{{instance}}"),),
            "Commits that run now, on all pools of a host. A number that only grows, while the "
            "rate is 0, is a pool that hangs: `zpool status`, `dmesg`.",
        ),
        Panel(
            "Log blocks, p99",
            "timeseries",
            "s",
            8,
            8,
            tuple(
                Query(
                    quantile(0.99, f"zfstune_zil_{what}_duration_seconds", "@pool", POOL),
                    f"{PER_POOL} {what}",
                )
                for what in ("log_write", "flush")
            ),
            "The device's part: log_write is the write of a log block, flush the cache flush after "
            "it. If these are as slow as commits, look at the device (`zpool iostat -vl 1`); if "
            "not, at stages. docs/stages.md#what-lands-where.",
            log=True,
        ),
        Panel(
            "State of pools",
            "table",
            "short",
            8,
            8,
            (Query("zfstune_pool_state{@pool} == 1"),),
            "In SUSPENDED, FAULTED and UNAVAIL writes wait for ever: `zpool status -v POOL`.",
        ),
    ),
)

STAGES = Row(
    "Where the time goes",
    (
        Panel(
            "Stages of fsyncs, estimated",
            "timeseries",
            "percentunit",
            14,
            10,
            (
                Query(
                    "sum by (job, instance, pool, stage) "
                    '(zfstune_fsync_stage_share_ratio{@pool,bound="estimate"})',
                    "{{instance}} {{pool}} {{stage}}",
                ),
            ),
            "Shares of the time of fsyncs, from the windows of the light view. Select one host and "
            "one pool: the stack is relative to all that is shown. Blue is the device, orange is "
            "ZFS, green the scheduler. docs/stages.md#what-lands-where says what fills a stage.",
            stacked="percent",
            stages=True,
        ),
        Panel(
            "Stages now, with 95 % bounds",
            "table",
            "percentunit",
            10,
            10,
            tuple(
                Query(
                    "sum by (instance, pool, stage) "
                    f'(zfstune_fsync_stage_share_ratio{{@pool,bound="{bound}"}})',
                    column=bound,
                    unit="percentunit",
                )
                for bound in ("estimate", "low", "high")
            ),
            "Bounds that are far apart: there were few fsyncs, or few windows. Then believe no "
            "ranking of stages: `zfstune trace fsync POOL` on the host counts all of them.",
        ),
        Panel(
            "Commits by duration",
            "heatmap",
            "s",
            24,
            9,
            (
                Query(
                    f"sum by (le) (increase({COMMIT}_bucket{{@dataset}}[{RATE}]) {LIGHT} or "
                    f"increase({FSYNC}_bucket{{@dataset}}[{RATE}]))",
                    "{{le}}",
                    exemplars=True,
                ),
            ),
            "All hosts, pools and datasets that are selected. Two bands are two kinds of commits, "
            "such as with and without a cache flush; a band that rises is a device that slows "
            "down. docs/stages.md#what-is-counted.",
        ),
    ),
)

DATASETS = Row(
    "Datasets",
    (
        Panel(
            "Datasets, slowest first",
            "table",
            "s",
            12,
            9,
            (
                Query(either(0.99, "@dataset", DATASET), column="p99", unit="s"),
                Query(either(0.5, "@dataset", DATASET), column="p50", unit="s"),
                Query(rates("@dataset", DATASET), column="commits/s", unit="ops"),
            ),
            "Datasets beyond `--max-datasets` are summed as <others> of their pool. One slow "
            "dataset in a fast pool: its own log (`issuer_lock`, `batch_wait`), or its `logbias`.",
        ),
        Panel(
            "Commits of datasets, p99",
            "timeseries",
            "s",
            12,
            9,
            (Query(either(0.99, "@dataset", DATASET), PER_DATASET, exemplars=True),),
            "All datasets of a pool at once: the device or the txg. docs/stages.md"
            "#what-lands-where.",
            log=True,
        ),
    ),
)

TXGS = Row(
    "Transaction groups and dirty data",
    (
        Panel(
            "Txgs by phase, p99",
            "timeseries",
            "s",
            8,
            9,
            (
                Query(
                    quantile(0.99, "zfstune_txg_duration_seconds", "@pool", f"{POOL}, phase"),
                    f"{PER_POOL} {{{{phase}}}}",
                ),
            ),
            "sync longer than zfs_txg_timeout (5 s): the pool writes more slowly than programs do. "
            "A long quiesce: a transaction that does not end. `zfstune trace txg POOL`.",
            log=True,
        ),
        Panel(
            "Txgs by reason",
            "timeseries",
            "ops",
            8,
            9,
            (
                Query(
                    rate("zfstune_txgs_total", "@pool", f"{POOL}, reason"),
                    f"{PER_POOL} {{{{reason}}}}",
                ),
            ),
            "Why txgs were closed. dirty: much is written; waiter: somebody waits for a whole txg, "
            "such as sync(2), `zfs snapshot`, or a commit that gave up on the log "
            "(docs/stages.md#stage-by-stage, `txg_fallback`).",
            stacked="normal",
        ),
        Panel(
            "Dirty data",
            "timeseries",
            "bytes",
            8,
            9,
            (
                Query("sum by (job, instance, pool) (zfstune_txg_dirty_bytes{@pool})", PER_POOL),
                Query(
                    "max by (job, instance) (zfstune_dirty_limit_bytes{@host})",
                    "{{instance}} zfs_dirty_data_max",
                    dashed=True,
                ),
            ),
            "As the last txg began to sync. From zfs_delay_min_dirty_percent (60 %) of the limit "
            "on writers are slowed down, at the limit they stop. `zfstune trace throttle POOL`.",
        ),
    ),
)

THROTTLE = Row(
    "Write throttle",
    (
        Panel(
            "Writers held",
            "timeseries",
            "short",
            12,
            8,
            (
                Query(
                    rate("zfstune_throttle_wait_seconds_total", "@pool", f"{POOL}, limit"),
                    f"{PER_POOL} {{{{limit}}}}",
                ),
            ),
            "Threads that wait on average, by the limit. dirty_hard: at zfs_dirty_data_max, "
            "writers stop; dirty_delay: they are slowed down, which is how the throttle works; "
            "wrlog_delay: log data outruns the txgs. `zfstune trace throttle POOL`.",
            stacked="normal",
        ),
        Panel(
            "Waits per second",
            "timeseries",
            "ops",
            12,
            8,
            (
                Query(
                    rate("zfstune_throttle_waits_total", "@pool", f"{POOL}, limit"),
                    f"{PER_POOL} {{{{limit}}}}",
                ),
            ),
            "Many short waits are a smooth throttle; few long ones are writers that stand still.",
        ),
    ),
)

ARC = Row(
    "ARC",
    (
        Panel(
            "Size and target",
            "timeseries",
            "bytes",
            8,
            8,
            (
                Query("max by (job, instance) (zfstune_arc_size_bytes{@host})", "{{instance}}"),
                Query(
                    "max by (job, instance) (zfstune_arc_target_bytes{@host})",
                    "{{instance}} target",
                    dashed=True,
                ),
            ),
            "A target that falls: the system is short of memory. A size above it: eviction does "
            "not follow, and the next panel shows who waits.",
        ),
        Panel(
            "Threads waiting for eviction",
            "timeseries",
            "short",
            8,
            8,
            (
                Query(
                    rate("zfstune_arc_eviction_wait_seconds_total", "@host", HOST),
                    "{{instance}} threads",
                ),
                Query(
                    rate("zfstune_arc_eviction_waits_total", "@host", HOST),
                    "{{instance}} waits/s",
                ),
            ),
            "On average; each read and write can wait there. Anything above 0 for long: look at "
            "`zfstune trace arc` and at zfs_arc_max.",
        ),
        Panel(
            "Hits of reads that a program waits for",
            "timeseries",
            "percentunit",
            8,
            8,
            (
                Query(
                    f"{rate('zfstune_arc_hits_total', '@host', HOST)} / "
                    f"({rate('zfstune_arc_hits_total', '@host', HOST)} + "
                    f"{rate('zfstune_arc_misses_total', '@host', HOST)})",
                    "{{instance}}",
                ),
            ),
            "Misses read from the devices that the log is on, too: they then show in `log_write`. "
            "docs/stages.md#what-lands-where.",
        ),
    ),
)
