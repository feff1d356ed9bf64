"""Reads what ``LocalWriter`` saved: each rank its own file, into the live state.

Only the ranks that wrote can read: shards are taken as they are, never cut anew.
Nothing in a file is unpickled as code. Not covered: the file is mapped, so storage
that fails after its checksum was verified ends the process, not only the read.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.checkpoint.layout import Checkpoint, CommitRecord, ShardFormat
from trainer.checkpoint.local_writer import shard_name
from trainer.state import local_shard


def why_other_ranks(record: CommitRecord, world_size: int) -> str | None:
    """Why ``world_size`` ranks cannot read what ``record`` is of, or None; reads nothing."""
    if record.format is not ShardFormat.LOCAL_SHARDS or record.world_size == world_size:
        return None
    saved_by = _ranks(record.world_size)
    return (
        f"saved by {saved_by} as local shards, which only {saved_by} can read, and "
        f"{world_size} run now; restart with {saved_by}, or do so once with "
        "checkpoint.mode=async, whose next checkpoint any number of ranks can read"
    )


def read(checkpoint: Checkpoint, tensors: dict[str, Tensor], rank: int) -> str | None:
    """Fill ``tensors`` from this rank's file; None, or in words why not.

    The caller has verified the checksums, and that as many ranks read as saved. Where it
    says why not, ``tensors`` are as they were, on this rank alone: the ranks must still agree.
    """
    name = shard_name(rank)
    if name not in {file.name for file in checkpoint.record.files}:
        return f"{name} is not in the commit record"
    saved = _load(checkpoint.path / name)
    if isinstance(saved, str):
        return saved
    shards = {name: local_shard(tensor) for name, tensor in tensors.items()}
    if problem := _difference(saved, shards):
        return f"{name}: {problem}"
    with torch.no_grad():
        for name, shard in shards.items():
            shard.copy_(saved[name])
    return None


def _load(path: Path) -> dict[Any, Any] | str:
    """What ``path`` holds, or in words why it cannot be read."""
    try:
        content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # a file that is not ours may break PyTorch's reader in any way
        return f"{path.name} cannot be read: {type(error).__name__}: {error}".splitlines()[0]
    return content if isinstance(content, dict) else f"{path.name} holds no dictionary of tensors"


def _difference(saved: dict[Any, Any], wanted: dict[str, Tensor]) -> str | None:
    if missing := wanted.keys() - saved.keys():
        return f"{min(missing)} is missing"
    if unknown := saved.keys() - wanted.keys():
        return f"{min(unknown, key=str)} is in it, and not in this run's state"
    for name, tensor in wanted.items():
        value = saved[name]
        if not isinstance(value, Tensor):
            return f"{name} is no tensor"
        if (value.shape, value.dtype) != (tensor.shape, tensor.dtype):
            return f"{name} is {_kind(value)}, and {_kind(tensor)} in this run"
    return None


def _ranks(count: int) -> str:
    return f"{count} rank" if count == 1 else f"{count} ranks"


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} {tuple(tensor.shape)}"
