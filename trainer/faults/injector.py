"""Makes this rank suffer the faults that the plan has for it, each once in the life of a run.

A fault that fired is a file in the run's folder, written before it fires: a run
that is restored to an earlier step, by whichever process, finds it there and
trains on. The other ranks know nothing; they see what a real failure shows them.
Not covered: a node lost between the file and the fault, which then never fires;
clocks of nodes that differ, by which spaced faults come closer or further apart.
"""

import os
import time
from pathlib import Path

from trainer.distributed import Job
from trainer.events import EventLog
from trainer.faults.plan import Fault, faults_due, may_be_due, on_ranks, plan_faults
from trainer.faults.settings import FaultKind
from trainer.faults.suffer import Scene, linger, suffer
from trainer.settings import TrainerSettings


class FaultInjector:
    """Of one rank, for one attempt."""

    def __init__(self, settings: TrainerSettings, job: Job, events: EventLog) -> None:
        self._settings = settings
        self._job = job
        self._events = events
        plan = plan_faults(settings.faults, max_steps=settings.max_steps)
        self._plan = on_ranks(plan, job.world_size)
        self._folder = settings.run_directory / "faults"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._known: frozenset[str] = frozenset()
        """Faults that are known to have fired, and need no further look."""

        self._slow_steps_left = 0

    def fire_due(self, step: int) -> None:
        """Suffer what is due; called once a step, where no gradient has been used yet.

        Returns where nothing is due, or what is lets the step go on.

        Raises:
            Exception: That of the fault which was due.
        """
        for fault in self._due(step):
            if self._remember(fault):
                self._record(fault, step)
                if fault.kind is FaultKind.SLOW:
                    self._slow_steps_left = self._settings.faults.slow_steps
                else:
                    suffer(fault, Scene(self._settings, self._job, self._events.attempt, step))
        if self._slow_steps_left:
            self._slow_steps_left -= 1
            linger(self._settings.faults.slow_seconds)

    def fired(self) -> dict[str, float]:
        """The faults that some rank of this run has suffered, and the wall time of each."""
        return _written(self._folder)

    def _due(self, step: int) -> tuple[Fault, ...]:
        """The folder is read only where one of this rank's may be due."""
        rank, seconds_apart = self._job.rank, self._settings.faults.seconds_apart
        left = tuple(fault for fault in self._plan if fault.name not in self._known)
        waits = seconds_apart is not None
        if not may_be_due(left, step=step, rank=rank, waits=waits):
            return ()
        fired = self.fired()
        self._known = frozenset(fired)
        return faults_due(
            self._plan,
            step=step,
            rank=rank,
            fired=fired,
            now=time.time(),
            began=self._began() if waits else 0.0,
            seconds_apart=seconds_apart,
        )

    def _began(self) -> float:
        """When the first attempt of this run did."""
        attempts = _written(self._settings.run_directory / "attempts")
        return min(attempts.values(), default=time.time())

    def _remember(self, fault: Fault) -> bool:
        """Put the fault on disk; False where another process was first."""
        try:
            file = os.open(self._folder / fault.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        _sync_and_close(file)
        _sync_and_close(os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY))
        return True

    def _record(self, fault: Fault, step: int) -> None:
        self._events.record("fault_injected", kind=fault.kind.value, fault=fault.name, at_step=step)


def _written(folder: Path) -> dict[str, float]:
    """Each file in ``folder``, and the wall time at which it was written."""
    return {path.name: path.stat().st_mtime for path in folder.iterdir()}


def _sync_and_close(file: int) -> None:
    try:
        os.fsync(file)
    finally:
        os.close(file)
