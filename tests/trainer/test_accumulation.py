"""A step's gradients: those of the whole batch at once, however it is cut into ranks and passes."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from tests.trainer.ranks import Crew, trainer_settings
from trainer.distributed import Job
from trainer.model import build_model
from trainer.optimization import (
    Optimization,
    adamw,
    clip_gradients,
)
from trainer.settings import ModelPreset, ModelSettings, OptimizerSettings, TrainerSettings
from trainer.state import TrainState, local_shard

CPU = torch.device("cpu")
END = 256


def settings_of(
    tmp_path: Any, *, batch: int, micro: int | None = None, **optimizer: float
) -> TrainerSettings:
    data = {"global_batch_size": batch, "micro_batch_size": micro}
    return trainer_settings(tmp_path, data=data, optimizer=optimizer)


def optimization_of(model: nn.Module, job: Job, settings: TrainerSettings, end: int) -> Any:
    state = TrainState(model, adamw(model, settings.optimizer))
    return Optimization(settings, job=job, state=state, end_of_text=end)


def tiny(mesh: DeviceMesh | None) -> Any:
    settings = ModelSettings(preset=ModelPreset.TINY)
    return build_model(settings, vocabulary_size=257, mesh=mesh, device=CPU)


def five_windows() -> Tensor:
    """The second is mostly padding, the fifth nothing else."""
    tokens = (torch.arange(5 * 17).reshape(5, 17) * 7) % 256
    tokens[1, 3:] = END
    tokens[4] = END
    return tokens


def part_of(job: Job, tokens: Tensor) -> Tensor:
    size = len(tokens)
    return tokens[job.rank * size // job.world_size : (job.rank + 1) * size // job.world_size]


def step(job: Job, settings: TrainerSettings, tokens: Tensor) -> tuple[float, dict[str, Any]]:
    """This rank's share of the loss, and all gradients, whole."""
    model = tiny(job.mesh)
    loss = optimization_of(model, job, settings, END).backward(part_of(job, tokens))
    gradients = {
        name: parameter.grad.full_tensor().numpy() for name, parameter in model.named_parameters()
    }
    return loss.item(), gradients


def expected_step(tokens: Tensor) -> tuple[float, dict[str, Tensor]]:
    """The unsharded model on the whole batch, padding taken out by hand."""
    model = tiny(None)
    logits = model(input_ids=tokens[:, :-1]).logits
    is_label = ~((tokens[:, :-1] == END) & (tokens[:, 1:] == END))
    loss = cross_entropy(logits[is_label], tokens[:, 1:][is_label])
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


@pytest.mark.distributed
@pytest.mark.parametrize(("world_size", "micro"), [(2, None), (2, 2), (3, 1)])
def test_neither_ranks_nor_micro_batches_change_loss_or_gradients(
    world_size: int, micro: int | None, crew_of: Callable[[int], Crew], tmp_path: Any
) -> None:
    tokens = five_windows()
    settings = settings_of(tmp_path, batch=5, micro=micro)
    shares = crew_of(world_size).call(step, settings, tokens)
    loss, gradients = expected_step(tokens)
    assert sum(share for share, _ in shares) == pytest.approx(loss, rel=1e-6)
    for name, expected in gradients.items():
        actual = torch.from_numpy(shares[0][1][name])
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-7)


@pytest.mark.distributed
def test_a_batch_of_padding_alone_has_no_loss_and_no_gradient(crew: Crew, tmp_path: Any) -> None:
    tokens = torch.full((2, 17), END)
    for loss, gradients in crew.call(step, settings_of(tmp_path, batch=2), tokens):
        assert loss == 0.0
        assert not any(gradient.any() for gradient in gradients.values())


class Output(NamedTuple):
    logits: Tensor


class Table(nn.Module):
    """Says of the token after 0 that it is 0 or 1, and of any other that it is one of all four."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(4, 4)
        with torch.no_grad():
            self.rows.weight.zero_()
            self.rows.weight[0, 2:] = -1e9

    def forward(self, input_ids: Tensor) -> Output:
        return Output(logits=self.rows(input_ids))


class Reductions(TorchDispatchMode):
    """Counts the reductions of gradients while it is entered."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.count += "reduce_scatter" in str(func)
        return func(*args, **(kwargs or {}))


# Three labels of ln 2 on rank 0; on rank 1 one of ln 4, and five places of padding.
TOKENS = [[0, 0, 0, 0], [1, 3, 3, 3], [3, 3, 3, 3]]


def step_of_table(
    job: Job, settings: TrainerSettings, tokens: list[list[int]]
) -> tuple[float, int, Any]:
    """This rank's share of the loss, how often gradients were reduced, and the gradient."""
    model: Any = fully_shard(Table(), mesh=job.mesh)
    optimization = optimization_of(model, job, settings, 3)
    with Reductions() as reductions:
        loss = optimization.backward(part_of(job, torch.tensor(tokens)))
    return loss.item(), reductions.count, model.rows.weight.grad.full_tensor().tolist()


@pytest.mark.distributed
@pytest.mark.parametrize("micro", [None, 1])
def test_every_label_weighs_the_same_wherever_it_is(
    micro: int | None, crew: Crew, tmp_path: Any
) -> None:
    results = crew.call(step_of_table, settings_of(tmp_path, batch=3, micro=micro), TOKENS)
    # 3 ln 2 / 4 and ln 4 / 4; the mean of the ranks' means would be 1.5 ln 2.
    assert [share for share, *_ in results] == pytest.approx(
        [0.75 * math.log(2), 0.5 * math.log(2)]
    )


