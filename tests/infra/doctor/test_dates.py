"""Dates of Capacity Blocks that have passed."""

from datetime import UTC, datetime
from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.capacity import check_reservations
from infra.doctor.case import Case
from infra.doctor.dates import check_dates
from infra.doctor.findings import Finding, Level
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.deployed import scheduled, status_of, synthesized
from tests.infra.doctor.stand_ins import Answer, stubbed
from tests.infra.doctor.test_capacity import BLOCK, block_facts, described, with_capacity

DURING = datetime(2027, 1, 12, tzinfo=UTC)
AFTER = datetime(2027, 6, 1, tzinfo=UTC)
NO_START = {key: value for key, value in BLOCK.items() if key != "starts_at"}
START, END = "2027-01-11T11:30:00Z", "2027-01-13T10:45:00Z"
ABSENT = [status_of("steadfast-p5-nodes-p5", None)]
DEPLOYED = scheduled((START, 2), (END, 0))


def case(settings: Deployment, capacity: dict[str, Any], now: datetime, *answers: Answer) -> Case:
    return Case(stubbed(*answers), with_capacity(settings, capacity), now)


def found(
    settings: Deployment, capacity: dict[str, Any], now: datetime, *answers: Answer
) -> Finding:
    [finding] = check_dates(case(settings, capacity, now, *answers))
    return finding


def test_a_block_to_come_is_good_and_nobody_is_asked(settings: Deployment) -> None:
    assert found(settings, BLOCK, NOW).level is Level.OK


def test_a_group_that_keeps_its_schedule_keeps_its_start(settings: Deployment) -> None:
    assert found(settings, BLOCK, DURING, *DEPLOYED).level is Level.OK


def test_the_schedule_is_found_in_a_synthesized_template(settings: Deployment) -> None:
    answers = synthesized("p5-capacity-block", "nodes-p5")
    assert found(settings, BLOCK, DURING, *answers).level is Level.OK


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(ABSENT, id="no group"),
        pytest.param([status_of("steadfast-p5-nodes-p5", "ROLLBACK_COMPLETE")], id="made anew"),
        pytest.param(scheduled((START, 4), (END, 0)), id="another number of nodes"),
        pytest.param(scheduled((END, 0)), id="deployed without a start"),
        pytest.param(scheduled(("2026-12-01T11:30:00Z", 2), (END, 0)), id="a former block"),
    ],
)
def test_a_start_in_the_past_that_a_deploy_would_send_is_to_be_removed(
    settings: Deployment, answers: list[Answer]
) -> None:
    finding = found(settings, BLOCK, DURING, *answers)
    assert finding.level is Level.ERROR
    assert finding.remedy.startswith("remove node_groups.p5.capacity.starts_at")


def test_a_block_is_over_45_minutes_before_its_end(settings: Deployment) -> None:
    last = datetime(2027, 1, 13, 10, 44, tzinfo=UTC)
    assert found(settings, NO_START, last).level is Level.OK
    over = found(settings, NO_START, last.replace(minute=45), *ABSENT)
    assert over.level is Level.ERROR
    assert over.what.startswith("p5: the block is over, or about to be")


def test_an_ended_block_of_a_group_that_stays_as_it_is_forbids_no_deploy(
    settings: Deployment,
) -> None:
    """Or a durable deployment could never be made ephemeral, and taken down."""
    finding = found(settings, BLOCK, AFTER, *DEPLOYED)
    assert (finding.level, finding.what) == (Level.WARNING, "p5: over: the group stays empty")
    assert "ends_at 2027-01-13T11:30:00Z" in finding.value


@pytest.mark.parametrize("answers", [ABSENT, scheduled((START, 4), (END, 0))])
def test_an_ended_block_whose_dates_a_deploy_would_send_is_an_error(
    settings: Deployment, answers: list[Answer]
) -> None:
    assert found(settings, BLOCK, AFTER, *answers).level is Level.ERROR


@pytest.mark.parametrize(
    "answer",
    [
        ("ec2", "describe_capacity_reservations", "InvalidCapacityReservationId.NotFound"),
        described(block_facts(State="expired")),
    ],
)
def test_a_reservation_that_ended_with_its_block_forbids_no_deploy(
    settings: Deployment, answer: Answer
) -> None:
    findings = check_reservations(case(settings, BLOCK, AFTER, answer, *DEPLOYED))
    assert [each.level for each in findings] == [Level.WARNING]
    assert findings[0].value.endswith("; over: the group stays empty")
    new = check_reservations(case(settings, BLOCK, AFTER, answer, *ABSENT))
    assert [each.level for each in new] == [Level.ERROR]


def test_other_capacity_has_no_dates(settings: Deployment) -> None:
    assert check_dates(Case(stubbed(), settings, NOW)) == []
