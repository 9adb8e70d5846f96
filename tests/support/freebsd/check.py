"""scripts/freebsd/check.py as on FreeBSD, on the stand-ins, with shorter pauses.

Usage: check.py ROOT LIBRARY ARGUMENT... (see run.py).
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parents[2] / "scripts")]
    from support.freebsd.run import become_freebsd

    root, library = sys.argv[1:3]
    become_freebsd(root, library)
    from freebsd import check

    command = (sys.executable, "-B", "-S", str(HERE / "run.py"), root, library)
    status = check.main(
        sys.argv[3:],
        root=Path(root),
        libc=library,
        command=command,
        run_s=0.3,
        window_s=1,
    )
    sys.exit(status)
