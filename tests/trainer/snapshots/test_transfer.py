"""A shard that is cut into pieces is the same when they are put together again."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainer.snapshots import transfer
from trainer.snapshots.buffer import SnapshotBuffer
from trainer.snapshots.transfer import Span, fill, pack, span_of


def shard() -> list[Tensor]:
    torch.manual_seed(3)
    return [
        torch.randn(33, 3),
        torch.tensor(7.0),
        torch.empty(0, 4),
        torch.randn(50).to(torch.bfloat16),
        torch.arange(5, dtype=torch.int64),
        torch.randn(6, 4).t(),
    ]


@pytest.mark.parametrize("piece_bytes", [64, 192, 1 << 20])
def test_pieces_of_any_size_make_the_shard(
    monkeypatch: pytest.MonkeyPatch, piece_bytes: int
) -> None:
    monkeypatch.setattr(transfer, "PIECE_BYTES", piece_bytes)
    source = shard()
    target = [torch.zeros_like(tensor) for tensor in source]
    fill(target, ((piece, pack(source, piece)) for piece in span_of(source).pieces()))
    assert all(torch.equal(*pair) for pair in zip(source, target, strict=True))


def test_pieces_are_bounded_and_follow_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "PIECE_BYTES", 64)
    assert list(Span(4096, 4240).pieces()) == [
        Span(4096, 4160),
        Span(4160, 4224),
        Span(4224, 4240),
    ]


def test_what_is_packed_from_tensors_is_what_a_buffer_holds_of_them(tmp_path: Path) -> None:
    source = shard()
    buffer = SnapshotBuffer.open(tmp_path, "own", source, torch.device("cpu"))
    for slot, tensor in zip(buffer.tensors, source, strict=True):
        slot.copy_(tensor)
    span = span_of(source)
    assert torch.equal(pack(source, span), buffer.values[span.start : span.end])
    assert span.end == len(buffer.values)
