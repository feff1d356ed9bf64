"""Fifty restarts in one run, in process and in job, and whether anything grows: ``make soak``.

Each run is the rendered Job, rehearsed with one fault every few steps; after
each restart, once a step of the new attempt is done, all its processes are
sampled. Exit code: 0 nothing grows; 1 something does, or a run failed; 130 stopped.
"""

import ctypes
import json
import sys
import tempfile
from pathlib import Path

from tests.chaos.one_plan import LIMITS, own_shared_memory
from tests.chaos.plans import Plan, PlannedFault
from tests.chaos.runs import render
from tests.soak.growth import Sample, Trend, trends
from tests.soak.processes import sample
from trainer import exit_codes
from trainer.events import read_events
from trainer.faults.settings import FaultKind
from trainer.settings import CheckpointMode, RecoveryLayer
from workloads.rehearsal.interrupts import Interrupts
from workloads.rehearsal.job import read_job
from workloads.rehearsal.pod_plan import local_path
from workloads.rehearsal.run_job import Limits, run_job
from workloads.rehearsal.this_computer import places_for

OUT = Path("out/soak")
NUM_RESTARTS = 50
STEPS_APART = 5
LAYERS = (RecoveryLayer.IN_PROCESS, RecoveryLayer.IN_JOB)
LIMIT = Limits(backoff_factor=LIMITS.backoff_factor, seconds=3600.0)


class Sampler:
    """A rehearsal's watcher: one sample for each attempt, taken at its second step or later."""

    def __init__(self, run_directory: Path, mark: bytes) -> None:
        self.samples: list[Sample] = []
        self._run_directory = run_directory
        self._mark = mark
        self._sampled = 0

    def tick(self, *, num_replaced: int) -> None:
        del num_replaced
        events = read_events(self._run_directory)
        attempt = max(
            (int(e["attempt"]) for e in events if e["name"] == "step_completed"), default=0
        )
        if attempt > self._sampled:
            self._sampled = attempt
            self.samples.append(sample(self._mark))

    def say(self, sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)


def soak_plan(layer: RecoveryLayer, num_restarts: int) -> Plan:
    """Exceptions on both ranks by turns; for in-job every other one is a SIGKILL."""
    kinds = [FaultKind.EXCEPTION]
    if layer is RecoveryLayer.IN_JOB:
        kinds.append(FaultKind.SIGKILL)
    faults = tuple(
        PlannedFault(kinds[i % len(kinds)], step=(i + 1) * STEPS_APART, rank=i % 2)
        for i in range(num_restarts)
    )
    return Plan(
        name=f"soak-{layer.value}".replace("_", "-"),
        layer=layer,
        mode=CheckpointMode.ASYNC,
        num_nodes=1,
        ranks_per_node=2,
        exit_code=0,
        faults=faults,
    )


def main(num_restarts: int = NUM_RESTARTS, out: Path = OUT) -> int:
    good = True
    # Where that is not allowed, what others do in /dev/shm is counted too.
    own_shared_memory(ctypes.CDLL(None))
    with Interrupts() as interrupts:
        for layer in LAYERS:
            outcome, samples = soak(soak_plan(layer, num_restarts), out, interrupts)
            if interrupts.count:
                return exit_codes.INTERRUPTED
            found = trends(samples) if outcome == "complete" else []
            print(text(layer, outcome, found, num_samples=len(samples)), flush=True)
            good = good and bool(found) and not any(trend.grows for trend in found)
    return 0 if good else 1


def soak(plan: Plan, out: Path, interrupts: Interrupts) -> tuple[str, list[Sample]]:
    """Rehearse ``plan``; how it ended, and a sample for each attempt."""
    num_restarts = len(plan.faults)
    run = render(
        plan,
        {
            "max_steps": (num_restarts + 2) * STEPS_APART,
            "checkpoint.interval_steps": STEPS_APART,
            "recovery.max_restarts": 2 * num_restarts,
        },
    )
    job = read_job(run.documents)
    folder = out.resolve() / plan.name
    with tempfile.TemporaryDirectory(prefix=f"soak-{plan.name}-") as scratch:
        places = places_for(job, run_folder=Path(scratch) / "run", scratch=Path(scratch) / "pods")
        places.pods.mkdir(parents=True)
        sampler = Sampler(local_path(job, places, run.run_directory), f"TMPDIR={scratch}".encode())
        result = run_job(job, places, LIMIT, interrupts=interrupts, watcher=sampler)
        folder.mkdir(parents=True, exist_ok=True)
        for log in places.pods.glob("*.log"):
            (folder / log.name).write_bytes(log.read_bytes())
    (folder / "samples.json").write_text(json.dumps(sampler.samples))
    return result.outcome, sampler.samples


def text(layer: RecoveryLayer, outcome: str, found: list[Trend], *, num_samples: int) -> str:
    lines = [f"{layer.value}: {outcome}, {num_samples} attempts sampled"]
    lines.append(
        f"  {'measure':<24}{'first':>14}{'last':>14}{'a restart':>12}{'late':>12}{'bound':>10}"
    )
    for trend in found:
        ends = f"{trend.first:>14.0f}{trend.last:>14.0f}"
        slopes = f"{trend.slope:>12.3f}{trend.late_slope:>12.3f}{trend.bound:>10g}"
        lines.append(f"  {trend.measure:<24}{ends}{slopes}{'  GROWS' if trend.grows else ''}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
