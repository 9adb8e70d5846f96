"""Generated input is the same in every run and has no deadline, so no test fails by chance. To
explore, run pytest with --hypothesis-profile=default."""

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.fake_module import ModuleHost

from zfstune.changes import keep, revert, status
from zfstune.params import command

settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # of a busy machine
)
settings.load_profile("repeatable")

# Ignored signals are inherited, from nohup(1) or from a shell that runs a job in the background:
# tests that send them would wait forever.
signal.signal(signal.SIGINT, signal.default_int_handler)
for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
    signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleHost:
    """The host of every command that uses the journal."""
    found = ModuleHost(tmp_path)
    monkeypatch.setenv("ZFSTUNE_STATE_DIR", str(found.where.state))
    monkeypatch.setenv("ZFSTUNE_RUN_DIR", str(found.where.run))
    for module in (keep, command, revert, status):
        monkeypatch.setattr(module, "open_host", lambda: found)
    monkeypatch.setattr("zfstune.host.open_host", lambda: found)
    monkeypatch.setattr("zfstune.changes.lock.WAIT_S", 0.0)
    return found
