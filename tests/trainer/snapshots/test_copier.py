"""Copiers: every value arrives, the fence waits and tells of failures, and nothing is left."""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from trainer.snapshots import copier as module
from trainer.snapshots.copier import CopyEnded, ThreadCopier
from trainer.snapshots.slices import slices_of

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8)
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def state() -> list[Tensor]:
    return [torch.arange(size, dtype=torch.float32) + 1 for size in (7, 0, 3)] + [torch.tensor(5.0)]


def zeros_like(tensors: list[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(tensor) for tensor in tensors]


def equal(left: list[Tensor], right: list[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.fixture
def closing() -> Iterator[Callable[[ThreadCopier], ThreadCopier]]:
    made: list[ThreadCopier] = []

    def keep(copier: ThreadCopier) -> ThreadCopier:
        made.append(copier)
        return copier

    yield keep
    for copier in made:
        assert copier.close()


@given(tensors=st.lists(st.tuples(shapes, st.sampled_from(DTYPES))), slice_bytes=st.integers(1, 64))
def test_slices_hold_every_value_once_and_are_of_equal_size(
    tensors: list[tuple[Any, torch.dtype]], slice_bytes: int
) -> None:
    sources = [torch.full(shape, 7, dtype=dtype) for shape, dtype in tensors]
    targets = zeros_like(sources)
    slices = slices_of(sources, targets, slice_bytes)
    pieces = list(itertools.chain(*slices))
    for piece in pieces:
        piece.target.add_(piece.source)
    assert equal(targets, sources)  # 14 where one came twice
    sizes = [sum(piece.source.nbytes for piece in pieces) for pieces in slices]
    widest = 8  # bytes of the widest type: no value is cut
    assert all(size <= max(slice_bytes, widest) for size in sizes)
    assert all(size > slice_bytes - widest for size in sizes[:-1])


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.zeros(2), torch.zeros(3)),
        (torch.zeros(2), torch.zeros(2, dtype=torch.float64)),
        (torch.zeros(2, 3).t(), torch.zeros(3, 2)),
    ],
)
def test_what_cannot_be_copied_in_pieces_is_refused(source: Tensor, target: Tensor) -> None:
    with pytest.raises(ValueError, match="both must be alike and contiguous"):
        slices_of([source], [target], 8)


def test_after_the_fence_every_value_has_been_copied(closing: Any) -> None:
    copier, sources = closing(ThreadCopier()), state()
    for _ in range(3):
        targets = zeros_like(sources)
        copy = copier.start(sources, targets)
        copier.fence()
        assert copy.is_done()
        assert equal(targets, sources)
        assert copy.seconds() > 0
        sources = [source + 1 for source in sources]


def test_start_returns_before_anything_is_copied_and_the_fence_after_all(closing: Any) -> None:
    may_go = threading.Event()
    copier = closing(ThreadCopier(delay=lambda: _held(may_go)))
    sources = state()
    targets = zeros_like(sources)
    copy = copier.start(sources, targets)
    assert not any(target.any() for target in targets)
    assert (copy.is_done(), copy.seconds()) == (False, None)
    may_go.set()
    copier.fence()
    assert equal(targets, sources)


def test_parameters_are_copied_without_a_graph(closing: Any) -> None:
    copier, target = closing(ThreadCopier()), torch.zeros(2)
    copier.start([nn.Parameter(torch.ones(2))], [target])
    copier.fence()
    assert target.tolist() == [1, 1]
    assert not target.requires_grad


def test_what_goes_wrong_in_the_thread_is_raised_at_the_fence_and_only_there(closing: Any) -> None:
    troubles = [OSError("page lost")]

    def delay() -> None:
        if troubles:
            raise troubles.pop()

    copier, sources = closing(ThreadCopier(delay)), state()
    copy = copier.start(sources, zeros_like(sources))
    with pytest.raises(OSError, match="page lost"):
        copier.fence()
    assert (copy.is_done(), copy.seconds()) == (False, None)
    copier.fence()
    assert copier.start(sources, sources) is not copy
    copier.fence()


def test_a_fence_without_a_copy_returns(closing: Any) -> None:
    closing(ThreadCopier()).fence()


def test_a_copy_without_a_fence_is_followed_by_none(closing: Any) -> None:
    copier = closing(ThreadCopier())
    copier.start([], [])
    with pytest.raises(AssertionError, match="no fence"):
        copier.start([], [])
    copier.fence()


def test_a_copy_under_way_ends_with_its_copier_and_is_never_done() -> None:
    entered, may_go = threading.Event(), threading.Event()

    def delay() -> None:
        entered.set()
        _held(may_go)

    copier, sources = ThreadCopier(delay), state()
    targets = zeros_like(sources)
    copy = copier.start(sources, targets)
    assert entered.wait(10)
    threading.Timer(0, may_go.set).start()
    assert copier.close()
    assert copy.is_done() == equal(targets, sources)
    assert not any(thread.name == "snapshot copier" for thread in threading.enumerate())


def test_the_fence_of_a_copier_that_was_closed_says_so() -> None:
    entered, may_go = threading.Event(), threading.Event()

    def delay() -> None:
        entered.set()
        _held(may_go)

    copier = ThreadCopier(delay)
    copier.start(state(), zeros_like(state()))
    assert entered.wait(10)
    copier._is_closed.set()  # as close does first, without its wait
    may_go.set()
    with pytest.raises(CopyEnded):
        copier.fence()
    assert copier.close()


def test_close_is_bounded_and_says_that_the_targets_are_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.05)
    may_go = threading.Event()
    copier = ThreadCopier(delay=lambda: _held(may_go))
    copier.start(state(), zeros_like(state()))
    assert not copier.close()
    may_go.set()
    monkeypatch.setattr(module, "CLOSE_SECONDS", 10.0)
    assert copier.close()


def _held(event: threading.Event) -> None:
    assert event.wait(30)
