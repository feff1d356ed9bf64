"""Dates of Capacity Blocks that have passed."""

from datetime import UTC, datetime
from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.dates import check_dates
from infra.doctor.findings import Finding, Level
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import Answer, stubbed
from tests.infra.doctor.test_capacity import BLOCK, with_capacity

DURING = datetime(2027, 1, 12, tzinfo=UTC)
NO_START = {key: value for key, value in BLOCK.items() if key != "starts_at"}


def group(*, exists: bool) -> Answer:
    facts = {
        "AutoScalingGroupName": "steadfast-p5-p5",
        "MinSize": 0,
        "MaxSize": 2,
        "DesiredCapacity": 2,
        "DefaultCooldown": 300,
        "AvailabilityZones": ["us-east-1a"],
        "HealthCheckType": "EC2",
        "CreatedTime": NOW,
    }
    groups = [facts] if exists else []
    return ("autoscaling", "describe_auto_scaling_groups", {"AutoScalingGroups": groups})


def found(
    settings: Deployment, capacity: dict[str, Any], now: datetime, *answers: Answer
) -> Finding:
    [finding] = check_dates(Case(stubbed(*answers), with_capacity(settings, capacity), now))
    return finding


def test_a_block_to_come_is_good_and_nobody_is_asked(settings: Deployment) -> None:
    assert found(settings, BLOCK, NOW).level is Level.OK


def test_a_start_in_the_past_is_to_be_removed_before_the_group_exists(
    settings: Deployment,
) -> None:
    finding = found(settings, BLOCK, DURING, group(exists=False))
    assert finding.level is Level.ERROR
    assert finding.remedy.startswith("remove node_groups.p5.capacity.starts_at")


def test_a_group_that_exists_keeps_its_start(settings: Deployment) -> None:
    assert found(settings, BLOCK, DURING, group(exists=True)).level is Level.OK


def test_a_block_is_over_45_minutes_before_its_end(settings: Deployment) -> None:
    last = datetime(2027, 1, 13, 10, 44, tzinfo=UTC)
    assert found(settings, NO_START, last).level is Level.OK
    over = found(settings, NO_START, last.replace(minute=45))
    assert (over.level, over.what) == (Level.ERROR, "p5: the block is over, or about to be")


@pytest.mark.parametrize("exists", [False, True])
def test_an_end_in_the_past_is_an_error_with_or_without_the_group(
    settings: Deployment, exists: bool
) -> None:
    after = datetime(2027, 6, 1, tzinfo=UTC)
    finding = found(settings, BLOCK, after, group(exists=exists))
    assert finding.level is Level.ERROR
    assert "ends_at 2027-01-13T11:30:00Z" in finding.value


def test_other_capacity_has_no_dates(settings: Deployment) -> None:
    assert check_dates(Case(stubbed(), settings, NOW)) == []
