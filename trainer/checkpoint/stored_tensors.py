"""Reads a checkpoint's tensors one piece at a time: no process group, no GPU, little memory.

A tensor comes as consecutive rows, since FSDP2 cuts it along its first dimension.
One piece is in memory at a time. Nothing is unpickled as code. Not covered: tensors
that are cut along another dimension, which are refused.
"""

import io
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorStorageMetadata,
)

from trainer.checkpoint.layout import Checkpoint, ShardFormat
from trainer.checkpoint.local_writer import shard_name
from trainer.checkpoint.metadata import UntrustedMetadata, read_metadata
from trainer.checkpoint.writer import METADATA


class UnreadableTensors(ValueError):
    """Files that are as their commit record says, and yet hold something else than expected."""


class StoredTensors(Protocol):
    """The tensors of one checkpoint, whole, whatever the ranks that saved them."""

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor by name."""

    def pieces(self, name: str) -> Iterator[Tensor]:
        """Its consecutive rows. Drop each piece before the next is asked for.

        Raises:
            UnreadableTensors: what is stored is no such tensor.
        """


def stored_tensors(checkpoint: Checkpoint) -> StoredTensors:
    """The tensors of ``checkpoint``, in whichever format they were saved."""
    if checkpoint.record.format is ShardFormat.LOCAL_SHARDS:
        return LocalShards(checkpoint)
    return DcpTensors(checkpoint)


class DcpTensors:
    """Of PyTorch's distributed checkpoint format."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._folder = checkpoint.path
        self._files = {file.name for file in checkpoint.record.files}
        try:
            self._metadata = read_metadata(checkpoint.path / METADATA)
        except UntrustedMetadata as error:
            raise UnreadableTensors(f"{checkpoint.path}: {error}") from error

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {
            name: tuple(entry.size)
            for name, entry in self._metadata.state_dict_metadata.items()
            if isinstance(entry, TensorStorageMetadata)
        }

    def pieces(self, name: str) -> Iterator[Tensor]:
        entry = self._metadata.state_dict_metadata[name]
        assert isinstance(entry, TensorStorageMetadata)
        rows = 0
        for chunk in sorted(entry.chunks, key=lambda chunk: tuple(chunk.offsets)):
            if not chunk.sizes.numel():  # of a rank that holds nothing of it
                continue
            if any(chunk.offsets[1:]) or sum(chunk.offsets[:1]) != rows:
                raise UnreadableTensors(f"{self._folder}: {name} is not stored row after row")
            piece = self._read(name, chunk)
            if piece.shape != chunk.sizes:
                raise UnreadableTensors(
                    f"{self._folder}: {name} has a piece of shape {tuple(piece.shape)} "
                    f"where {tuple(chunk.sizes)} was announced"
                )
            rows += sum(chunk.sizes[:1])
            yield piece
            del piece  # before the next one is read

    def _read(self, name: str, chunk: ChunkStorageMetadata) -> Tensor:
        stored = (self._metadata.storage_data or {}).get(MetadataIndex(name, chunk.offsets))
        if stored is None or stored.relative_path not in self._files:
            raise UnreadableTensors(f"{self._folder}: {name} has a piece in no known file")
        path = self._folder / stored.relative_path
        with path.open("rb") as file, _Part(file, stored.offset, stored.length) as part:
            with _readable(path):
                piece = torch.load(cast(BinaryIO, part), map_location="cpu", weights_only=True)
            return _tensor(piece, path)


class LocalShards:
    """Of one file a rank, each with that rank's rows of every tensor."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._folder = checkpoint.path
        # Mapped, not read: pages come when a piece is used and go when memory is short.
        self._ranks = [
            self._shards(checkpoint.path / shard_name(rank))
            for rank in range(checkpoint.record.world_size)
        ]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: self._shape(name) for name in self._ranks[0]}

    def pieces(self, name: str) -> Iterator[Tensor]:
        whole = not self._shape(name)
        yield from (piece for piece in self._held(name)[: 1 if whole else None] if piece.numel())

    def _shape(self, name: str) -> tuple[int, ...]:
        shapes = [tuple(piece.shape) for piece in self._held(name)]
        if not shapes[0]:  # a scalar, which every rank holds alike
            return ()
        if any(shape[1:] != shapes[0][1:] for shape in shapes):
            raise UnreadableTensors(f"{self._folder}: the ranks' parts of {name} do not fit")
        return (sum(shape[0] for shape in shapes), *shapes[0][1:])

    def _held(self, name: str) -> list[Tensor]:
        for rank, shards in enumerate(self._ranks):
            if name not in shards:
                raise UnreadableTensors(f"{self._folder / shard_name(rank)}: lacks {name}")
        return [shards[name] for shards in self._ranks]

    @staticmethod
    def _shards(path: Path) -> dict[str, Tensor]:
        with _readable(path):
            shards = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
        if not isinstance(shards, dict):
            raise UnreadableTensors(f"{path}: holds no tensors by name")
        return {str(name): _tensor(value, path) for name, value in shards.items()}


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Say of PyTorch's many complaints about ``path`` what they mean."""
    try:
        yield
    except (pickle.UnpicklingError, RuntimeError, ValueError, EOFError) as error:
        reason = str(error).partition("\n")[0]
        raise UnreadableTensors(f"{path}: holds no tensors of this trainer ({reason})") from error


def _tensor(value: object, path: Path) -> Tensor:
    if not isinstance(value, Tensor):
        raise UnreadableTensors(f"{path}: holds a {type(value).__name__} where a tensor should be")
    return value


class _Part(io.RawIOBase):
    """A part of a file as a file of its own, so that a piece is not in memory twice."""

    def __init__(self, file: io.BufferedReader, offset: int, length: int) -> None:
        super().__init__()
        self._file, self._offset, self._length = file, offset, length
        self._file.seek(offset)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self.tell(), io.SEEK_END: self._length}[whence]
        return self._file.seek(self._offset + start + offset) - self._offset

    def tell(self) -> int:
        return self._file.tell() - self._offset

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        room = memoryview(buffer)[: max(0, self._length - self.tell())]
        return self._file.readinto(room)
