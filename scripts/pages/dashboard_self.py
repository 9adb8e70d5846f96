"""The rows of the dashboard on parameters and the tracer itself, and the marks in panels."""

from __future__ import annotations

from pages.dashboard_types import (
    HOST,
    INEXACT,
    PER_POOL,
    RATE,
    UNCOUNTED,
    Annotation,
    Panel,
    Query,
    Row,
    losses,
    rate,
)

PARAMETERS = Row(
    "Parameters and sessions",
    (
        Panel(
            "Parameters changed",
            "table",
            "short",
            12,
            8,
            (
                Query(
                    "sum by (instance, name, by) (zfstune_parameter_changed{@host})",
                    column="value",
                    unit="none",
                ),
                Query(
                    "sum by (instance, name, by) "
                    "(increase(zfstune_parameter_writes_total{@host}[1d])) > 0",
                    column="writes in a day",
                    unit="short",
                ),
            ),
            "Module parameters that were written since the exporter runs, by a session of zfstune "
            "or by another. `zfstune status` says how to undo those of a session. Each write is a "
            "mark in all panels.",
        ),
        Panel(
            "Sessions of zfstune tune",
            "state-timeline",
            "short",
            12,
            8,
            (Query("max by (job, instance, pool) (zfstune_session_active{@pool})", PER_POOL),),
            "While a session runs, parameters change every minute, and times with them. "
            "`zfstune status` names its process; ended, it restores all values.",
            states=(("none", "transparent"), ("active", "purple")),
        ),
    ),
)

TRACER = Row(
    "The tracer itself",
    (
        Panel(
            "Views attached",
            "state-timeline",
            "short",
            12,
            9,
            (
                Query(
                    "min by (job, instance, view) (zfstune_trace_up{@host})",
                    "{{instance}} {{view}}",
                ),
            ),
            "A view that is off measures nothing: its lines stand still, which is not the same as "
            "nothing happening. Why is in the table beside.",
            states=(("off", "red"), ("on", "green")),
        ),
        Panel(
            "Views off, and why",
            "table",
            "short",
            6,
            9,
            (Query("zfstune_trace_off_info{@host}"),),
            "no_pool, no_zfs: there is nothing to measure; budget: it took too much CPU and is "
            "tried again after 30 minutes. "
            "Else `journalctl -u zfstune-exporter` and `zfstune doctor`.",
        ),
        Panel(
            "Probes",
            "table",
            "short",
            6,
            9,
            (
                Query(
                    "sum by (instance, view, how) (zfstune_trace_probes{@host})",
                    column="probes",
                    unit="short",
                ),
            ),
            "missing: time is in another stage than it should be, or not seen. "
            "`zfstune doctor` names the consequence; docs/stages.md#attaching.",
        ),
        Panel(
            "Lost per second",
            "timeseries",
            "ops",
            8,
            8,
            (
                Query(losses("@host", UNCOUNTED), "{{instance}} {{view}} {{reason}}"),
                Query(losses("@host", INEXACT), "{{instance}} {{view}} {{reason}}, counted"),
            ),
            "Above 0 numbers are too small by that; what is counted all the same is only less "
            "exact, as in <others> or in the stage beside. docs/stages.md#losses.",
        ),
        Panel(
            "Cost of tracing, in CPUs",
            "timeseries",
            "percentunit",
            8,
            8,
            (
                Query(
                    "sum by (job, instance, view) (zfstune_trace_cost_ratio{@host})",
                    "{{instance}} {{view}}",
                ),
                Query(
                    "max by (job, instance) (zfstune_trace_budget_ratio{@host})",
                    "{{instance}} budget",
                    dashed=True,
                ),
            ),
            "Of one CPU, measured every 10 minutes. Above the budget views are detached.",
            stacked="normal",
        ),
        Panel(
            "Scrapes",
            "timeseries",
            "s",
            8,
            8,
            (
                Query(
                    "max by (job, instance) (zfstune_exporter_scrape_seconds{@host})",
                    "{{instance}}",
                ),
            ),
            "How long the exporter takes for a scrape. Above 0.1 s: fewer `--max-datasets`.",
        ),
        Panel(
            "Exporter: errors per second",
            "timeseries",
            "ops",
            8,
            8,
            (
                Query(
                    rate("zfstune_exporter_errors_total", "@host", f"{HOST}, what"),
                    "{{instance}} {{what}}",
                ),
            ),
            "What went wrong is in `journalctl -u zfstune-exporter`.",
        ),
        Panel(
            "Exporter: CPUs",
            "timeseries",
            "percentunit",
            8,
            8,
            (Query(rate("zfstune_exporter_cpu_seconds_total", "@host", HOST), "{{instance}}"),),
            "Of the process, without the probes, which the cost of tracing has.",
        ),
        Panel(
            "Exporter: memory",
            "timeseries",
            "bytes",
            8,
            8,
            (
                Query(
                    "max by (job, instance) (zfstune_exporter_resident_bytes{@host})",
                    "{{instance}}",
                ),
            ),
            "It must not grow for days. The recorder has 8 MiB of it, unless `--no-record`.",
        ),
    ),
)

ANNOTATIONS = (
    Annotation(
        "Parameter written",
        "sum by (instance, name, by) "
        f"(increase(zfstune_parameter_writes_total{{@host}}[{RATE}])) > 0",
        "{{name}} written",
        "on {{instance}} by {{by}}",
        "orange",
    ),
    Annotation(
        "Session of zfstune tune",
        "max by (instance, pool) (zfstune_session_active{@pool}) > 0",
        "a session tunes {{pool}}",
        "on {{instance}}",
        "purple",
    ),
)
