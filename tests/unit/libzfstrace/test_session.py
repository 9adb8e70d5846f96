"""What the binding keeps of a session is no older than its last call of the library."""

from __future__ import annotations

import ctypes
from typing import Any

from zfstrace.bpf import binding
from zfstrace.bpf.session import Session


class Library:
    """Of one probe, by fentry, which the kernel skips; so a call attaches a kprobe instead. Only
    zfstrace_tidy() says so."""

    def __init__(self) -> None:
        self.how, self.reads = binding.HOW.index("fentry"), 0

    def zfstrace_probe(self, _handle: object, i: int, to: Any) -> bool:
        if i == 0:
            self.reads += 1
            to._obj.how, to._obj.cost = self.how, b"nothing can be measured"
        return i == 0

    def zfstrace_refresh(self, _handle: object) -> int:
        self.how = binding.HOW.index("kprobe")
        return 0

    def zfstrace_tidy(self, handle: object) -> int:
        changed = self.how != binding.HOW.index("kprobe")
        return self.zfstrace_refresh(handle) or int(changed)


def session(library: Library) -> Session:
    made = Session.__new__(Session)
    made.__dict__.update(_lib=library, _handle=ctypes.c_void_p(1), _probes=())
    return made


def test_probes_are_as_they_are_after_a_refresh() -> None:
    one = session(Library())
    assert [probe.how for probe in one.probes()] == ["fentry"]
    one.refresh()
    assert [probe.how for probe in one.probes()] == ["kprobe"]


def test_probes_are_read_again_only_if_tidying_has_changed_them() -> None:
    library = Library()
    one = session(library)
    for reads in (1, 2, 2):
        one.probes()
        assert library.reads == reads
        one.tidy()
