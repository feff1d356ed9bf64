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
from trainer.snapshots.copier import CopyEnded, StreamCopier, ThreadCopier
from trainer.snapshots.slices import slices_of

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8)
shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)


def state() -> list[Tensor]:
    return [torch.arange(size, dtype=torch.float32) + 1 for size in (7, 0, 3)] + [torch.tensor(5.0)]


def large_state() -> list[Tensor]:
    return [torch.arange(size, dtype=torch.float32) for size in (1000, 13, 0, 1, 700)]


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


class FakeGpu:
    """What the stream copier asks of ``torch.cuda``: notes the order of things, copies at once."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.is_idle = True
        gpu = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.is_timed = enable_timing

            def record(self, _: Any = None) -> None:
                gpu.log.append("slice" if self.is_timed else "end")

            def query(self) -> bool:
                return gpu.is_idle

            def elapsed_time(self, _: Any) -> float:
                return 250.0

        class Stream:
            def wait_stream(self, _: Any) -> None:
                gpu.log.append("copies wait for update")

            def wait_event(self, _: Any) -> None:
                gpu.log.append("update waits for copies")

            def query(self) -> bool:
                return gpu.is_idle

            def __enter__(self) -> None: ...

            def __exit__(self, *_: Any) -> None: ...

        self.Event, self.Stream = Event, Stream
        self.current_stream = Stream

    def stream(self, stream: Any) -> Any:
        return stream


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    fake = FakeGpu()
    monkeypatch.setattr("trainer.snapshots.copier.torch.cuda", fake)
    return fake


def layers(count: int) -> list[nn.Module]:
    return [nn.Identity() for _ in range(count)]


@given(sizes=st.lists(st.integers(0, 300)), num_layers=st.integers(1, 20))
def test_there_are_never_more_slices_than_layers_to_issue_them(
    sizes: list[int], num_layers: int
) -> None:
    sources = [torch.zeros(size) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainer.snapshots.copier.torch.cuda", FakeGpu())
        copier = StreamCopier(layers(num_layers))
        copier.start(sources, zeros_like(sources))
        assert len(copier._left) <= min(num_layers, 16)


def test_each_layer_issues_one_slice_and_the_fence_the_rest(gpu: FakeGpu) -> None:
    model, sources = layers(4), large_state()
    targets = zeros_like(sources)
    copier = StreamCopier(model)
    copy: Any = copier.start(sources, targets)
    assert gpu.log == ["copies wait for update"]
    for layer in model[:2]:
        layer(torch.zeros(1))
    assert [len(copy.slices), len(copier._left)] == [2, 2]
    assert not copy.is_done()  # although no event of the GPU is left unreached
    copier.fence()
    assert len(copy.slices) == 4
    assert gpu.log[-2:] == ["end", "update waits for copies"]
    assert equal(targets, sources)
    gpu.is_idle = False
    assert (copy.is_done(), copy.seconds()) == (False, None)
    gpu.is_idle = True
    assert (copy.is_done(), copy.seconds()) == (True, 1.0)  # four of a quarter


def test_a_layer_that_is_computed_again_issues_no_slice_twice(gpu: FakeGpu) -> None:
    model, sources = layers(2), large_state()
    copier = StreamCopier(model)
    copy: Any = copier.start(sources, zeros_like(sources))
    for layer in [*model, *reversed(model)]:
        layer(torch.zeros(1))
    copier.fence()
    copier.fence()
    assert len(copy.slices) == 2
    assert gpu.log.count("end") == 1


@pytest.mark.usefixtures("gpu")
def test_of_many_layers_sixteen_issue_slices_evenly() -> None:
    model = layers(32)
    StreamCopier(model)
    assert [bool(layer._forward_pre_hooks) for layer in model] == [True, False] * 16


def test_without_layers_the_fence_issues_all(gpu: FakeGpu) -> None:
    sources = state()
    targets = zeros_like(sources)
    copier = StreamCopier([])
    copier.start(sources, targets)
    copier.fence()
    assert equal(targets, sources)
    assert gpu.log[-1] == "update waits for copies"


@pytest.mark.usefixtures("gpu")
def test_close_takes_its_hooks_from_the_layers() -> None:
    model = layers(3)
    copier = StreamCopier(model)
    copier.start(state(), zeros_like(state()))
    assert copier.close()
    assert not any(layer._forward_pre_hooks for layer in model)


def test_close_waits_no_longer_for_a_stream_than_it_may(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.01)
    gpu.is_idle = False
    assert not StreamCopier(layers(1)).close()


def _held(event: threading.Event) -> None:
    assert event.wait(30)
