"""Scenario: the whole matrix of `zfstune bench`, as a user runs it.

Disks: /dev/mapper/vdb-delay, whose flushes take 5 ms longer, and vdc as the log device.
`reports.py [DURATION]`.
"""

from __future__ import annotations

import json
import subprocess
import sys

from labkit import OUT, finish, programs, progress

DISKS = ("--disk", "/dev/mapper/vdb-delay", "--slog", "/dev/vdc")


def main() -> None:
    duration = sys.argv[1] if sys.argv[1:] else "3s"
    progress(f"each test takes {duration}")
    log = OUT / "stderr"
    command = ["zfstune", "bench", "--matrix", "reports-2014", *DISKS, "--yes", "--keep-going"]
    with log.open("w") as stderr:
        done = subprocess.run(
            [*command, "--duration", duration, "--json"],
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
            check=False,
        )
    print(log.read_text(), file=sys.stderr)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    finish(
        {
            "status": done.returncode,
            "stderr": log.read_text(),
            "rows": [row for row in rows if row["type"] == "bench_row"],
            "matrix": next((row for row in rows if row["type"] == "bench_matrix"), None),
            "duration": duration,
            "programs_left": programs(),
        }
    )


if __name__ == "__main__":
    main()
