"""Tensors read from a checkpoint piece by piece: whole, whatever the ranks, and never as code."""

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from tests.trainer.checkpoints import save, settings_for, shards_after
from tests.trainer.ranks import Crew
from tests.trainer.stored import parameters, rewrite, store
from trainer.checkpoint.layout import ShardFormat, committed
from trainer.checkpoint.stored_tensors import StoredTensors, UnreadableTensors, stored_tensors
from trainer.checkpoint.writer import METADATA

EMBEDDING = "model.model.embed_tokens.weight"
MODES = ("sync", "async", "async_local_shards")


@pytest.mark.distributed
@pytest.mark.parametrize("mode", MODES)
def test_uneven_and_empty_shards_are_put_together(crew: Crew, tmp_path: Path, mode: str) -> None:
    crew.call(save, settings_for(tmp_path, mode), 10)
    of_ranks = crew.call(shards_after, 10)
    expected = {
        name: torch.cat([torch.from_numpy(shards[name]) for shards in of_ranks])
        if first.ndim
        else torch.from_numpy(first)
        for name, first in of_ranks[0].items()
    }
    assert expected["model.embedding.weight"].shape == (257, 8)
    assert_equal(stored(tmp_path), expected)


@pytest.mark.parametrize("shard_format", ShardFormat)
def test_ranks_that_hold_nothing_of_a_tensor_change_nothing(
    tmp_path: Path, shard_format: ShardFormat
) -> None:
    tensors = parameters()  # of a norm's 64 values each of 32 ranks has two, and 16 have none
    store(tmp_path, tensors, world_size=48, shard_format=shard_format)
    assert_equal(stored(tmp_path), tensors)


def test_a_gap_between_pieces_is_refused(tmp_path: Path) -> None:
    checkpoint = store(tmp_path, parameters())
    metadata: Metadata = pickle.loads((checkpoint / METADATA).read_bytes())
    entry = metadata.state_dict_metadata[EMBEDDING]
    assert isinstance(entry, TensorStorageMetadata)
    entry.chunks = entry.chunks[1:]
    rewrite(checkpoint, METADATA, pickle.dumps(metadata))
    with pytest.raises(UnreadableTensors, match=f"{EMBEDDING} is not stored row after row"):
        list(stored(tmp_path).pieces(EMBEDDING))


def test_a_file_outside_the_commit_record_is_not_opened(tmp_path: Path) -> None:
    checkpoint = store(tmp_path, parameters())
    metadata: Metadata = pickle.loads((checkpoint / METADATA).read_bytes())
    for place in metadata.storage_data.values():
        place.relative_path = "../elsewhere"
    rewrite(checkpoint, METADATA, pickle.dumps(metadata))
    with pytest.raises(UnreadableTensors, match="has a piece in no known file"):
        list(stored(tmp_path).pieces(EMBEDDING))


def test_a_rank_that_lacks_a_tensor_is_named(tmp_path: Path) -> None:
    checkpoint = store(tmp_path, parameters(), shard_format=ShardFormat.LOCAL_SHARDS)
    shards = torch.load(checkpoint / "rank-1.pt", weights_only=True)
    del shards[EMBEDDING]
    torch.save(shards, checkpoint / "rank-1.pt")
    rewrite(checkpoint, "rank-1.pt", (checkpoint / "rank-1.pt").read_bytes())
    with pytest.raises(UnreadableTensors, match=f"rank-1.pt: lacks {EMBEDDING}"):
        stored(tmp_path).shapes()


@pytest.mark.parametrize("name", [METADATA, "__1_0.distcp", "rank-1.pt"])
def test_nothing_in_a_checkpoint_is_run(tmp_path: Path, name: str) -> None:
    is_local = name == "rank-1.pt"
    shard_format = ShardFormat.LOCAL_SHARDS if is_local else ShardFormat.DCP
    checkpoint = store(tmp_path, parameters(), shard_format=shard_format)
    trap = _Trap(tmp_path / "ran")
    if name == METADATA:
        (checkpoint / name).write_bytes(pickle.dumps(trap))
    elif is_local:
        torch.save({EMBEDDING: trap}, checkpoint / name)
    else:
        _put_in_place_of(EMBEDDING, trap, checkpoint, name)
    rewrite(checkpoint, name, (checkpoint / name).read_bytes())
    with pytest.raises(UnreadableTensors):
        list(stored(tmp_path).pieces(EMBEDDING))
    assert not (tmp_path / "ran").exists()


def _put_in_place_of(tensor: str, value: object, checkpoint: Path, name: str) -> None:
    metadata: Metadata = pickle.loads((checkpoint / METADATA).read_bytes())
    with (checkpoint / name).open("ab") as file:
        begin = file.tell()
        torch.save(value, file)
        for index, place in metadata.storage_data.items():
            if index.fqn == tensor and place.relative_path == name:
                place.offset, place.length = begin, file.tell() - begin
    rewrite(checkpoint, METADATA, pickle.dumps(metadata))


class _Trap:
    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


def stored(run: Path) -> StoredTensors:
    (checkpoint,) = committed(run / "checkpoints")
    return stored_tensors(checkpoint)


def assert_equal(stored: StoredTensors, expected: dict[str, Tensor]) -> None:
    assert stored.shapes() == {name: tuple(value.shape) for name, value in expected.items()}
    for name, value in expected.items():
        # Scalars have no rows to put together.
        pieces = [torch.atleast_1d(piece) for piece in stored.pieces(name)]
        assert torch.equal(torch.cat(pieces).reshape(value.shape), value), name
