"""Generated input is the same in every run, and may take its time on a busy machine: a test
does not fail by chance. To explore, run pytest with --hypothesis-profile=default."""

import signal

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")

# Ignored signals are inherited, from nohup(1) or from a shell that runs a job in the background:
# tests that send them would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)
