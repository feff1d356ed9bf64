"""What lies in a checkpoint's folder is data: none of it is ever run."""

import os
import pickle
import struct
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import BytesStorageMetadata
from torch.distributed.device_mesh import DeviceMesh

from trainer.checkpoint.metadata import TensorReader, UntrustedMetadata, read_metadata

SHARD = "__0_0.distcp"


class Touch:
    """Unpickled, it makes a file: code that ran."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self._path),)


@pytest.fixture
def folder(tmp_path: Path, mesh: DeviceMesh) -> Path:
    """A checkpoint of one rank, as PyTorch saves it."""
    assert mesh.size() == 1
    path = tmp_path / "checkpoint"
    tensors = {"a": torch.arange(6.0).reshape(2, 3), "b": torch.ones((), dtype=torch.bfloat16)}
    dcp.save(tensors, checkpoint_id=path)
    return path


def load(folder: Path, tensors: dict[str, torch.Tensor]) -> None:
    dcp.load(tensors, storage_reader=TensorReader(folder, [SHARD], tensors))


def test_what_pytorch_saves_is_read_back(folder: Path) -> None:
    tensors = {"a": torch.zeros(2, 3), "b": torch.zeros((), dtype=torch.bfloat16)}
    load(folder, tensors)
    assert tensors["a"].tolist() == [[0, 1, 2], [3, 4, 5]]
    assert tensors["b"].item() == 1


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_that_calls_something_is_refused_and_calls_nothing(
    protocol: int, folder: Path, tmp_path: Path
) -> None:
    proof = tmp_path / "ran"
    content = pickle.dumps(Touch(proof), protocol=protocol)
    (folder / ".metadata").write_bytes(content)
    with pytest.raises(UntrustedMetadata, match=r"names posix\.mkdir, which no checkpoint needs"):
        read_metadata(folder / ".metadata")
    assert not proof.exists()
    pickle.loads(content)
    assert proof.exists()  # it would have run


@pytest.mark.parametrize(
    "function", ["builtins.eval", "torch.load", "torch.serialization.load", "os.system"]
)
def test_functions_are_not_reached_by_their_names(function: str, tmp_path: Path) -> None:
    module, _, name = function.rpartition(".")
    path = tmp_path / ".metadata"
    path.write_bytes(f"c{module}\n{name}\n(Vx\ntR.".encode())
    with pytest.raises(UntrustedMetadata, match=function):
        read_metadata(path)


def rewrite(folder: Path, change: Any) -> None:
    metadata = read_metadata(folder / ".metadata")
    change(metadata)
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))


def test_an_entry_that_pytorch_would_unpickle_whole_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    # PyTorch reads the bytes of an entry that is no tensor with weights_only=False.
    def call_it_bytes(metadata: Any) -> None:
        metadata.state_dict_metadata["a"] = BytesStorageMetadata()

    rewrite(folder, call_it_bytes)
    torch.save(Touch(tmp_path / "ran"), folder / SHARD)
    with pytest.raises(CheckpointException, match="BytesStorageMetadata"):
        load(folder, {"a": torch.zeros(2, 3)})
    assert not (tmp_path / "ran").exists()


def test_a_shard_that_calls_something_is_refused_and_calls_nothing(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The variable by which PyTorch can be told to trust what it loads must not reach this.
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    torch.save(Touch(tmp_path / "ran"), folder / SHARD)

    def span_the_file(metadata: Any) -> None:
        for stored in metadata.storage_data.values():
            stored.offset, stored.length = 0, (folder / SHARD).stat().st_size

    rewrite(folder, span_the_file)
    with pytest.raises(CheckpointException, match="Weights only load failed"):
        load(folder, {"a": torch.zeros(2, 3)})
    assert not (tmp_path / "ran").exists()


def test_no_file_outside_the_checkpoint_is_opened(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes((folder / SHARD).read_bytes())

    def point_elsewhere(metadata: Any) -> None:
        for stored in metadata.storage_data.values():
            stored.relative_path = "../other"

    rewrite(folder, point_elsewhere)
    with pytest.raises(CheckpointException, match=r"'\.\./other', which is no file of the"):
        load(folder, {"a": torch.zeros(2, 3)})


def test_values_of_another_type_are_refused_not_cast(folder: Path) -> None:
    with pytest.raises(CheckpointException, match=r"a is torch\.float32 there and torch\.float64"):
        load(folder, {"a": torch.zeros(2, 3, dtype=torch.float64)})


def garble(content: bytes, kind: str) -> bytes:
    return {"empty": b"", "cut": content[:-20], "text": b"no pickle", "none": b"N."}[kind]


@pytest.mark.parametrize("kind", ["empty", "cut", "text", "none"])
def test_garbled_metadata_is_refused(kind: str, folder: Path) -> None:
    path = folder / ".metadata"
    path.write_bytes(garble(path.read_bytes(), kind))
    with pytest.raises(UntrustedMetadata, match=r"\.metadata (is garbled|describes no tensors)"):
        read_metadata(path)


@pytest.mark.parametrize(
    "asks_for_room",
    [
        b"\x80\x05Nr" + struct.pack("<I", 2**27) + b".",
        b"\x80\x05\x96" + struct.pack("<Q", 2**28) + b".",
    ],
    ids=["number of a memo", "length of bytes"],
)
def test_what_a_garbled_file_asks_for_is_not_allocated(folder: Path, asks_for_room: bytes) -> None:
    (folder / ".metadata").write_bytes(asks_for_room)
    tracemalloc.start()
    try:
        with pytest.raises(UntrustedMetadata):
            read_metadata(folder / ".metadata")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_any_flipped_bit_is_read_or_refused_and_raises_nothing_else(folder: Path) -> None:
    path = folder / ".metadata"
    whole = path.read_bytes()
    for bit in range(0, 8 * len(whole), 7):
        content = bytearray(whole)
        content[bit // 8] ^= 1 << bit % 8
        path.write_bytes(content)
        try:
            read_metadata(path)
        except UntrustedMetadata:
            continue
