"""The packages of the source tree, and the order in which they may import each other."""

from __future__ import annotations

from support.paths import ROOT

SOURCES = {
    "zfstrace": ROOT / "tracers/zfstrace",
    "zfs_linux": ROOT / "platform/linux/zfs_linux",
    "zfs_freebsd": ROOT / "platform/freebsd/zfs_freebsd",
    "zfstune": ROOT / "tuner/zfstune",
}
# Bottom up: a package, or a file that is in none, imports only what stands in a row above its own.
ORDER = (
    ("zfstrace",),
    ("zfs_linux", "zfs_freebsd"),
    ("zfstune",),
    ("zfstune.errors",),
    ("zfstune.term", "zfstune.rules"),
    ("zfstune.inside",),
    ("zfstune.tunables",),
    ("zfstune.host", "zfstune.preflight", "zfstune.html"),
    ("zfstune.incident",),
    ("zfstune.changes", "zfstune.trace"),
    (
        "zfstune.params",
        "zfstune.flame",
        "zfstune.diagnose",
        "zfstune.check",
        "zfstune.advise",
        "zfstune.bench",
    ),
    ("zfstune.experiment",),
    ("zfstune.report",),
    ("zfstune.record",),
    ("zfstune.exporter",),
    ("zfstune.tune",),
    ("zfstune.cli",),
    ("zfstune.__main__",),
)
