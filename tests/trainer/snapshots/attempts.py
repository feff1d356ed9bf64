"""A rank that takes snapshots as the loop does, of values that follow from the step."""

import os
from pathlib import Path
from typing import Any

import torch

from tests.trainer.ranks import fill, sharded_state, trainer_settings
from trainer.distributed import Job, Votes
from trainer.snapshots.folder import VARIABLE
from trainer.snapshots.offers import Durable
from trainer.snapshots.snapshots import Snapshots

FINGERPRINT = {"model": {"preset": "tiny"}}


class Rank:
    """One process of the run, and its attempts; the state of step s is what seed s gives."""

    def __init__(
        self, job: Job, folder: Path | None, *, mode: str = "sync", **settings: Any
    ) -> None:
        os.environ["LOCAL_WORLD_SIZE"] = "1"
        os.environ.pop(VARIABLE, None)
        if folder is not None:
            os.environ[VARIABLE] = str(folder)
        changes = {"interval_steps": 1, "peer_interval_seconds": None} | settings
        layer = {"layer": "in_process"}
        self.snapshots = Snapshots(
            trainer_settings(
                Path("run"), snapshots=changes, recovery=layer, checkpoint={"mode": mode}
            )
        )
        self.job = job
        self.state = sharded_state(job, seed=0)
        self.attempt = 0

    def restore(self, durable: Durable | None = None) -> tuple[int, str] | None:
        """Begin an attempt; the step and the tier that it goes on from."""
        self.attempt += 1
        self.state = sharded_state(self.job, seed=99)
        self.snapshots.begin(self.job, self.state, attempt=self.attempt, fingerprint=FINGERPRINT)
        restored = self.snapshots.restore(durable or Durable())
        self.state.step = restored.step if restored else 0
        if restored is None:
            fill(self.state, seed=self.job.rank)
        return (restored.step, restored.source.value) if restored else None

    def step(self, step: int, *, loss: float | None = None, until: str = "agreed") -> None:
        """As the loop does it, ``until`` that call included."""
        self.snapshots.start()
        self.snapshots.fence()
        self.snapshots.finish(float(step) if loss is None else loss)
        if until == "finish":
            return
        self.state.step = None
        fill(self.state, seed=1000 * step + self.job.rank)
        self.state.step = step
        votes: Votes = self.job.agree(self.snapshots.votes())
        self.snapshots.agreed(votes)
        self.snapshots._shelf.get_ready(within=30)  # begun in the first step

    def steps(self, first: int, last: int) -> None:
        for step in range(first, last + 1):
            self.step(step)

    def holds(self, step: int) -> bool:
        expected = sharded_state(self.job, seed=step)
        return all(
            torch.equal(getattr(a, "_local_tensor", a), getattr(b, "_local_tensor", b))
            for a, b in zip(self.state.tensors().values(), expected.tensors().values(), strict=True)
        )


def folder_of(job: Job, shared: Path) -> Path:
    """Each rank has a node of its own."""
    folder = shared / f"node-{job.rank}"
    folder.mkdir(exist_ok=True)
    return folder
