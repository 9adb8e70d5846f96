"""The exporter as its users have it, for the scenarios: started, scraped all the time, and what was
less in a scrape than in the one before.

Tests on the host import it, too: it needs no guest.
"""

from __future__ import annotations

import contextlib
import re
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

Json = dict[str, Any]
Samples = dict[str, float]

VIEWS = ("light", "fsync", "txg", "throttle", "arc", "device", "read")
# Series that may only rise: counters, and all of a histogram
_RISING = ("_total", "_bucket", "_count", "_sum")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_MOST_KEPT = 30
# A scrape is at most a second old
FRESH_S = 1.2
# An emulated guest on a busy machine takes a hundred times as long as any host
_TIMEOUT_S, PATIENT_S = 120, 900.0


def parse(text: str) -> Samples:
    """The samples of the text format, by their name and labels as they stand there."""
    found: Samples = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            series, _, value = line.rpartition(" ")
            found[series] = float(value)
    return found


def labels(series: str) -> dict[str, str]:
    return dict(_LABEL.findall(series))


def select(samples: Samples, metric: str, /, **wanted: str) -> Samples:
    """The series of a metric that have these labels."""
    return {
        series: value
        for series, value in samples.items()
        if series.partition("{")[0] == metric and wanted.items() <= labels(series).items()
    }


def total(samples: Samples, metric: str, /, **wanted: str) -> float:
    """The sum of those series, 0 for none: a counter that has not begun."""
    return sum(select(samples, metric, **wanted).values())


def rising(series: str) -> bool:
    return series.partition("{")[0].endswith(_RISING)


def gone_back(before: Samples, after: Samples) -> list[Json]:
    """What must not be less than it was, and is, or is not there any more."""
    return [
        {"series": series, "before": value, "after": after.get(series)}
        for series, value in before.items()
        if rising(series) and after.get(series, -1.0) < value
    ]


def get(port: int, path: str = "/metrics", accept: str = "") -> bytes:
    """What a scraper gets. Raises OSError."""
    headers = {"Accept": accept} if accept else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        found: bytes = answer.read()
    return found


def run(command: Sequence[str]) -> Json:
    """Status and output of a command, however long it takes."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENT_S)
    return {"status": done.returncode, "stdout": done.stdout, "stderr": done.stderr}


def until(what: str, true: Callable[[], object]) -> None:
    """Waits for it. Raises RuntimeError."""
    end = time.monotonic() + PATIENT_S
    while not true():
        if time.monotonic() > end:
            raise RuntimeError(f"it takes too long: {what}")
        time.sleep(0.2)


def unloaded() -> bool:
    """Unloads the module, if nobody uses it; returns whether it is gone."""
    subprocess.run(["modprobe", "-r", "zfs"], capture_output=True, check=False)
    return not Path("/sys/module/zfs").exists()


class Scraper:
    """Scrapes a port, from any thread, and compares each scrape with the one before."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.last: Samples = {}
        self.went_back: list[Json] = []
        self.failed: list[str] = []
        self.scrapes, self.slowest_s, self.largest = 0, 0.0, 0
        self._lock = threading.Lock()

    def scrape(self) -> Samples:
        """The samples now, or of a second ago. Raises OSError."""
        with self._lock:
            start = time.monotonic()
            body = get(self.port)
            self.slowest_s = max(self.slowest_s, time.monotonic() - start)
            self.largest = max(self.largest, len(body))
            samples = parse(body.decode())
            self.went_back += gone_back(self.last, samples)
            del self.went_back[_MOST_KEPT:]
            self.last, self.scrapes = samples, self.scrapes + 1
            return samples

    def fresh(self) -> Samples:
        """The samples of a moment after the call."""
        time.sleep(FRESH_S)
        return self.scrape()

    def begin_anew(self) -> None:
        """Another process has the port: its counters begin with 0."""
        with self._lock:
            self.last = {}

    def answers(self) -> bool:
        """Whether another process serves by now."""
        try:
            self.begin_anew()
            self.scrape()
        except OSError:
            return False
        return True

    def until(self, what: str, true: Callable[[Samples], object]) -> Samples:
        """Scrapes until true(samples). Raises RuntimeError."""
        end = time.monotonic() + PATIENT_S
        while True:
            samples = self.scrape()
            if true(samples):
                return samples
            if time.monotonic() > end:
                off = sorted(select(samples, "zfstune_trace_off_info"))
                raise RuntimeError(f"it takes too long: {what}; off: {off}")
            time.sleep(FRESH_S)

    def until_up(self, views: Sequence[str]) -> Samples:
        """Scrapes until these views count."""
        return self.until(
            f"the views {', '.join(views)}",
            lambda found: all(total(found, "zfstune_trace_up", view=view) == 1 for view in views),
        )

    @contextlib.contextmanager
    def watching(self, every_s: float) -> Iterator[None]:
        """Scrapes for the time of the body, too."""
        end = threading.Event()

        def watch() -> None:
            while not end.wait(every_s):
                try:
                    self.scrape()
                except OSError as error:
                    self.failed.append(repr(error))
                    del self.failed[_MOST_KEPT:]

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()

    def facts(self) -> Json:
        return {
            "scrapes": self.scrapes,
            "went_back": self.went_back,
            "failed": self.failed,
            "slowest_s": self.slowest_s,
            "largest": self.largest,
        }


