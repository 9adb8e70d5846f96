"""Generated input is the same in every run: a test does not fail by chance. To explore, run
pytest with --hypothesis-profile=default."""

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")
