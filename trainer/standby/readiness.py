"""Everything that a worker imports, and whether a process that has done so may still fork.

A fork copies one thread, and CUDA does not work in the child of a process that has
used it. So nothing here asks for a GPU, not even how many there are, and what some import
did unasked is found by its traces: threads, and open devices of the driver.

Not covered: locks that a thread held which has ended since; none of these imports leaves any.
"""

import gc
import importlib
import pkgutil
import sys
from collections.abc import Iterable
from pathlib import Path

import trainer

_OTHERS = (
    "nvidia_resiliency_ext.checkpointing.async_ckpt.torch_ckpt",
    "torch._dynamo",
    "torch.distributed.checkpoint",
    "torch.distributed.fsdp",
    "transformers.models.llama.modeling_llama",
)
"""What the trainer, or a library that it calls, imports late."""

_DEVICES = "/dev/nvidia"


def import_everything() -> None:
    for module in pkgutil.walk_packages(trainer.__path__, f"{trainer.__name__}."):
        if not module.name.endswith(".__main__"):
            importlib.import_module(module.name)
    for name in _OTHERS:
        importlib.import_module(name)
    # Out of the collector's sight: it would write to, and so copy, pages that workers share.
    gc.collect()
    gc.freeze()


def why_not_forkable() -> str | None:
    """Why a fork of this process would be no whole worker, in words; None if it would be."""
    num_threads = len(list(Path("/proc/self/task").iterdir()))
    return reason_against_a_fork(num_threads, _open_files()) or _cuda_in_use()


def reason_against_a_fork(num_threads: int, open_files: Iterable[str]) -> str | None:
    """From what a process has: its threads, and where its descriptors lead."""
    if num_threads > 1:
        return f"an import left {num_threads} threads in the standby process"
    if devices := sorted({path for path in open_files if path.startswith(_DEVICES)}):
        return f"an import has used the GPU driver ({', '.join(devices)} is open)"
    return None


def _open_files() -> list[str]:
    found = []
    for link in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(link.readlink()))
        except OSError:  # that of the listing itself
            continue
    return found


def _cuda_in_use() -> str | None:
    torch = sys.modules.get("torch")
    if torch and torch.cuda.is_initialized():
        return "an import has initialized CUDA"
    return None
