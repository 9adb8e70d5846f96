"""The __main__.py of the one file: also what an older Python reads, to say that it is too old."""

import os
import sys

if sys.version_info < (3, 9):
    sys.exit(
        "zfstune: error: Python 3.9 or newer is needed: this is %d.%d\n"
        "hint: name a newer one, as in `python3.11 %s`"
        % (sys.version_info[0], sys.version_info[1], sys.argv[0])
    )
try:
    import _lzma  # noqa: F401  (lzma itself takes longer)
except ImportError:
    sys.exit(
        "zfstune: error: this Python, %s, has no module lzma\n"
        "hint: name one that has its whole standard library, as in `/usr/bin/python3 %s`"
        % (sys.executable, sys.argv[0])
    )


def held(file):
    """The path of a copy in memory, from which a command of hours goes on importing whatever
    becomes of the file; its own path where there can be no copy."""
    with open(file, "rb") as source:
        data = source.read()
    for flags in (8, 0):  # MFD_NOEXEC_SEAL, which Linux before 6.3 does not know
        try:
            fd = os.memfd_create("zfstune.pyz", os.MFD_CLOEXEC | flags)
            with os.fdopen(fd, "wb", closefd=False) as copy:
                copy.write(data)
        except (AttributeError, OSError):
            continue
        if os.path.exists("/proc/self/fd/%d" % fd):
            return "/proc/self/fd/%d" % fd
    return os.path.abspath(file)


from importer import Importer

sys.meta_path.insert(0, Importer(os.path.abspath(sys.path[0]), held(sys.path[0])))
del sys.path[0]  # what else is imported is not inside

from zfstune.__main__ import main

sys.exit(main())
