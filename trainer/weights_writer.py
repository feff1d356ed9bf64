"""Writes weights as Hugging Face safetensors, piece by piece: no tensor is ever whole in memory.

The format is a length, a JSON header with every tensor's type, shape and place, and
the values one after the other (https://github.com/huggingface/safetensors#format).
"""

import json
import os
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from trainer.weights import INDEX_NAME, SINGLE_NAME

LARGEST_FILE_BYTES = 4 << 30
_TYPES = {torch.float32: "F32", torch.bfloat16: "BF16"}

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class WeightsFile:
    name: str
    tensors: tuple[str, ...]


def plan_files(shapes: Shapes, dtype: torch.dtype, *, limit_bytes: int) -> tuple[WeightsFile, ...]:
    """Which tensors go into which file: in order, each file as full as ``limit_bytes`` allows.

    A tensor larger than that has a file of its own.
    """
    groups: list[list[str]] = []
    room = 0
    for name, shape in shapes.items():
        size = prod(shape) * dtype.itemsize
        if not groups or size > room:
            groups.append([])
            room = limit_bytes
        groups[-1].append(name)
        room -= size
    if len(groups) == 1:
        return (WeightsFile(SINGLE_NAME, tuple(groups[0])),)
    return tuple(
        WeightsFile(f"model-{number:05d}-of-{len(groups):05d}.safetensors", tuple(names))
        for number, names in enumerate(groups, start=1)
    )


def write_weights(
    folder: Path,
    files: Iterable[WeightsFile],
    shapes: Shapes,
    dtype: torch.dtype,
    pieces: Callable[[str], Iterable[Tensor]],
    *,
    begin: Callable[[str, int], None],
) -> None:
    """Write ``files`` into ``folder``, and their index where they are several.

    ``begin`` is told the name and the bytes of a file before it is written.

    Raises:
        ValueError: the pieces of a tensor are not as many values as its shape has.
    """
    files = tuple(files)
    for file in files:
        own = {name: shapes[name] for name in file.tensors}
        begin(file.name, size_bytes(own, dtype))
        _write_file(folder / file.name, own, dtype, pieces)
    if len(files) > 1:
        index = {
            "metadata": {"total_size": size_bytes(shapes, dtype)},
            "weight_map": {name: file.name for file in files for name in file.tensors},
        }
        write_text(folder / INDEX_NAME, json.dumps(index, indent=2) + "\n")


def size_bytes(shapes: Shapes, dtype: torch.dtype) -> int:
    return sum(prod(shape) for shape in shapes.values()) * dtype.itemsize


def write_text(path: Path, text: str) -> None:
    """Write a small file durably."""
    with path.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _write_file(
    path: Path, shapes: Shapes, dtype: torch.dtype, pieces: Callable[[str], Iterable[Tensor]]
) -> None:
    header = _header(shapes, dtype)
    with path.open("wb", buffering=0) as file:
        _write_all(file.fileno(), struct.pack("<Q", len(header)) + header)
        for name, shape in shapes.items():
            missing = prod(shape)
            for piece in pieces(name):
                values = piece.to(dtype).contiguous().reshape(-1)
                missing -= values.numel()
                _write_all(file.fileno(), values.view(torch.uint8).numpy())
                del piece, values  # before the next one is read
            if missing:
                raise ValueError(f"{name} has {prod(shape) - missing} of {prod(shape)} values")
        os.fsync(file.fileno())


def _header(shapes: Shapes, dtype: torch.dtype) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        end = offset + prod(shape) * dtype.itemsize
        entries[name] = {
            "dtype": _TYPES[dtype],
            "shape": list(shape),
            "data_offsets": [offset, end],
        }
        offset = end
    content = json.dumps(entries, separators=(",", ":")).encode()
    return content + b" " * (-len(content) % 8)  # so that the values are aligned


def _write_all(descriptor: int, content: object) -> None:
    """All of it: one ``write`` takes 2 GiB at most."""
    rest = memoryview(content)  # type: ignore[arg-type]
    while rest:
        rest = rest[os.write(descriptor, rest) :]
