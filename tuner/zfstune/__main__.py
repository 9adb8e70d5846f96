"""Where the program starts: ``bin/zfstune``, ``python -m zfstune``, and the installed command."""

import signal
import sys


def main() -> int:
    """Loads the command line and runs it; returns its exit status.

    Until that is loaded, Ctrl-C ends the program as it does any other. Python would show a
    traceback of imports. (The start of Python itself, before this, is out of our hands.)
    """
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:  # not where it is ignored, as after `nohup ... &`
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from zfstune.cli import main as run

    signal.signal(signal.SIGINT, interrupt)
    return run()


if __name__ == "__main__":
    sys.exit(main())