@pytest.mark.distributed
def test_a_rank_without_labels_takes_part_and_adds_nothing(crew: Crew, tmp_path: Any) -> None:
    tokens = [[0, 0, 0, 0], [3, 3, 3, 3]]
    results = crew.call(step_of_table, settings_of(tmp_path, batch=2), tokens)
    assert [share for share, *_ in results] == pytest.approx([math.log(2), 0])
    gradient = results[0][2]
    # Half for each of two tokens, less one for the right one.
    assert gradient[0] == pytest.approx([-0.5, 0.5, 0, 0])
    assert not any(map(any, gradient[1:]))


def norm_with_impossible_label(job: Job, settings: TrainerSettings) -> tuple[bool, bool]:
    """Rank 1 has a label of probability 0; whether its loss and the norm are numbers."""
    model: Any = fully_shard(Table(), mesh=job.mesh)
    with torch.no_grad():
        if job.rank == 0:  # which holds the row
            local_shard(model.rows.weight)[0, 2] = -math.inf
    optimization = optimization_of(model, job, settings, 3)
    tokens = torch.tensor([[0, 0, 0, 0], [0, 2, 2, 2]])
    loss = optimization.backward(part_of(job, tokens))
    return bool(loss.isfinite()), bool(optimization.clip().isfinite())


def test_a_label_of_probability_zero_has_a_gradient_that_is_a_number() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf]], requires_grad=True)
    loss = cross_entropy(logits, torch.tensor([2]))
    loss.backward()
    assert loss.item() == math.inf
    assert logits.grad is not None
    assert logits.grad.isfinite().all()


@pytest.mark.distributed
def test_a_loss_that_is_no_number_on_one_rank_leaves_no_rank_a_norm(
    crew: Crew, tmp_path: Any
) -> None:
    results = crew.call(norm_with_impossible_label, settings_of(tmp_path, batch=2))
    assert results == [(True, False), (False, False)]


@pytest.mark.distributed
def test_gradients_are_reduced_once_a_step(crew: Crew, tmp_path: Any) -> None:
    results = crew.call(step_of_table, settings_of(tmp_path, batch=3, micro=1), TOKENS)
    assert [count for _, count, _ in results] == [1, 1]


class Weights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.two = nn.Parameter(torch.ones(2, 1))
        self.one = nn.Parameter(torch.ones(1))


def clipped(job: Job, max_norm: float) -> tuple[float, list[float]]:
    model: Any = fully_shard(Weights(), mesh=job.mesh)
    for parameter, whole in ((model.two, [[3.0], [4.0]]), (model.one, [12.0])):
        shard = torch.tensor(whole).chunk(2)[job.rank :][:1] or (torch.empty(0),)
        parameter.grad = DTensor.from_local(
            shard[0],
            job.mesh,
            parameter.placements,
            shape=parameter.shape,
            stride=parameter.stride(),
        )
    norm = clip_gradients(model, max_norm)
    return norm.item(), [*model.two.grad.full_tensor().flatten(), *model.one.grad.full_tensor()]


@pytest.mark.distributed
@pytest.mark.parametrize(("max_norm", "expected"), [(6.5, [1.5, 2, 6]), (26.0, [3, 4, 12])])
def test_gradients_are_clipped_by_their_norm_over_all_ranks(
    max_norm: float, expected: list[float], crew: Crew
) -> None:
    # Rank 1 holds nothing of the 12. The square root of 9 + 16 + 144 is 13.
    for norm, gradients in crew.call(clipped, max_norm):
        assert norm == pytest.approx(13)
        assert gradients == pytest.approx(expected)


def test_weight_decay_takes_from_matrices_alone() -> None:
    model = Weights()
    optimizer = adamw(model, OptimizerSettings(learning_rate=0.1, weight_decay=0.5))
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    assert model.two.tolist() == [[pytest.approx(0.95)]] * 2
    assert model.one.tolist() == [1.0]


def test_a_frozen_parameter_is_left_to_itself() -> None:
    model = Weights()
    model.two.requires_grad = False
    optimizer = adamw(model, OptimizerSettings())
    assert [p for group in optimizer.param_groups for p in group["params"]] == [model.one]


def test_an_update_moves_by_the_rate_of_its_step(mesh: DeviceMesh, tmp_path: Any) -> None:
    job = Job(rank=0, world_size=1, device=CPU, mesh=mesh)
    model: Any = fully_shard(Weights(), mesh=mesh)
    settings = settings_of(
        tmp_path, batch=1, learning_rate=0.4, warmup_steps=4, weight_decay=0.0, max_gradient_norm=1
    )
    optimization = optimization_of(model, job, settings, END)
    for parameter, gradient in ((model.two, 20.0), (model.one, -10.0)):
        parameter.grad = torch.full_like(parameter, gradient)
    # The square root of 400 + 400 + 100 is 30.
    assert optimization.clip().item() == pytest.approx(30)
    optimization.update(1)
    # A quarter of 0.4, against the sign of the gradient: Adam's first step.
    assert local_shard(model.two).tolist() == [[pytest.approx(0.9)]] * 2
    assert local_shard(model.one).tolist() == [pytest.approx(1.1)]
    assert model.two.grad is None
