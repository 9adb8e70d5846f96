"""The rows of the dashboard on views that are off by default. They are closed."""

from __future__ import annotations

from pages.dashboard_types import (
    DATASET,
    FSYNC,
    PER_DATASET,
    PER_POOL,
    POOL,
    Panel,
    Query,
    Row,
    quantile,
    rate,
)

ALL_STAGES = Row(
    "Every fsync, in stages (view fsync)",
    (
        Panel(
            "Threads in each stage",
            "timeseries",
            "short",
            12,
            9,
            (
                Query(
                    rate("zfstune_fsync_stage_seconds_total", "@dataset", f"{POOL}, stage"),
                    "{{instance}} {{pool}} {{stage}}",
                ),
            ),
            "On average, exact: the stages of an fsync sum up to its time. Blue is the device, "
            "orange ZFS, green the scheduler. docs/stages.md#what-lands-where.",
            stacked="normal",
            stages=True,
        ),
        Panel(
            "Stages, p99",
            "timeseries",
            "s",
            12,
            9,
            (
                Query(
                    quantile(
                        0.99, "zfstune_fsync_stage_duration_seconds", "@pool", f"{POOL}, stage"
                    ),
                    "{{instance}} {{pool}} {{stage}}",
                ),
            ),
            "Of the fsyncs that spent time in the stage. docs/stages.md#stage-by-stage.",
            stages=True,
            log=True,
        ),
        Panel(
            "Fsyncs, p99",
            "timeseries",
            "s",
            8,
            8,
            (Query(quantile(0.99, FSYNC, "@dataset", DATASET), PER_DATASET, exemplars=True),),
            "Of the whole system call in ZFS, commit included.",
            log=True,
        ),
        Panel(
            "Operations by kind",
            "timeseries",
            "ops",
            8,
            8,
            (
                Query(
                    rate("zfstune_fsync_operations_total", "@dataset", f"{POOL}, kind"),
                    f"{PER_POOL} {{{{kind}}}}",
                ),
            ),
            "docs/stages.md#what-is-counted has the kinds.",
            stacked="normal",
        ),
        Panel(
            "Errors, and fsyncs without a commit",
            "timeseries",
            "ops",
            8,
            8,
            (
                Query(
                    rate("zfstune_fsync_errors_total", "@dataset", DATASET),
                    f"{PER_DATASET} errors",
                ),
                Query(
                    rate("zfstune_fsync_without_zil_total", "@dataset", DATASET),
                    f"{PER_DATASET} without a commit",
                ),
            ),
            "Without a commit: with sync=disabled an fsync returns at once, and a power failure "
            "takes seconds of data that programs believe safe.",
        ),
    ),
    closed=True,
)

DEVICES = Row(
    "Devices (view device)",
    (
        *(
            Panel(
                title,
                "timeseries",
                "s",
                12,
                9,
                (
                    Query(
                        quantile(
                            0.99,
                            f"zfstune_device_{what}_duration_seconds",
                            "@pool",
                            f"{POOL}, vdev, class",
                        ),
                        f"{PER_POOL} {{{{vdev}}}} {{{{class}}}}",
                    ),
                ),
                description,
                log=True,
            )
            for title, what, description in (
                (
                    "At the device, p99",
                    "io",
                    "sync_write are log blocks, async_write is the sync of txgs. One vdev that is "
                    "slower than its neighbours: `smartctl -a`. docs/stages.md#what-lands-where.",
                ),
                (
                    "In the queue of ZFS, p99",
                    "queue",
                    "A long queue before a fast device: zfs_vdev_*_max_active holds it back, or a "
                    "scrub or resilver shares it.",
                ),
            )
        ),
    ),
    closed=True,
)

READS = Row(
    "Reads and writes (view read)",
    (
        Panel(
            "Reads, p99",
            "timeseries",
            "s",
            12,
            9,
            (
                Query(
                    quantile(
                        0.99, "zfstune_read_duration_seconds", "@dataset", f"{DATASET}, cache"
                    ),
                    f"{PER_DATASET} {{{{cache}}}}",
                ),
            ),
            "A hit is served from memory, a miss from a device. Slow hits: CPU, or memory that is "
            "short.",
            log=True,
        ),
        Panel(
            "Writes, p99",
            "timeseries",
            "s",
            12,
            9,
            (
                Query(
                    quantile(0.99, "zfstune_write_duration_seconds", "@dataset", DATASET),
                    PER_DATASET,
                ),
            ),
            "write(2) waits for the throttle, for a txg, or for a block that it has to read first.",
            log=True,
        ),
    ),
    closed=True,
)
