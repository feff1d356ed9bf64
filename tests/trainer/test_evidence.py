"""A run whose checkpoints are gone does not begin again unawares."""

import shutil
from pathlib import Path

import pytest

from tests.trainer.checkpoints import refusal, restore, save, settings_for
from tests.trainer.ranks import Crew
from trainer.checkpoint.evidence import last_committed_step
from trainer.events import EventLog


def test_a_run_without_events_has_committed_nothing(tmp_path: Path) -> None:
    assert last_committed_step(tmp_path) is None


def test_the_last_commit_is_found_among_other_events_and_torn_lines(tmp_path: Path) -> None:
    log = EventLog(tmp_path, rank=0)
    log.record("checkpoint_begun", step=10)
    assert last_committed_step(tmp_path) is None
    for step in (10, 20):
        log.record("checkpoint_committed", step=step)
        log.record("checkpoint_failed", step=30, reason="not checkpoint_committed")
    log.close()
    with (tmp_path / "events" / "rank-0.jsonl").open("ab") as file:
        file.write(b'{"name": "checkpoint_committed", "wall": 1')
    assert last_committed_step(tmp_path) == 20


@pytest.mark.distributed
@pytest.mark.parametrize("is_there", [True, False])
def test_checkpoints_that_are_gone_though_events_tell_of_them_are_refused(
    is_there: bool, crew: Crew, tmp_path: Path
) -> None:
    settings = settings_for(tmp_path)
    crew.call(save, settings, 10, 20)
    shutil.rmtree(tmp_path / "checkpoints")
    if is_there:
        (tmp_path / "checkpoints").mkdir()
    reason = (
        f"{tmp_path}/checkpoints: holds no checkpoint, and {tmp_path}/events say that step 20 "
        "was committed; bring the folder back, or give the run a new id to start over"
    )
    assert crew.call(refusal, settings) == [reason, reason]
    shutil.rmtree(tmp_path / "events")
    assert crew.call(restore, settings) == [(0, True)] * 2
