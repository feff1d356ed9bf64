"""Ranks with different settings refuse to train, all in the same words."""

from pathlib import Path
from typing import Any

import pytest

from tests.trainer.checkpoints import settings_for
from tests.trainer.ranks import Crew
from trainer.agreement import refuse_different_settings
from trainer.distributed import Job
from trainer.errors import CannotTrain
from trainer.settings import TrainerSettings


def words_of(job: Job, settings: TrainerSettings, of_rank_one: TrainerSettings) -> str:
    try:
        refuse_different_settings(job, of_rank_one if job.rank == 1 else settings)
    except CannotTrain as error:
        return str(error)
    return ""


@pytest.mark.distributed
@pytest.mark.parametrize("mode", ["none", "sync", "async", "async_local_shards"])
@pytest.mark.parametrize(
    ("groups", "words"),
    [
        (
            {"checkpoint": {"resume_step": 10}},
            "checkpoint.resume_step is 10 on rank 1 and null on ",
        ),
        ({"model": {"seed": 7}}, "model.seed is 7 on rank 1 and 0 on rank 0; "),
        ({"checkpoint": {"keep_latest": 1}}, "checkpoint.keep_latest is 1 on rank 1 and 3 on "),
    ],
)
def test_all_ranks_refuse_if_one_has_other_settings(
    mode: str, groups: dict[str, dict[str, Any]], words: str, crew: Crew, tmp_path: Path
) -> None:
    settings, other = settings_for(tmp_path, mode), settings_for(tmp_path, mode, **groups)
    first, second = crew.call(words_of, settings, other)
    assert first == second
    assert first.startswith(words)


@pytest.mark.distributed
def test_ranks_with_the_same_settings_train(crew: Crew, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    assert crew.call(words_of, settings, settings) == ["", ""]
