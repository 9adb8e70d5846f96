"""What tracing costs: how often each program of each tracer ran, and how long."""

from __future__ import annotations

from dataclasses import dataclass, field

from zfstrace.strict import strict_zip
from zfstrace.types import Json


@dataclass(frozen=True)
class ProgramCost:
    """What the kernel has counted of the program of one probe. how is Probe's."""

    tracer: str
    probe: str
    how: str
    runs: int = 0
    run_ns: int = 0

    def to_json(self) -> Json:
        return {
            "tracer": self.tracer,
            "probe": self.probe,
            "how": self.how,
            "runs": self.runs,
            "run_ns": self.run_ns,
        }


@dataclass(frozen=True)
class CostCounts:
    """The attached programs of all tracers; operations and lost count what the tracer "fsync" saw
    and missed, fsyncs and other ZIL commits; reads what the tracer "read" saw, reads and writes.
    unavailable says why a tracer does not run, by its name."""

    operations: int
    lost: int
    programs: tuple[ProgramCost, ...]
    unavailable: dict[str, str] = field(default_factory=dict)
    reads: int = 0

    def since(self, earlier: CostCounts) -> CostCounts:
        """What happened since an earlier state of the same programs."""
        return CostCounts(
            self.operations - earlier.operations,
            self.lost - earlier.lost,
            tuple(
                ProgramCost(
                    now.tracer,
                    now.probe,
                    now.how,
                    now.runs - then.runs,
                    now.run_ns - then.run_ns,
                )
                for now, then in strict_zip(self.programs, earlier.programs)
            ),
            self.unavailable,
            self.reads - earlier.reads,
        )

    def run_ns(self, tracer: str | None = None) -> int:
        """The time of a tracer's programs, or of all that a screen of all views has, on all CPUs
        together."""
        return sum(
            one.run_ns
            for one in self.programs
            if one.tracer == tracer or (tracer is None and one.tracer != "read")
        )

    def calls(self, tracer: str) -> int:
        """The operations that a tracer's programs serve."""
        return self.reads if tracer == "read" else self.operations
