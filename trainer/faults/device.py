"""Faults of memory, GPU and collectives."""

import torch
import torch.distributed as dist

from trainer.distributed import Job

_BEYOND_ANY_ADDRESS = 1 << 62
_WORDS_OF_A_RANK = 1 << 20
"""More than any small collective that the other ranks are in could ever bring."""


class Desynchronised(RuntimeError):
    """This rank was in another collective than the others, and must not go on with them."""


def ask_for_too_much(device: torch.device) -> None:
    """Real requests, refused by the real allocators at once: no page is touched.

    Raises:
        torch.cuda.OutOfMemoryError: on a GPU, for twice what it has.
        MemoryError: on a CPU, for more than there are addresses.
    """
    if device.type == "cuda":
        _, total_bytes = torch.cuda.mem_get_info(device)
        torch.empty(2 * total_bytes, dtype=torch.uint8, device=device)
    else:
        bytearray(_BEYOND_ANY_ADDRESS)
    raise AssertionError("there was no limit to the memory")


def break_the_context(device: torch.device) -> None:
    """A device-side assert: from here on every CUDA call of this process fails with it.

    Raises:
        RuntimeError: always; the process can never use its GPU again.
    """
    beyond = torch.ones(1, dtype=torch.int64, device=device)
    torch.zeros(1, device=device)[beyond]
    torch.cuda.synchronize(device)
    raise AssertionError("an index beyond its tensor was taken")


def join_another_collective(job: Job) -> None:
    """Leave out the step's own collectives from here on, and wait in one that nobody joins.

    The others wait in the reduction of the gradients' norm. With gloo an all-gather and an
    all-reduce never meet, however alike their numbers; with NCCL they do, but this one needs
    more bytes than the others have. So all wait until a timeout or an abort. Whatever
    comes of it, this rank does not reach the agreement without which nobody completes the
    step.

    Raises:
        Desynchronised: the collective returned, with whatever in it.
        RuntimeError: it timed out or was aborted.
    """
    mine = torch.zeros(_WORDS_OF_A_RANK, device=job.device)
    dist.all_gather([torch.empty_like(mine) for _ in range(job.world_size)], mine)
    if job.device.type == "cuda":
        torch.cuda.synchronize(job.device)
    raise Desynchronised("this rank left out a collective of the step, and may not complete it")
