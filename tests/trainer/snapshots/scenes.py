"""A job that begins anew: what its nodes and processes have of the attempt before."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from tests.trainer.ranks import Crew, sharded_state
from tests.trainer.snapshots.buffers import IDENTITY, Snapshot
from trainer.distributed import Job
from trainer.snapshots import transfer
from trainer.snapshots.doubts import DoubtfulState
from trainer.snapshots.live import Live
from trainer.snapshots.offers import Durable
from trainer.snapshots.restore import MemoryRestorer, Restored
from trainer.snapshots.sources import Files, NodeFiles

UNTOUCHED = 99
"""The step of the state that is there before the restore."""


@dataclass(frozen=True)
class Kept:
    """What a process has of the attempt before: the shard that it then had."""

    coordinate: int
    step: int
    attempt: int = 1


@dataclass(frozen=True)
class Scene:
    folders: tuple[Path | None, ...]
    """By rank, of its node."""

    snapshots: tuple[Snapshot, ...] = ()
    live: tuple[Kept | None, ...] = ()
    """By rank."""

    durable: tuple[Durable, ...] = ()
    """By rank; without, no rank knows of any."""

    files: Files | None = None
    identities: tuple[bytes, ...] = ()
    """By rank."""


@dataclass(frozen=True)
class Outcome:
    restored: Restored | None
    is_exact: bool
    """The tensors hold the state of the restored step, or were not touched where none was."""

    raised: bool
    is_live_kept: bool


def play(job: Job, scene: Scene, times: int = 1) -> list[Outcome]:
    """What each of so many attempts takes up, one after another."""
    _write_snapshots(job, scene)
    live = _live_of_all(job, scene)[job.rank]
    job.everyone(True)
    folder = scene.folders[job.rank]
    restorer = MemoryRestorer(
        job,
        node=str(folder or f"node of {job.rank}"),
        folder=folder,
        identity=scene.identities[job.rank] if scene.identities else IDENTITY,
        live=live,
        files=scene.files or NodeFiles(),
    )
    durable = scene.durable[job.rank] if scene.durable else Durable()
    return [_outcome(job, restorer, durable) for _ in range(times)]


def _outcome(job: Job, restorer: MemoryRestorer, durable: Durable) -> Outcome:
    state = sharded_state(job, seed=UNTOUCHED)
    restored, raised = None, False
    try:
        with mock.patch.object(transfer, "PIECE_BYTES", 4096):
            restored = restorer.restore(state.tensors().values(), durable)
    except DoubtfulState:
        raised = True
    expected = sharded_state(job, seed=restored.step if restored else UNTOUCHED)
    is_exact = state.digest() == expected.digest()
    return Outcome(restored, is_exact, raised, restorer.live.kept is not None)


def _write_snapshots(job: Job, scene: Scene) -> None:
    for snapshot in scene.snapshots:
        if snapshot.coordinate == job.rank:
            snapshot.write(job, sharded_state(job, seed=snapshot.step))


def _live_of_all(job: Job, scene: Scene) -> list[Live]:
    """The shard of a coordinate is made by its rank, and handed to whose process has it."""
    result = [Live() for _ in range(job.world_size)]
    for rank, kept in enumerate(scene.live):
        if kept is None:
            continue
        shards: list[Any] = job.from_every_rank(_shard(job, kept))
        result[rank].keep(
            shards[kept.coordinate],
            coordinate=kept.coordinate,
            attempt=kept.attempt,
            step=kept.step,
            identity=IDENTITY,
        )
    return result


def _shard(job: Job, kept: Kept) -> list[Any]:
    live = Live()
    state = sharded_state(job, seed=kept.step)
    live.keep(state.tensors().values(), coordinate=0, attempt=1, step=1, identity=IDENTITY)
    assert live.kept is not None
    return list(live.kept.tensors)


def restored_by_all(crew: Crew, scene: Scene) -> Restored:
    """What all ranks took up, as rank 0 tells it; the same, and exact, on each."""
    outcomes = [played[0] for played in crew.call(play, scene)]
    assert [outcome.is_exact for outcome in outcomes] == [True] * len(outcomes)
    keys = {
        (each.restored.attempt, each.restored.step) if each.restored else None for each in outcomes
    }
    assert len(keys) == 1
    restored: Restored | None = outcomes[0].restored
    assert restored is not None
    return restored


def untouched_by_all(crew: Crew, scene: Scene) -> bool:
    """Whether no rank took anything up, or wrote to its tensors."""
    outcomes = [played[0] for played in crew.call(play, scene)]
    return all(each.restored is None and each.is_exact and not each.raised for each in outcomes)


def nodes(parent: Path) -> tuple[Path, Path, Path]:
    """The folders of three nodes."""
    a, b, c = (parent / name for name in "abc")
    for folder in (a, b, c):
        folder.mkdir()
    return a, b, c


def stored(*folders: Path, step: int, **more: Any) -> tuple[Snapshot, ...]:
    """A snapshot of ``step``: the shard of each coordinate in the folder given for it."""
    return tuple(
        Snapshot(coordinate, step, folder, **more) for coordinate, folder in enumerate(folders)
    )
