"""Generated input is the same in every run, and may take its time on a busy machine: a test
does not fail by chance. To explore, run pytest with --hypothesis-profile=default."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")
