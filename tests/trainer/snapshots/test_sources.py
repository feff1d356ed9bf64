"""How a rank opens a buffer's file: as it has it open already, or whosever shard is in it."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainer.snapshots.buffer import SnapshotBuffer
from trainer.snapshots.header import SnapshotKey
from trainer.snapshots.sources import NodeFiles


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
