"""Reads PyTorch's distributed checkpoints without running anything that lies in them.

``.metadata`` is a pickle, and a pickle names what is called to rebuild it. Only the
classes below are ever looked up, none of which acts when it is made. The shards
are read as weights alone, which PyTorch's reader does by itself; the one way by
which it unpickles more, an entry that is no tensor, is not among the classes.

Not covered: a file made to exhaust memory.
"""

import io
import pickle
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, cast

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata

from trainer.checkpoint.layout import Checkpoint
from trainer.checkpoint.writer import METADATA

_METADATA = "torch.distributed.checkpoint.metadata"
_ALLOWED = {
    (_METADATA, "ChunkStorageMetadata"),
    (_METADATA, "Metadata"),
    (_METADATA, "MetadataIndex"),
    (_METADATA, "StorageMeta"),
    (_METADATA, "TensorProperties"),
    (_METADATA, "TensorStorageMetadata"),
    (_METADATA, "_MEM_FORMAT_ENCODING"),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("torch.serialization", "_get_layout"),  # looks a name up in a table
    ("torch", "Size"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),  # where Python 3.13 says it is
}


class UntrustedMetadata(ValueError):
    """``.metadata`` holds something that no checkpoint of tensors needs."""


def read_metadata(path: Path) -> Metadata:
    """What the file at ``path`` says of a checkpoint's tensors.

    Raises:
        UntrustedMetadata: it is garbled, or names anything but what describes tensors.
        OSError: it cannot be read.
    """
    try:
        metadata = _Unpickler(io.BytesIO(path.read_bytes())).load()
    except UntrustedMetadata:
        raise
    except Exception as error:  # a garbled pickle raises nearly anything
        raise UntrustedMetadata(f"{METADATA} is garbled ({type(error).__name__})") from error
    if not isinstance(metadata, Metadata) or not _describes_tensors(metadata):
        raise UntrustedMetadata(f"{METADATA} describes no tensors")
    return metadata


class TensorReader(FileSystemReader):
    """PyTorch's reader, which only reads what ``read_metadata`` lets through.

    ``files`` are the names of the checkpoint's own files; no other one is opened. A tensor
    of another type than the one that it goes into would be cast without a word, and is refused.
    """

    def __init__(self, folder: Path, files: Iterable[str], into: Mapping[str, Tensor]) -> None:
        super().__init__(folder)
        self._folder = folder
        self._files = frozenset(files)
        self._into = into

    def read_metadata(self, *_args: Any, **_kwargs: Any) -> Metadata:
        """Raises ``UntrustedMetadata``, which PyTorch gathers from all ranks."""
        metadata = read_metadata(self._folder / METADATA)
        for name, saved in metadata.state_dict_metadata.items():
            tensor = self._into.get(name)
            assert isinstance(saved, TensorStorageMetadata)
            if tensor is not None and saved.properties.dtype is not tensor.dtype:
                raise UntrustedMetadata(
                    f"{name} is {saved.properties.dtype} there and {tensor.dtype} here"
                )
        for stored in metadata.storage_data.values():
            if stored.relative_path not in self._files:
                raise UntrustedMetadata(
                    f"{METADATA} names {stored.relative_path!r}, which is no file of the checkpoint"
                )
        return metadata


def _describes_tensors(metadata: Metadata) -> bool:
    tensors = getattr(metadata, "state_dict_metadata", None)
    storage = getattr(metadata, "storage_data", None)
    return (
        isinstance(tensors, dict)
        and all(isinstance(entry, TensorStorageMetadata) for entry in tensors.values())
        and isinstance(storage, dict)
        and all(isinstance(entry, _StorageInfo) for entry in storage.values())
    )


class _Unpickler(pickle._Unpickler):
    """The one in Python, because the one in C makes room for whatever a flipped bit asks for:
    one byte of a memo's number took 20 GB.
    """

    # This one, too, would fill as many bytes as it is told of; no metadata holds any.
    dispatch: ClassVar = {
        code: load
        for code, load in pickle._Unpickler.dispatch.items()
        if code != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _ALLOWED:
            return super().find_class(module, name)
        dtype = getattr(torch, name, None) if module == "torch" else None
        if isinstance(dtype, torch.dtype):
            return cast(Any, dtype)
        raise UntrustedMetadata(f"{METADATA} names {module}.{name}, which no checkpoint needs")


def read_dcp(checkpoint: Checkpoint, tensors: dict[str, Tensor]) -> str | None:
    """Fill ``tensors`` from it; what went wrong on any rank, in words. Collective."""
    names = [file.name for file in checkpoint.record.files]
    try:
        with torch.no_grad():
            dcp.load(tensors, storage_reader=TensorReader(checkpoint.path, names, tensors))
    except CheckpointException as error:  # raised on every rank, whichever failed
        return "; ".join(f"rank {rank}: {why[0]}" for rank, why in error.failures.items())
    return None
