"""NVRx's persistent checkpoint worker, with the guards it lacks.

NVRx never notices that its worker died: a save stays "pending", later ones are
lost, and closing hangs (0.4.1 to 0.7.0). So liveness is asked of the process
itself, nothing here waits without a limit, and a worker that cannot be trusted
is killed and replaced. One exists per trainer process and outlives an
in-process restart.

All that touches NVRx's private parts is here, as they are in 0.4.1 to 0.7.0.
"""

import inspect
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from multiprocessing.process import BaseProcess
from types import SimpleNamespace
from typing import Any, Protocol

import torch

from trainer.checkpoint.host_memory import HostMemory
from trainer.checkpoint.worker_queue import WorkerQueue

logger = logging.getLogger(__name__)

KILL_SECONDS = 5.0


class CallState(StrEnum):
    IDLE = "idle"
    RUNNING = "running"
    DEAD = "dead"


class SaveTarget(Protocol):
    """Where ``torch.save`` writes in the worker; it goes there by pickle."""

    def write(self, content: memoryview) -> object:
        """Take the next bytes. An exception would kill the worker."""

    def flush(self) -> None:
        """The end of the file, or of the attempt to write it."""


class BackgroundWorker:
    """Runs calls one after the other in NVRx's worker process."""

    def __init__(self) -> None:
        self._queue: Any = None
        self._memory: HostMemory | None = None

    def memory(self, size_bytes: int, device: torch.device) -> HostMemory:
        """Memory to stage at least so much in: that of an earlier attempt, if it is enough.

        Only for an attempt that has called ``start``, so that nothing writes from it any more.
        """
        if self._memory and self._memory.suits(size_bytes, device):
            return self._memory
        self._memory = None  # first, so that both never exist together
        self._memory = HostMemory(size_bytes, device)
        return self._memory

    def start(self, warm_up: Callable[[int], None]) -> None:
        """Make a worker ready that owes nothing to an earlier attempt."""
        if self._queue is not None and self.state() is not CallState.IDLE:
            self.kill()
        if self._queue is None:
            self._queue = _new_queue()
        # Of an old worker too: it keeps the arguments of its last call until the next.
        self.call(warm_up, os.getpid())

    def call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have the worker run ``function``; returns at once."""
        # Imported late: whoever only saves synchronously never pays for it.
        from nvidia_resiliency_ext.checkpointing.async_ckpt.core import AsyncRequest

        self._queue.schedule_async_request(AsyncRequest(function, arguments, []))

    def save(self, state: object, target: SaveTarget) -> None:
        """Have NVRx's ``TorchAsyncCheckpoint`` save ``state`` in the worker; returns at once.

        ``state`` must not hold live tensors: on CPU their storage would be moved into
        shared memory and read when the next step has changed it.
        """
        from nvidia_resiliency_ext.checkpointing.async_ckpt.torch_ckpt import TorchAsyncCheckpoint

        checkpoint = TorchAsyncCheckpoint(persistent_queue=True)
        assert hasattr(checkpoint, "_async_calls_queue")  # else ours would not be used
        # The queue it made for itself starts a worker that divides by the number of GPUs.
        checkpoint._async_calls_queue = self._queue
        try:
            with _no_wait_for_an_unused_gpu():
                checkpoint.async_save(state, target)
        finally:
            # From 0.6 on its destructor closes the queue, and waits for the worker to end.
            checkpoint._async_calls_queue = None

    def state(self) -> CallState:
        """Whether calls are still running, or nobody is left to run them. Never waits."""
        if self._queue is None:
            return CallState.DEAD
        self._queue.maybe_finalize_async_calls(blocking=False, no_dist=True)
        process = self._process()
        if process is None or not process.is_alive():
            return CallState.DEAD
        is_idle = self._queue.get_num_unfinalized_calls() == 0
        return CallState.IDLE if is_idle else CallState.RUNNING

    def kill(self) -> None:
        """End the worker now. What it had reported is durable; what it was writing is debris."""
        process = self._process()
        if process is not None:
            process.kill()
            process.join(KILL_SECONDS)
        self._forget()

    def _process(self) -> BaseProcess | None:
        caller = self._queue.persistent_caller if self._queue is not None else None
        process: BaseProcess | None = caller.process if caller is not None else None
        return process

    def _forget(self) -> None:
        if self._queue is not None and self._queue.persistent_caller is not None:
            # Its destructor would wait for a process that is gone and, in 0.6 and 0.7,
            # settle what is left undone in a collective that no other rank calls.
            self._queue.async_calls.clear()
            caller = self._queue.persistent_caller
            caller.process = None
            for queue in (caller.queue, caller.preload_q, caller.comp_q):
                queue.close()
        self._queue = None


def _new_queue() -> Any:
    from nvidia_resiliency_ext.checkpointing.async_ckpt import core

    # Of __init__: the metaclass of 0.6 and 0.7 hides the parameters of the class itself.
    known = inspect.signature(core.AsyncCallsQueue.__init__).parameters
    # 0.6 and 0.7 pick a GPU for the worker unless told otherwise, and divide by the
    # number of GPUs; ours only ever touches host memory.
    options = {"cpu_shm_mode": True} if "cpu_shm_mode" in known else {}
    queue = core.AsyncCallsQueue(persistent=True, **options)
    with _queues_without_names(core):
        caller = queue._get_async_caller()
    assert isinstance(caller.queue, WorkerQueue)  # else semaphores would be left in /dev/shm
    return queue


@contextmanager
def _queues_without_names(core: Any) -> Iterator[None]:
    """While the block runs, NVRx makes each queue to its worker out of a pipe."""
    ours = SimpleNamespace(JoinableQueue=WorkerQueue, Queue=WorkerQueue)
    multiprocessing = core.mp
    try:
        core.mp = SimpleNamespace(get_context=lambda _method: ours)
        yield
    finally:
        core.mp = multiprocessing


@contextmanager
def _no_wait_for_an_unused_gpu() -> Iterator[None]:
    """``async_save`` waits for the GPU, and raises where PyTorch was built for none."""
    if torch.cuda.is_initialized():
        yield
        return
    synchronize = torch.cuda.synchronize
    torch.cuda.synchronize = lambda *_: None
    try:
        yield
    finally:
        torch.cuda.synchronize = synchronize