class Exporter(Scraper):
    """`zfstune exporter ...`, which answers when start() returns."""

    def __init__(
        self, *args: str, port: int = 9810, command: Sequence[str] = ("zfstune", "exporter")
    ) -> None:
        super().__init__(port)
        self.command = [*command, "--listen", f"127.0.0.1:{port}", *args]
        # stays where the scenario fails
        self.stderr = Path(f"/out/exporter-{port}.err")
        self.stderr.unlink(missing_ok=True)
        self.start()

    def start(self) -> None:
        began = time.monotonic()
        self.begin_anew()
        with self.stderr.open("a") as err:
            self.process = subprocess.Popen(self.command, stdout=err, stderr=err)
        while True:
            try:
                self.scrape()
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > began + PATIENT_S:
                    raise RuntimeError(f"{self.command}: {self.said()}") from None
                time.sleep(0.1)
        self.start_s = time.monotonic() - began

    def said(self) -> str:
        return self.stderr.read_text()

    def stop(self, signum: int = signal.SIGTERM) -> int:
        """Ends it and returns its status."""
        self.process.send_signal(signum)
        return self.process.wait(PATIENT_S)

    def facts(self) -> Json:
        return super().facts() | {"status": self.process.poll(), "stderr": self.said()}


GET = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"


def connect(port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # as little as the kernel has: an answer must not fit
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    made.settimeout(_TIMEOUT_S)
    made.connect(("127.0.0.1", port))
    return made


def answer_to(port: int, request: bytes) -> str:
    """The first line of the answer; what came instead of one."""
    with connect(port) as made:
        # it may have heard enough; an answer is there all the same
        with contextlib.suppress(OSError):
            made.sendall(request)
        try:
            return made.recv(4096).decode(errors="replace").partition("\r\n")[0]
        except OSError as error:
            return repr(error)


@contextlib.contextmanager
def hostile(port: int, silent: int = 980, slow: int = 20) -> Iterator[Json]:
    """A thousand connections that say nothing or do not read their answer, and requests that are
    none: in the body what these got."""
    held: list[socket.socket] = []
    # a process may have 1,024 files at first; the exporter has a limit of its own
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    huge = b"GET /metrics HTTP/1.1\r\n" + b"X-Long: " + b"a" * (1 << 20) + b"\r\n\r\n"
    try:
        for _ in range(slow):
            made = connect(port)
            made.sendall(GET)
            held.append(made)
        held += [connect(port) for _ in range(silent)]
        yield {
            "huge": answer_to(port, huge),
            "garbage": answer_to(port, bytes(range(256)) * 8),
            "method": answer_to(port, b"DELETE /metrics HTTP/1.1\r\n\r\n"),
            "path": answer_to(port, b"GET /../../etc/shadow HTTP/1.1\r\n\r\n"),
        }
    finally:
        for made in held:
            made.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
