"""What a process keeps of an attempt for the next: the plain tensors, once, and nothing else."""

import gc
import weakref
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.optim import AdamW

from tests.trainer.ranks import UnevenModel, fill
from trainer.snapshots.live import Live, has_room
from trainer.state import TrainState, local_shard

IDENTITY = bytes(16)


def sharded(mesh: DeviceMesh) -> TrainState:
    model: Any = fully_shard(UnevenModel(), mesh=mesh)
    state = TrainState(model, AdamW(model.parameters(), fused=True))
    fill(state, seed=5000)
    return state


def kept(tensors: Sequence[Tensor], *, step: int | None = 4, live: Live | None = None) -> Live:
    live = live or Live()
    live.keep(tensors, coordinate=1, attempt=2, step=step, identity=IDENTITY)
    return live


def test_the_tensors_of_a_sharded_state_come_back_bit_by_bit(mesh: DeviceMesh) -> None:
    state, new = sharded(mesh), sharded(mesh)
    digest = state.digest()
    fill(new, seed=6000)
    live = kept(list(state.tensors().values()))
    live.copy_to([local_shard(tensor).detach() for tensor in new.tensors().values()])
    assert new.digest() == digest


def test_no_sharded_tensor_is_kept_alive(mesh: DeviceMesh) -> None:
    state = sharded(mesh)
    sharded_tensors = [
        weakref.ref(tensor) for tensor in state.tensors().values() if isinstance(tensor, DTensor)
    ]
    live = kept(list(state.tensors().values()))
    del state
    gc.collect()
    assert sharded_tensors
    assert [reference() for reference in sharded_tensors] == [None] * len(sharded_tensors)
    assert live.kept is not None
    assert {type(tensor) for tensor in live.kept.tensors} == {Tensor}


def test_what_is_kept_remembers_no_computation(mesh: DeviceMesh) -> None:
    live = kept(list(sharded(mesh).tensors().values()))
    assert live.kept is not None
    assert not any(tensor.requires_grad or tensor._base is not None for tensor in live.kept.tensors)


def test_nothing_is_copied_to_be_kept() -> None:
    tensor = torch.ones(4)
    live = kept([tensor])
    assert live.kept is not None
    assert live.kept.tensors[0].data_ptr() == tensor.data_ptr()


def test_what_is_let_go_of_is_freed() -> None:
    live = kept([torch.ones(4)])
    assert live.kept is not None
    storage = weakref.ref(live.kept.tensors[0])
    live.let_go()
    gc.collect()
    assert storage() is None


def test_tensors_in_mid_update_are_not_kept() -> None:
    assert kept([torch.ones(4)], step=None).kept is None


def test_an_attempt_that_never_took_over_leaves_what_is_kept_to_the_next() -> None:
    live = kept([torch.full((4,), 7.0)], step=4)
    kept([torch.zeros(4)], step=None, live=live)
    target = torch.zeros(4)
    live.copy_to([target])
    assert target.tolist() == [7.0] * 4


@pytest.mark.parametrize(
    "target",
    [[torch.zeros(2, 2)], [torch.zeros(4, dtype=torch.float64)], [], [torch.zeros(4)] * 2],
    ids=["shape", "type", "fewer", "more"],
)
def test_tensors_of_another_form_are_refused_and_not_written_to(target: list[Tensor]) -> None:
    with pytest.raises(ValueError, match="another shape or type"):
        kept([torch.ones(4)]).copy_to(target)
    assert not any(tensor.any() for tensor in target)


def test_without_anything_kept_nothing_can_be_copied() -> None:
    with pytest.raises(ValueError, match="no tensors"):
        Live().copy_to([])


def test_a_second_state_needs_its_own_size_and_a_tenth() -> None:
    assert has_room(1000, 1100)
    assert not has_room(1000, 1099)
