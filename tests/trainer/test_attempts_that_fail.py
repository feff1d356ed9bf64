"""What an attempt leaves behind that fails: a note of a bug, and none of an abort's echo."""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.trainer.ranks import trainer_settings
from trainer.errors import Repeats
from trainer.events import EventLog
from trainer.snapshots.gate import Gate
from trainer.train import _attempt


def fail_twice(run_directory: Path, gate: Gate) -> None:
    """The same error in the same step of two attempts."""

    def run_attempt(*_: object) -> None:
        raise ValueError("Default process group has not been initialized")

    with contextlib.closing(EventLog(run_directory, rank=0)) as events:
        process: Any = SimpleNamespace(
            events=events,
            settings=trainer_settings(run_directory),
            snapshots=SimpleNamespace(gate=gate),
        )
        nothing: Any = None
        for attempt in (1, 2):
            events.attempt = attempt
            with pytest.raises(ValueError, match="Default process group"):
                _attempt(run_attempt, process, nothing)


def test_the_same_error_in_the_same_step_is_a_bug(tmp_path: Path) -> None:
    with pytest.raises(Repeats):
        fail_twice(tmp_path, Gate())


def test_what_fails_while_collectives_are_aborted_is_none(tmp_path: Path) -> None:
    gate = Gate()
    gate.close()
    fail_twice(tmp_path, gate)
    assert not (tmp_path / "failures").exists()
