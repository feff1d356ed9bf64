"""Checkpoints of a tiny model, written here as any number of ranks would have saved them."""

import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from tests.trainer.ranks import trainer_settings
from trainer.checkpoint.fingerprint import fingerprint
from trainer.checkpoint.layout import (
    CommitRecord,
    ShardFormat,
    commit,
    committed,
    folder_name,
    record_file,
)
from trainer.checkpoint.local_writer import shard_name
from trainer.checkpoint.writer import METADATA
from trainer.model import build_model
from trainer.settings import ModelPreset, ModelSettings


def parameters(vocabulary_size: int = 257) -> dict[str, Tensor]:
    """What a tiny model of fixed seed has, by the names that a checkpoint gives them."""
    model = build_model(
        ModelSettings(preset=ModelPreset.TINY, seed=7),
        vocabulary_size=vocabulary_size,
        mesh=None,
        device=torch.device("cpu"),
    )
    return {f"model.{name}": value.detach() for name, value in model.named_parameters()}


def store(
    run: Path,
    tensors: dict[str, Tensor],
    *,
    step: int = 10,
    world_size: int = 2,
    shard_format: ShardFormat = ShardFormat.DCP,
) -> Path:
    """A checkpoint of ``tensors`` as ``world_size`` ranks would have saved it."""
    folder = run / "checkpoints" / folder_name(step, 1)
    folder.mkdir(parents=True)
    if shard_format is ShardFormat.DCP:
        _write_dcp(folder, tensors, world_size)
    else:
        for rank in range(world_size):
            shards = {name: _rows(value, world_size)[rank] for name, value in tensors.items()}
            torch.save(shards, folder / shard_name(rank))
    record = CommitRecord(
        step=step,
        attempt=1,
        world_size=world_size,
        fingerprint=fingerprint(trainer_settings(run)),
        files=tuple(record_file(path) for path in sorted(folder.iterdir())),
        format=shard_format,
        run=run.name,
        max_steps=100,
    )
    commit(folder, record)
    return folder


def _rows(value: Tensor, world_size: int) -> list[Tensor]:
    """As FSDP2 cuts it: the last ranks may hold less, or nothing."""
    pieces = [piece.clone() for piece in value.chunk(world_size)]
    return pieces + [value[:0].clone()] * (world_size - len(pieces))


def _write_dcp(folder: Path, tensors: dict[str, Tensor], world_size: int) -> None:
    described: dict[str, Any] = {}
    places: dict[Any, Any] = {}
    for name, value in tensors.items():
        chunks, row = [], 0
        for rank, piece in enumerate(_rows(value, world_size)):
            path = folder / f"__{rank}_0.distcp"
            with path.open("ab") as file:
                begin = file.tell()
                torch.save(piece, file)
                offsets = torch.Size([row, *[0] * (value.dim() - 1)])
                place = _StorageInfo(path.name, begin, file.tell() - begin)
            places[MetadataIndex(name, offsets)] = place
            chunks.append(ChunkStorageMetadata(offsets, piece.shape))
            row += piece.shape[0]
            if not piece.numel():
                break
        described[name] = TensorStorageMetadata(
            TensorProperties.create_from_tensor(value), value.shape, chunks
        )
    (folder / METADATA).write_bytes(pickle.dumps(Metadata(described, storage_data=places)))


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def rewrite(checkpoint: Path, name: str, content: bytes) -> None:
    """Replace a file, and have the commit record vouch for it."""
    (checkpoint / name).write_bytes(content)
    (found,) = committed(checkpoint.parent)
    files = tuple(record_file(checkpoint / file.name) for file in found.record.files)
    commit(checkpoint, replace(found.record, files=files))
