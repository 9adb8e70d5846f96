"""The __main__.py of the one file: also what an older Python reads, to say that it is too old."""

import os
import sys

if sys.version_info < (3, 9):
    sys.exit(
        "zfstune: error: Python 3.9 or newer is needed: this is %d.%d\n"
        "hint: name a newer one, as in `python3.11 %s`"
        % (sys.version_info[0], sys.version_info[1], sys.argv[0])
    )

# A process that changes its directory goes on importing.
sys.path[0] = os.path.abspath(sys.path[0])

from zfstune.__main__ import main

sys.exit(main())
