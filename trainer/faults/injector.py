"""Makes this rank suffer the faults that the plan has for it, each once in the life of a run.

A fault that fired is a file in the run's folder, written before it fires: a run
that is restored to an earlier step, by whichever process, finds it there and
trains on. The other ranks know nothing; they see what a real failure shows them.
Not covered: a node lost between the file and the fault, which then never fires.
"""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from trainer.faults.plan import Fault, faults_due
from trainer.faults.settings import FaultKind

# Python delivers an asynchronous exception between two bytecodes, so a hang that in-process
# recovery can break must not sit in one long call.
HANG_SLEEP_SECONDS = 0.05


class InjectedFault(RuntimeError):
    """The planned exception; its message is the fault's name."""


class FaultInjector:
    """``plan`` is that of all ranks, already mapped to this run's world size."""

    def __init__(self, run_directory: Path, plan: tuple[Fault, ...], rank: int) -> None:
        self._folder = run_directory / "faults"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._plan = plan
        self._rank = rank
        self._steps = frozenset(fault.step for fault in plan)

    def already_fired(self) -> frozenset[str]:
        """Names of the faults that some rank of this run has suffered, as the folder has it now."""
        return frozenset(path.name for path in self._folder.iterdir())

    def fire_due(self, step: int, before: Callable[[Fault], None]) -> None:
        """Suffer what is due at ``step``; ``before`` is called with the fault just before it.

        Returns only if nothing is due. The folder is read only at a step of the plan.

        Raises:
            InjectedFault: an exception was due.
        """
        if step not in self._steps:
            return
        fired = self.already_fired()
        for fault in faults_due(self._plan, step=step, rank=self._rank, already_fired=fired):
            if self._remember(fault):
                before(fault)
                _suffer(fault)

    def _remember(self, fault: Fault) -> bool:
        """Put the fault on disk; False where another process was first."""
        try:
            file = os.open(self._folder / fault.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            return False
        _sync_and_close(file)
        _sync_and_close(os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY))
        return True


def _suffer(fault: Fault) -> NoReturn:
    match fault.kind:
        case FaultKind.EXCEPTION:
            raise InjectedFault(fault.name)
        case FaultKind.SIGKILL:
            os.kill(os.getpid(), signal.SIGKILL)
            raise AssertionError("a process outlived its own SIGKILL")
        case FaultKind.HANG:
            while True:
                time.sleep(HANG_SLEEP_SECONDS)


def _sync_and_close(file: int) -> None:
    try:
        os.fsync(file)
    finally:
        os.close(file)
