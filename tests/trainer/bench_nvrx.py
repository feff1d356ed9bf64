"""Bare NVRx for ``bench_saves``, in both of its asynchronous ways to save.

NVRx cannot save without a GPU. The shims marked as such let the tests of the benchmark
run on the CPU; on a GPU none of them acts.
"""

import inspect
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

from tests.trainer.bench_contenders import Bare
from trainer.distributed import Job
from trainer.state import TrainState, local_shard


class _Nvrx(Bare):
    """NVRx's queue with its persistent worker, whose death only its process tells."""

    def __init__(self, root: Path, job: Job, state: TrainState) -> None:
        super().__init__(root, job, state)
        if not self._on_gpu:
            _pretend_that_cuda_answers()
        self._queue: Any = None

    def _new_queue(self) -> Any:
        from nvidia_resiliency_ext.checkpointing.async_ckpt.core import AsyncCallsQueue

        # Shim: without a GPU, 0.6 and 0.7 divide by the number of GPUs unless told so.
        known = inspect.signature(AsyncCallsQueue.__init__).parameters
        shim = {} if self._on_gpu or "cpu_shm_mode" not in known else {"cpu_shm_mode": True}
        return AsyncCallsQueue(persistent=True, **shim)

    def _is_idle(self) -> bool:
        if self._queue.get_num_unfinalized_calls() == 0:
            return True
        process = self._queue.persistent_caller.process
        if not process.is_alive():
            raise OSError(f"the checkpoint worker died with exit code {process.exitcode}")
        return False


class NvrxLocal(_Nvrx):
    """``TorchAsyncCheckpoint(persistent_queue=True)``: each rank its shards, by ``torch.save``."""

    def __init__(self, root: Path, job: Job, state: TrainState) -> None:
        super().__init__(root, job, state)
        from nvidia_resiliency_ext.checkpointing.async_ckpt.torch_ckpt import TorchAsyncCheckpoint

        self._checkpoint = TorchAsyncCheckpoint(persistent_queue=True)
        if not self._on_gpu:
            self._checkpoint._async_calls_queue = self._new_queue()
        self._queue = self._checkpoint._async_calls_queue

    def begin(self, step: int) -> None:
        self.folder(step).mkdir(parents=True, exist_ok=True)
        shards = {name: local_shard(t).detach() for name, t in self._state.tensors().items()}
        if not self._on_gpu:  # shim: it would save later steps' values from CPU tensors
            shards = {name: shard.clone() for name, shard in shards.items()}
        self._checkpoint.async_save(shards, self.folder(step) / f"rank-{self._job.rank}.pt")

    def is_done(self) -> bool:
        self._checkpoint.finalize_async_save(blocking=False, no_dist=True)
        return self._is_idle()


class NvrxDcp(_Nvrx):
    """``FileSystemWriterAsync`` over the queue: DCP's format, plans cached between saves."""

    def __init__(self, root: Path, job: Job, state: TrainState) -> None:
        super().__init__(root, job, state)
        from nvidia_resiliency_ext.checkpointing.async_ckpt import state_dict_saver

        self._saver = state_dict_saver
        self._saver.init_checkpoint_metadata_cache()
        self._queue = self._new_queue()

    def begin(self, step: int) -> None:
        from nvidia_resiliency_ext.checkpointing.async_ckpt.core import AsyncRequest
        from nvidia_resiliency_ext.checkpointing.async_ckpt.filesystem_async import (
            FileSystemWriterAsync,
        )

        writer = FileSystemWriterAsync(self.folder(step))
        planned = self._saver.save_state_dict_async_plan(
            self._state.tensors(), writer, planner=dcp.DefaultSavePlanner(), enable_cache=True
        )
        write, preload, arguments = writer.get_save_function_and_args()
        if not self._on_gpu:  # shim: its last argument has the worker wait for CUDA
            preload = type(preload)(preload.func, *preload.args[:-1], False)

        def finish() -> None:
            self._saver.save_state_dict_async_finalize(*planned)
            dist.barrier()

        self._queue.schedule_async_request(
            AsyncRequest(write, arguments, [finish], preload_fn=preload)
        )

    def is_done(self) -> bool:
        self._queue.maybe_finalize_async_calls(blocking=False, no_dist=False)
        return self._is_idle()


def _pretend_that_cuda_answers() -> None:
    """Shim for tests on the CPU: NVRx asks CUDA for its device, and to wait for it."""
    cuda: Any = torch.cuda
    cuda.synchronize = lambda *_: None
    cuda.current_device = lambda: torch.device("cpu")
