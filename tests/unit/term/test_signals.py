"""What ends a trace, with real signals and pipes."""

from __future__ import annotations

import io
import os
import signal

import pytest

from zfstune.term.signals import Stop
from zfstune.term.units import MS, SECOND


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signals_end_the_wait(number: signal.Signals) -> None:
    # the tests themselves may run under nohup
    inherited = signal.signal(number, signal.default_int_handler)
    try:
        with Stop(io.StringIO()) as stop:
            assert not stop.wait(0)
            os.kill(os.getpid(), number)
            assert stop.wait(10 * SECOND)
            assert stop.asked
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, inherited)


def test_nohup_is_respected() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stop(io.StringIO()) as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.wait(10 * MS)
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_wait_lasts_as_long_as_asked() -> None:
    with Stop(io.StringIO()) as stop:
        start = stop.now()
        assert not stop.wait(30 * MS)
        assert stop.now() - start >= 30 * MS


def test_a_closed_stdout_ends_the_wait() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as out, Stop(out) as stop:
        assert not stop.wait(MS)
        os.close(reader)
        assert stop.wait(10 * SECOND)
        assert stop.reader_gone
        assert not stop.asked
