"""The state: every bit of it counts, it is there before the first step, and it comes back."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.optim import AdamW

from trainer.state import TrainState, local_shard, seed_random_numbers


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 3))


def state_of(parts: nn.Module, *, fused: bool = True) -> TrainState:
    return TrainState(parts, AdamW(parts.parameters(), lr=0.1, fused=fused))


def train(parts: nn.Module, optimizer: AdamW, *, num_steps: int) -> None:
    for step in range(num_steps):
        optimizer.zero_grad()
        parts(torch.arange(5)).pow(2 + step).sum().backward()
        optimizer.step()


def trained() -> TrainState:
    state = state_of(model())
    train(state.model, state.optimizer, num_steps=1)
    return state


TRAINED = trained()


@given(data=st.data())
def test_a_flipped_bit_anywhere_changes_the_digest(data: st.DataObject) -> None:
    before = TRAINED.digest()
    tensors = TRAINED.tensors()
    tensor = tensors[data.draw(st.sampled_from(sorted(tensors)))].detach()
    content = tensor.reshape(-1).view(torch.uint8)
    at = data.draw(st.integers(0, content.numel() - 1))
    bit = 1 << data.draw(st.integers(0, 7))
    content[at] ^= bit
    assert TRAINED.digest() != before
    content[at] ^= bit
    assert TRAINED.digest() == before


def test_equal_states_have_equal_digests() -> None:
    assert trained().digest() == trained().digest()


def test_names_are_the_same_before_and_after_training() -> None:
    parts = ("0.weight", "1.weight", "1.bias")
    moments = ("step", "exp_avg", "exp_avg_sq")
    expected = {f"model.{part}" for part in parts}
    expected |= {f"optimizer.{part}.{moment}" for part in parts for moment in moments}
    assert state_of(model()).tensors().keys() == expected
    assert TRAINED.tensors().keys() == expected


def test_a_frozen_parameter_is_kept_without_moments() -> None:
    parts = model()
    parts[0].weight.requires_grad = False  # type: ignore[index]
    names = state_of(parts).tensors().keys()
    assert "model.0.weight" in names
    assert not [name for name in names if name.startswith("optimizer.0.")]


def test_a_tied_parameter_is_kept_once() -> None:
    parts: Any = nn.Sequential(nn.Embedding(5, 4), nn.Linear(4, 5, bias=False))
    parts[1].weight = parts[0].weight
    moments = ("step", "exp_avg", "exp_avg_sq")
    expected = {"model.0.weight"} | {f"optimizer.0.weight.{moment}" for moment in moments}
    assert state_of(parts).tensors().keys() == expected


def test_a_parameter_without_gradient_is_left_with_moments_of_zero() -> None:
    parts = model()
    parts.unused = nn.Parameter(torch.ones(3))
    state = state_of(parts)
    optimizer = state.optimizer
    parts[0](torch.arange(5)).sum().backward()  # type: ignore[index]
    optimizer.step()
    tensors = state.tensors()
    assert torch.equal(tensors["model.unused"], torch.ones(3))
    for moment in ("step", "exp_avg", "exp_avg_sq"):
        assert not tensors[f"optimizer.unused.{moment}"].any()
        assert tensors[f"optimizer.0.weight.{moment}"].any()


@pytest.mark.parametrize("fused", [True, False])
def test_steps_from_moments_made_ahead_are_those_of_plain_adamw(fused: bool) -> None:
    ours, plain = state_of(model(), fused=fused), model()
    optimizer = AdamW(plain.parameters(), lr=0.1, fused=fused)
    train(ours.model, ours.optimizer, num_steps=3)
    train(plain, optimizer, num_steps=3)
    for mine, theirs in zip(ours.model.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, theirs)
        saved, expected = ours.optimizer.state[mine], optimizer.state[theirs]
        assert saved.keys() == expected.keys()
        for key, value in expected.items():
            assert torch.equal(saved[key], value), key
            assert (saved[key].dtype, saved[key].device) == (value.dtype, value.device), key


def test_moments_of_a_sharded_model_are_sharded_alike(mesh: DeviceMesh) -> None:
    parts: Any = model()
    state = state_of(fully_shard(parts, mesh=mesh))
    train(state.model, state.optimizer, num_steps=1)
    assert type(state.tensors()["optimizer.0.weight.exp_avg"]) is type(parts[0].weight)
    assert state.digest() == TRAINED.digest()


def test_writing_into_the_tensors_changes_the_training() -> None:
    parts = model()
    with torch.no_grad():
        for tensor in state_of(parts).tensors().values():
            tensor.fill_(2)
    assert all(torch.all(parameter == 2) for parameter in parts.parameters())


def numbers_of(seed: int, *, step: int, rank: int) -> list[float]:
    seed_random_numbers(seed, step=step, rank=rank)
    return [float(number) for number in torch.rand(3)]


def test_random_numbers_follow_from_seed_step_and_rank_alone() -> None:
    before = numbers_of(0, step=7, rank=1)
    torch.rand(1000)  # whatever was drawn since, in this process or another
    assert numbers_of(0, step=7, rank=1) == before
    others = [numbers_of(1, step=7, rank=1), numbers_of(0, step=8, rank=1)]
    assert before not in [*others, numbers_of(0, step=7, rank=0)]


def test_a_tensor_that_is_not_sharded_is_its_own_shard() -> None:
    tensor: Tensor = torch.zeros(3)
    assert local_shard(tensor) is tensor
