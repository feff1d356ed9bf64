"""Saves and restores as ranks make them, of values that follow from step and rank."""

import logging
import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import background_worker, fill, sharded_state, trainer_settings
from trainer.checkpoint.checkpointer import Checkpointer
from trainer.checkpoint.layout import committed
from trainer.checkpoint.modes import writer_for
from trainer.checkpoint.restore import NothingToRestore
from trainer.distributed import Job
from trainer.events import EventLog, read_events
from trainer.settings import TrainerSettings
from trainer.state import TrainState, local_shard


@dataclass(frozen=True)
class Parts:
    checkpointer: Checkpointer
    state: TrainState
    events: EventLog

    def save(self, job: Job, step: int) -> None:
        """Begin to save values that follow from step and rank, and go on with others."""
        fill(self.state, seed=1000 * step + job.rank)
        self.checkpointer.save(step)
        fill(self.state, seed=999)

    def close(self) -> None:
        self.checkpointer.close()
        self.events.close()


def parts_of(
    job: Job,
    settings: TrainerSettings,
    *,
    attempt: int = 1,
    drained_by: Callable[[], float] = lambda: math.inf,
) -> Parts:
    events = EventLog(settings.run_directory, rank=job.rank)
    events.attempt = attempt
    writer = writer_for(settings, job, background_worker())
    state = sharded_state(job, seed=0)
    checkpointer = Checkpointer(
        settings,
        job=job,
        state=state,
        writer=writer,
        events=events,
        report_progress=lambda: None,
        drained_by=drained_by,
    )
    checkpointer.prepare()
    return Parts(checkpointer, state, events)


def shards_after(job: Job, step: int) -> dict[str, Any]:
    """What this rank's shards were when ``step`` was saved."""
    state = sharded_state(job, seed=step)
    return {
        name: local_shard(tensor).detach().clone().numpy()
        for name, tensor in state.tensors().items()
    }


def save(job: Job, settings: TrainerSettings, *steps: int) -> None:
    parts = parts_of(job, settings)
    with closing(parts):
        for step in steps:
            parts.save(job, step)
            parts.checkpointer.wait()
        parts.checkpointer.wait_for_deletions()


def restore(job: Job, settings: TrainerSettings) -> tuple[int, bool]:
    """The step restored, and whether all of this rank's values are that step's."""
    parts = parts_of(job, settings, attempt=2)
    with closing(parts):
        step = parts.checkpointer.restore()
        return step, parts.state.digest() == sharded_state(job, seed=step).digest()


def refusal(job: Job, settings: TrainerSettings) -> str:
    parts = parts_of(job, settings, attempt=2)
    with closing(parts), pytest.raises(NothingToRestore) as refused:
        parts.checkpointer.restore()
    return str(refused.value)


class Messages(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def warnings_at_restore(job: Job, settings: TrainerSettings) -> list[str]:
    messages, logger = Messages(), logging.getLogger("trainer")
    logger.addHandler(messages)
    try:
        restore(job, settings)
    finally:
        logger.removeHandler(messages)
    return messages.texts


def settings_for(tmp_path: Path, mode: str = "sync", **groups: dict[str, Any]) -> TrainerSettings:
    checkpoint = {"mode": mode, "interval_steps": 10, **groups.pop("checkpoint", {})}
    return trainer_settings(tmp_path, checkpoint=checkpoint, **groups)


def committed_steps(settings: TrainerSettings) -> list[int]:
    return [c.record.step for c in committed(settings.run_directory / "checkpoints")]


def failures(settings: TrainerSettings) -> list[tuple[int, int, str]]:
    """Rank, step and reason of each save that was dropped."""
    return sorted(
        (event["rank"], event["step"], event["reason"])
        for event in read_events(settings.run_directory)
        if event["name"] == "checkpoint_failed"
    )
