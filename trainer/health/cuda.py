"""Whether the GPU computes, asked by the process that holds (or is about to make) its context.

A context that has failed stays broken until its process ends, and says nothing about the
GPU: a new process finds out. So where this process had one before, only the process
is condemned; where a new context cannot compute, the node is.

Not covered: a GPU that computes wrongly or slowly; other kernels than the one run here.
"""

from trainer.bounded import bounded
from trainer.health.finding import Finding, Verdict, failed, passed

CHECK = "cuda"
KERNEL_SECONDS = 30.0
"""The first one makes the context, of all GPUs of a node at once."""


def check_cuda(local_rank: int) -> Finding:
    """Run one tiny kernel on this rank's GPU and wait for it."""
    import torch

    had_context = torch.cuda.is_initialized()
    try:
        bounded(lambda: _compute(local_rank), seconds=KERNEL_SECONDS)
    except (RuntimeError, AssertionError, OSError) as error:
        return broken(local_rank, error, had_context=had_context)
    return passed(CHECK, f"GPU {local_rank} computes")


def broken(local_rank: int, error: Exception, *, had_context: bool) -> Finding:
    """What is told of a kernel that did not come to its end."""
    words = error.strerror if isinstance(error, OSError) else str(error)
    reason = f"GPU {local_rank} does not compute: {(words or '?').splitlines()[0]}"
    if not had_context:
        return failed(CHECK, reason)
    return Finding(CHECK, Verdict.FAILED, f"{reason} (in a used context)", is_of_process=True)


def _compute(local_rank: int) -> None:
    import torch

    device = torch.device("cuda", local_rank)
    two = torch.ones(1, device=device) + 1
    torch.cuda.synchronize(device)
    if two.item() != 2.0:
        raise RuntimeError(f"1 + 1 is {two.item()}")
