"""Saved by some number of ranks and restored by another: every bit of every tensor is the same.

The model has prime dimensions, so that no number of ranks divides it; parameters
of one row to three, of which some of five ranks hold nothing; a tied, a frozen
and an unused one. The values are random bits, NaNs and all.
"""

import random
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from tests.trainer.checkpoints import settings_for
from tests.trainer.ranks import Crew, background_worker
from trainer.checkpoint.checkpointer import Checkpointer
from trainer.checkpoint.modes import writer_for
from trainer.data import Batches, open_corpus
from trainer.distributed import Job
from trainer.events import EventLog
from trainer.model import build_model, shard_slices
from trainer.optimization import Optimization, adamw
from trainer.settings import TrainerSettings
from trainer.state import TrainState, local_shard

pytestmark = pytest.mark.distributed

COUNTS = range(1, 6)
CrewOf = Callable[[int], Crew]


class PrimeModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(257, 7)
        self.inner = nn.Linear(7, 13)
        self.outer = nn.Linear(13, 7)
        self.head = nn.Linear(7, 257, bias=False)
        self.head.weight = self.embedding.weight
        self.scale = nn.Parameter(torch.ones(1, 11))
        self.frozen = nn.Parameter(torch.ones(3, 5), requires_grad=False)
        self.unused = nn.Linear(2, 19)

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.outer(self.inner(self.embedding(tokens))) * self.scale.sum()
        result: Tensor = self.head(hidden + self.frozen.sum())
        return result


def prime_state(job: Job, settings: TrainerSettings) -> TrainState:
    model: Any = PrimeModel()
    for layer in (model.inner, model.outer):
        fully_shard(layer, mesh=job.mesh)
    fully_shard(model, mesh=job.mesh)
    return TrainState(model, adamw(model, settings.optimizer))


def whole(name: str, shape: torch.Size) -> Tensor:
    """The bits that the full tensor ``name`` has, on however many ranks."""
    generator = torch.Generator().manual_seed(random.Random(name).getrandbits(63))
    bits = torch.randint(-(2**31), 2**31, shape, generator=generator, dtype=torch.int64)
    return bits.to(torch.int32).view(torch.float32)


@torch.no_grad()
def set_bits(state: TrainState) -> None:
    for name, tensor in state.tensors().items():
        local_shard(tensor).copy_(whole(name, tensor.shape)[shard_slices(tensor)])


def wrong_tensors(state: TrainState) -> list[str]:
    """The names of those of which this rank's part has another bit than it should."""
    return [
        name
        for name, tensor in state.tensors().items()
        if not torch.equal(
            local_shard(tensor).detach().view(torch.int32),
            whole(name, tensor.shape)[shard_slices(tensor)].view(torch.int32),
        )
    ]


def checkpointer_of(
    job: Job, settings: TrainerSettings, state: TrainState, events: EventLog
) -> Checkpointer:
    return Checkpointer(
        settings,
        job=job,
        state=state,
        writer=writer_for(settings, job, background_worker()),
        events=events,
        report_progress=lambda: None,
    )


def save_bits(job: Job, settings: TrainerSettings) -> None:
    state = prime_state(job, settings)
    set_bits(state)
    with closing(EventLog(settings.run_directory, rank=job.rank)) as events:
        events.attempt = 1
        checkpointer = checkpointer_of(job, settings, state, events)
        checkpointer.save(10)
        checkpointer.wait()
        assert checkpointer.committed_step == 10


def restore_bits(job: Job, settings: TrainerSettings) -> tuple[int, int, list[str]]:
    """The step restored, the number of names, and those of them that are wrong."""
    state = prime_state(job, settings)
    with closing(EventLog(settings.run_directory, rank=job.rank)) as events:
        events.attempt = 2
        step = checkpointer_of(job, settings, state, events).restore()
    return step, len(state.tensors()), wrong_tensors(state)


# Nine parameters, the tied one once, and AdamW's three values of each of the eight that train.
EXACT: tuple[int, int, list[str]] = (10, 9 + 3 * 8, [])


def settings_in(folder: Path, mode: str) -> TrainerSettings:
    folder.mkdir()
    return settings_for(folder, mode)


@pytest.mark.parametrize(
    ("saved_by", "restored_by", "mode"),
    [(1, 3, "sync"), (3, 1, "async"), (2, 3, "async"), (3, 2, "sync"), (2, 2, "async")],
)
def test_another_number_of_ranks_restores_every_bit(
    saved_by: int, restored_by: int, mode: str, crew_of: CrewOf, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path, mode)
    crew_of(saved_by).call(save_bits, settings)
    assert crew_of(restored_by).call(restore_bits, settings) == [EXACT] * restored_by


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_every_number_of_ranks_restores_every_bit_of_every_other(
    mode: str, crew_of: CrewOf, tmp_path: Path
) -> None:
    settings = {count: settings_in(tmp_path / str(count), mode) for count in COUNTS}
    for saved_by in COUNTS:
        crew_of(saved_by).call(save_bits, settings[saved_by], seconds=120)
    for saved_by in COUNTS:
        for restored_by in COUNTS:
            results = crew_of(restored_by).call(restore_bits, settings[saved_by], seconds=120)
            assert results == [EXACT] * restored_by, f"{saved_by} to {restored_by}"


def digest_of_run(job: Job, settings: TrainerSettings, *, first: int, last: int) -> str:
    """Train the tied preset from a checkpoint or from the start, save the last step."""
    corpus = open_corpus(settings.data)
    batches = Batches(corpus, settings.data)
    model = build_model(
        settings.model, vocabulary_size=corpus.vocabulary_size, mesh=job.mesh, device=job.device
    )
    state = TrainState(model, adamw(model, settings.optimizer))
    optimization = Optimization(settings, job=job, state=state, end_of_text=corpus.end_of_text)
    with closing(EventLog(settings.run_directory, rank=job.rank)) as events:
        events.attempt = first
        checkpointer = checkpointer_of(job, settings, state, events)
        assert checkpointer.restore() == first - 1
        for step in range(first, last + 1):
            optimization.backward(batches.batch(step, job.rank, job.world_size)[1])
            optimization.clip()
            optimization.update(step)
        checkpointer.save(last)
        checkpointer.wait()
    assert model.lm_head.weight is model.model.embed_tokens.weight
    return state.digest()


def from_start(job: Job, settings: TrainerSettings) -> str:
    return digest_of_run(job, settings, first=1, last=4)


def in_two_parts(job: Job, settings: TrainerSettings) -> str:
    digest_of_run(job, settings, first=1, last=2)
    return digest_of_run(job, settings, first=3, last=4)


def test_an_accumulating_run_of_a_tied_model_goes_on_bit_for_bit(
    crew: Crew, tmp_path: Path
) -> None:
    data = {"global_batch_size": 5, "micro_batch_size": 2}
    runs = []
    for name in ("straight", "restored"):
        (tmp_path / name).mkdir()
        runs.append(settings_for(tmp_path / name, "async", data=data))
    assert crew.call(from_start, runs[0]) == crew.call(in_two_parts, runs[1])
