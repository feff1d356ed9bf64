"""The stream copier against a GPU that is played: when slices are issued, and what waits for what.

What a real one makes of it: ``tests/trainer/gpu_snapshots.py``.
"""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.trainer.snapshots.test_copier import equal, zeros_like
from trainer.snapshots import copier as module
from trainer.snapshots.copier import StreamCopier


def large_state() -> list[Tensor]:
    return [torch.arange(size, dtype=torch.float32) for size in (1000, 13, 0, 1, 700)]


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
    sources = large_state()
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
    copier.start(large_state(), zeros_like(large_state()))
    assert copier.close()
    assert not any(layer._forward_pre_hooks for layer in model)


def test_close_waits_no_longer_for_a_stream_than_it_may(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.01)
    gpu.is_idle = False
    assert not StreamCopier(layers(1)).close()
