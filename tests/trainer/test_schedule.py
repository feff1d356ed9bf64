"""The learning rate: hand-computed points, and its shape."""

import math
from itertools import pairwise
from pathlib import Path

import pytest

from tests.trainer.ranks import trainer_settings
from trainer.schedule import learning_rate, what_changed
from trainer.settings import OptimizerSettings

SETTINGS = OptimizerSettings(learning_rate=1.0, warmup_steps=10, final_learning_rate_fraction=0.2)


def rate(step: int) -> float:
    return learning_rate(SETTINGS, step=step, max_steps=110)


def test_warm_up_is_linear_from_the_first_step() -> None:
    assert rate(1) == pytest.approx(0.1)
    assert rate(5) == pytest.approx(0.5)
    assert rate(10) == 1.0


def test_cosine_passes_its_middle_and_ends_at_the_final_share() -> None:
    assert rate(60) == pytest.approx(0.6)
    assert rate(110) == pytest.approx(0.2)


def test_rate_never_rises_after_the_warm_up() -> None:
    rates = [rate(step) for step in range(10, 111)]
    assert all(later <= earlier for earlier, later in pairwise(rates))


def test_a_run_without_warm_up_starts_near_the_peak() -> None:
    settings = SETTINGS.model_copy(update={"warmup_steps": 0})
    expected = 0.2 + 0.8 * (1 + math.cos(math.pi / 100)) / 2
    assert learning_rate(settings, step=1, max_steps=100) == pytest.approx(expected)


@pytest.mark.parametrize("step", [0, 111])
def test_a_step_outside_the_run_is_refused(step: int) -> None:
    with pytest.raises(ValueError, match=f"step {step} is not between 1 and max_steps 110"):
        rate(step)


def test_what_bends_the_schedule_of_a_run_that_goes_on_is_told(tmp_path: Path) -> None:
    before = trainer_settings(tmp_path)
    assert what_changed(before, trainer_settings(tmp_path, data={"seed": 1})) == ""
    now = trainer_settings(tmp_path, optimizer={"warmup_steps": 5})
    now = now.model_copy(update={"max_steps": 200})
    assert what_changed(before, now) == (
        "max_steps 100 is now 200, optimizer.warmup_steps 0 is now 5"
    )
