"""All ranks of an attempt have the same settings, or none of them trains.

A pod that was replaced reads its settings anew, and they may have been edited meanwhile.
Ranks with different ones would restore different steps, or wait in different collectives.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from trainer.distributed import Job
from trainer.errors import CannotTrain
from trainer.settings import TrainerSettings


def refuse_different_settings(job: Job, settings: TrainerSettings) -> None:
    """Compare this rank's settings with those of rank 0. Collective.

    Raises:
        CannotTrain: on every rank, in the same words.
    """
    own = dict(flat(settings.model_dump(mode="json")))
    difference = why_different(job.rank, own, of_rank_zero=job.from_rank_zero(own))
    if problem := next((text for text in job.from_every_rank(difference) if text), ""):
        raise CannotTrain(problem)


def why_different(rank: int, own: Mapping[str, str], *, of_rank_zero: Mapping[str, str]) -> str:
    """The first setting, by dotted key, in which a rank differs from rank 0; or nothing."""
    for key in sorted(own.keys() | of_rank_zero.keys()):
        mine, theirs = own.get(key, "not known"), of_rank_zero.get(key, "not known")
        if mine != theirs:
            return (
                f"{key} is {mine} on rank {rank} and {theirs} on rank 0; start all pods of the "
                "run anew with the same settings and image"
            )
    return ""


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Each setting by its dotted key, as JSON."""
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value)
