"""Where the program starts: ``bin/zfstune``, ``python -m zfstune``, and the installed command."""

import os
import signal
import sys


def open_standard() -> None:
    """Opens /dev/null for those of the descriptors 0 to 2 that are closed (`>&-`, some daemons).

    Otherwise the next file would get that number, and what is printed would go into it; and Python
    has None for the stream.
    """
    # always the lowest number that is free
    fd = os.open(os.devnull, os.O_RDWR)
    while fd <= 2:
        os.set_inheritable(fd, True)
        fd = os.dup(fd)
    os.close(fd)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def main() -> int:
    """Loads the command line and runs it; returns its exit status.

    Until that is loaded, Ctrl-C ends the program as it does any other. Python would show a
    traceback of imports. (The start of Python itself, before this, is out of our hands.)
    """
    open_standard()
    interrupt = signal.getsignal(signal.SIGINT)
    if interrupt is signal.default_int_handler:  # not where it is ignored, as after `nohup ... &`
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from zfstune.cli import main as run

    signal.signal(signal.SIGINT, interrupt)
    return run()


if __name__ == "__main__":
    sys.exit(main())
