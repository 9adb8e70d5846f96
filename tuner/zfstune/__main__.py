"""``python -m zfstune``"""

import sys

from zfstune.cli import main

if __name__ == "__main__":
    sys.exit(main())
