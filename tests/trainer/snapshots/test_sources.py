"""How a rank opens a buffer's file: as it has it open already, or whosever shard is in it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainer.snapshots.buffer import SnapshotBuffer
from trainer.snapshots.header import HEADER_BYTES, Header, SnapshotKey, pack
from trainer.snapshots.offers import Holding, Offer, Source
from trainer.snapshots.sources import BufferSource, NodeFiles


def filled(folder: Path, value: Tensor) -> SnapshotBuffer:
    buffer = SnapshotBuffer.open(folder, "own", [value], torch.device("cpu"))
    buffer.get_ready()
    buffer.wait(30)
    buffer.begin(SnapshotKey(0, 1, 5, 1, bytes(16)))
    buffer.tensors[0].copy_(value)
    buffer.finish(0.5)
    return buffer


def test_a_buffer_that_is_open_already_is_used_as_it_is(tmp_path: Path) -> None:
    buffer = filled(tmp_path, torch.ones(3))
    assert NodeFiles({buffer.path: buffer}).attach(buffer.path) is buffer


def test_a_file_is_read_without_knowing_what_is_in_it(tmp_path: Path) -> None:
    buffer = filled(tmp_path, torch.arange(7, dtype=torch.int64))
    attached = NodeFiles().attach(buffer.path)
    assert attached.header() == buffer.header()
    assert torch.equal(attached.values, buffer.values)


def test_a_file_that_is_mapped_shows_what_is_written_later(tmp_path: Path) -> None:
    buffer = filled(tmp_path, torch.ones(3))
    attached = NodeFiles().attach(buffer.path)
    buffer.begin(SnapshotKey(0, 1, 6, 1, bytes(16)))
    header = attached.header()
    assert header is not None
    assert not header.is_whole


@pytest.mark.parametrize("content", [None, b""], ids=["gone", "empty"])
def test_a_file_that_cannot_be_mapped_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "own"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OSError, match="own"):
        NodeFiles().attach(path)


OFFERED = Offer(0, 1, 5, Source.SNAPSHOT, 0, Holding("a", "own"), sequence=2)


def rewritten(path: Path, *, sequence: int = 2, **key: int) -> None:
    """As by whoever replaced the file: its sequence numbers begin anew."""
    fields = {"coordinate": 0, "attempt": 1, "step": 5, "world_size": 1} | key
    header = Header(sequence, SnapshotKey(**fields, identity=bytes(16)), 64, 0.5)
    with path.open("r+b") as file:
        file.write(pack(header))


@pytest.mark.parametrize(
    "other", [{"coordinate": 1}, {"attempt": 2}, {"step": 6}, {"sequence": 4}], ids=str
)
def test_what_differs_in_anything_from_the_offer_is_neither_opened_nor_trusted(
    tmp_path: Path, other: dict[str, int]
) -> None:
    buffer = filled(tmp_path, torch.ones(3))
    source = BufferSource(OFFERED, buffer)
    assert source.is_as_offered()
    rewritten(buffer.path, **other)
    assert not source.is_as_offered()
    with pytest.raises(OSError, match="own was filled anew"):
        BufferSource(OFFERED, buffer)


def test_a_header_that_is_torn_is_neither_opened_nor_trusted(tmp_path: Path) -> None:
    buffer = filled(tmp_path, torch.ones(3))
    source = BufferSource(OFFERED, buffer)
    with buffer.path.open("r+b") as file:
        file.write(bytes(HEADER_BYTES // 2))
    assert not source.is_as_offered()
    with pytest.raises(OSError, match="own was filled anew"):
        BufferSource(OFFERED, buffer)
