"""What each kind of fault does to this process: the real thing, never an imitation of it.

Nothing here tells the other ranks, the layers or the report. They see what the
failure itself shows them.

Not covered: damage that only hardware can do (a link that drops, memory that flips
a bit), and a native call that hangs without holding the interpreter, which looks like
``hang`` to everyone but an asynchronous exception.
"""

import ctypes
import math
import os
import signal
import time
from dataclasses import dataclass

from trainer.distributed import Job
from trainer.faults import device, node, storage
from trainer.faults.plan import Fault
from trainer.faults.settings import FaultKind
from trainer.settings import TrainerSettings

# Python delivers an asynchronous exception between two bytecodes, so a hang that in-process
# recovery can break must not sit in one long call.
_SLEEP_SECONDS = 0.05

_MUTEX_BYTES = 64
"""More than a ``pthread_mutex_t`` of any Linux; zeros are one that nobody holds."""


class InjectedFault(RuntimeError):
    """The planned exception; its message is the fault's name."""


@dataclass(frozen=True, slots=True)
class Scene:
    """Where a fault happens."""

    settings: TrainerSettings
    job: Job
    attempt: int
    step: int


def suffer(fault: Fault, scene: Scene) -> None:
    """Let ``fault`` happen to this process, now; ``slow``, which takes many steps, is no such.

    Returns after ``storage_full``, which training outlives, and after ``stop`` if somebody
    continues the process.

    Raises:
        InjectedFault: ``exception`` was due.
        MemoryError: ``oom`` was, on a CPU.
        RuntimeError: What torch raises for ``oom``, ``cuda_error`` or ``collective_skip``.
    """
    match fault.kind:
        case FaultKind.EXCEPTION:
            raise InjectedFault(fault.name)
        case FaultKind.SIGKILL:
            kill_this_process()
        case FaultKind.HANG:
            linger(math.inf)
        case FaultKind.HANG_GIL:
            _hang_with_the_interpreter()
        case FaultKind.STOP:
            os.kill(os.getpid(), signal.SIGSTOP)
        case FaultKind.COLLECTIVE_SKIP:
            device.join_another_collective(scene.job)
        case FaultKind.OOM:
            device.ask_for_too_much(scene.job.device)
        case FaultKind.CUDA_ERROR:
            device.break_the_context(scene.job.device)
        case FaultKind.EXIT:
            os._exit(scene.settings.faults.exit_code)
        case FaultKind.NODE:
            node.kill_this_node()
        case FaultKind.STORAGE_FULL:
            storage.fill_the_next_save(
                scene.settings, rank=scene.job.rank, attempt=scene.attempt, step=scene.step
            )
        case FaultKind.CORRUPT_CHECKPOINT:
            storage.corrupt_the_newest(scene.settings, fault)
            kill_this_process()


def linger(seconds: float) -> None:
    """Sleep so long, in pieces that an asynchronous exception can end."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, _SLEEP_SECONDS))


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process outlived its own SIGKILL")


def _hang_with_the_interpreter() -> None:
    """A deadlock in native code that holds the GIL: no thread of Python ever runs again.

    A sleep or a wait would return when a signal arrives, and Python would run its handler. The
    lock of a mutex does not.
    """
    mutex = ctypes.create_string_buffer(_MUTEX_BYTES)
    lock = ctypes.PyDLL(None).pthread_mutex_lock  # PyDLL, unlike CDLL, keeps the GIL
    lock(mutex)
    lock(mutex)
    raise AssertionError("a mutex was locked twice")
