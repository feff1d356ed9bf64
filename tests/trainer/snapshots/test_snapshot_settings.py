"""Settings of snapshots that make no sense are refused by name."""

from typing import Any

import pytest
from pydantic import ValidationError

from trainer.snapshots.settings import SnapshotSettings


def test_snapshots_are_made_as_often_as_costs_a_hundredth_unless_told_otherwise() -> None:
    settings = SnapshotSettings()
    assert (settings.enabled, settings.interval_steps, settings.budget) == (True, None, 0.01)


@pytest.mark.parametrize(
    "values",
    [{"interval_steps": 0}, {"interval_steps": True}, {"budget": 0}, {"budget": 1.1}, {"every": 3}],
)
def test_what_makes_no_sense_is_refused_by_name(values: dict[str, Any]) -> None:
    (name,) = values
    with pytest.raises(ValidationError, match=name):
        SnapshotSettings.model_validate(values)
