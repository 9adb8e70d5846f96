"""Scenario: the one file under Python 3.9 and glibc 2.31, in a chroot with the files of Debian 11.
/share has them, and the file.

The kernel is the guest's, and so are zpool(8) and zfs(8), which run outside of the chroot.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from labkit import Json, finish, make_pool, progress, run, sh, values
from uses import changed, everything

ROOT = Path("/debian-11")
ENTER = ["env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "chroot", str(ROOT)]
OUTSIDE = '#!/bin/dash\nexec chroot /proc/1/root {} "$@"\n'
VERSIONS = (
    "import os, platform; print(platform.python_version(), os.confstr('CS_GNU_LIBC_VERSION'))"
)


def make_tree() -> None:
    ROOT.mkdir()
    sh(f"mount -t tmpfs -o size=512m none {ROOT}; tar -x -C {ROOT} -f /share/debian-11.tar")
    for name in ("proc", "sys", "dev", "tmp", "tank"):
        sh(f"mkdir -p {ROOT}/{name}; mount --rbind /{name} {ROOT}/{name}")
    for name in ("zpool", "zfs"):
        path = ROOT / "usr/sbin" / name
        path.write_text(OUTSIDE.format(name))
        path.chmod(0o755)
    (file,) = Path("/share").glob(f"*-{sh('uname -m').strip()}.pyz")
    shutil.copy(file, ROOT / "zfstune.pyz")


def main() -> None:
    results: Json = {}
    make_pool("tank", "/dev/mapper/vdb-delay")
    progress("Debian 11")
    make_tree()
    before = values()
    results["versions"] = run([*ENTER, "python3", "-I", "-c", VERSIONS])
    results["everything"] = everything([*ENTER, "python3", "/zfstune.pyz"], "tank")
    results["changed"] = changed(before)
    finish(results)


main()
