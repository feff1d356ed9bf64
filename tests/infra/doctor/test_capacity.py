"""Reservations, groups of them, and Capacity Blocks."""

from datetime import UTC, datetime
from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.capacity import check_reservations
from infra.doctor.case import Case
from infra.doctor.findings import Finding, Level
from infra.node_groups import NodeGroup
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import Answer, stubbed

RESERVATION = {"kind": "reservation", "reservation_id": "cr-0123456789abcdef0"}
GROUP_ARN = "arn:aws:resource-groups:us-east-1:123456789012:group/mine"
BLOCK = {
    "kind": "capacity-block",
    "reservation_id": "cr-0123456789abcdef0",
    "starts_at": "2027-01-11T11:30:00Z",
    "ends_at": "2027-01-13T11:30:00Z",
}
STARTS = datetime(2027, 1, 11, 11, 30, tzinfo=UTC)
ENDS = datetime(2027, 1, 13, 11, 30, tzinfo=UTC)


def facts(**changes: Any) -> dict[str, Any]:
    """An active reservation of two p5.48xlarge in us-east-1a, both free."""
    return {
        "CapacityReservationId": "cr-0123456789abcdef0",
        "State": "active",
        "InstanceType": "p5.48xlarge",
        "AvailabilityZone": "us-east-1a",
        "TotalInstanceCount": 2,
        "AvailableInstanceCount": 2,
        **changes,
    }


def block_facts(**changes: Any) -> dict[str, Any]:
    values = {
        "ReservationType": "capacity-block",
        "State": "scheduled",
        "AvailableInstanceCount": 0,
        "StartDate": STARTS,
        "EndDate": ENDS,
    }
    return facts(**{**values, **changes})


def described(*reservations: dict[str, Any]) -> Answer:
    return ("ec2", "describe_capacity_reservations", {"CapacityReservations": [*reservations]})


def running(count: int, reservation_id: str | None = "cr-0123456789abcdef0") -> Answer:
    """Nodes of the group; those without a reservation run on demand."""
    place = {"CapacityReservationId": reservation_id} if reservation_id else {}
    instances = [{"InstanceId": f"i-{index}", **place} for index in range(count)]
    return ("ec2", "describe_instances", {"Reservations": [{"Instances": instances}]})


def with_capacity(settings: Deployment, capacity: dict[str, Any], **changes: Any) -> Deployment:
    group = {"instance_type": "p5.48xlarge", "num_nodes": 2, "capacity": capacity, **changes}
    return settings.model_copy(update={"node_groups": {"p5": NodeGroup.model_validate(group)}})


def found(
    settings: Deployment, capacity: dict[str, Any], *answers: Answer, now: datetime = NOW
) -> list[Finding]:
    case = Case(stubbed(*answers), with_capacity(settings, capacity), now)
    return check_reservations(case)


def only(findings: list[Finding]) -> Finding:
    [finding] = findings
    return finding


def test_on_demand_nodes_need_no_reservation(settings: Deployment) -> None:
    assert found(settings, {"kind": "on-demand"}) == []


def test_a_reservation_with_room_is_good(settings: Deployment) -> None:
    finding = only(found(settings, RESERVATION, described(facts()), running(0)))
    assert (finding.level, finding.value) == (Level.OK, "2 for this group, 0 of them running")


def test_nodes_that_run_already_do_not_make_their_reservation_full(settings: Deployment) -> None:
    answers = described(facts(AvailableInstanceCount=0)), running(2)
    assert only(found(settings, RESERVATION, *answers)).level is Level.OK


@pytest.mark.parametrize("elsewhere", ["cr-0fedcba9876543210", None])
def test_nodes_that_run_elsewhere_take_up_nothing_of_the_reservation(
    settings: Deployment, elsewhere: str | None
) -> None:
    """Such as those of a former reservation, which the group still has."""
    answers = described(facts(AvailableInstanceCount=1)), running(2, elsewhere)
    finding = only(found(settings, RESERVATION, *answers))
    assert (finding.level, finding.value) == (Level.ERROR, "1 reserved and free")


def test_a_reservation_without_room_for_every_node_is_an_error(settings: Deployment) -> None:
    answers = described(facts(AvailableInstanceCount=1)), running(0)
    finding = only(found(settings, RESERVATION, *answers))
    assert (finding.level, finding.value) == (Level.ERROR, "1 reserved and free")


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"State": "cancelled"}, "cancelled"),
        ({"InstanceType": "p5e.48xlarge"}, "file p5.48xlarge, EC2 p5e.48xlarge"),
        ({"AvailabilityZone": "us-east-1c"}, "file us-east-1a, EC2 us-east-1c"),
    ],
)
def test_a_reservation_that_does_not_fit_is_an_error(
    settings: Deployment, changes: dict[str, Any], value: str
) -> None:
    finding = only(found(settings, RESERVATION, described(facts(**changes)), running(0)))
    assert (finding.level, finding.value) == (Level.ERROR, value)


def test_a_reservation_that_does_not_exist_is_an_error(settings: Deployment) -> None:
    code = "InvalidCapacityReservationId.NotFound"
    answer = ("ec2", "describe_capacity_reservations", code)
    finding = only(found(settings, RESERVATION, answer, running(0)))
    assert (finding.level, finding.value) == (Level.ERROR, "cr-0123456789abcdef0")


def test_a_reservation_that_ends_is_a_warning(settings: Deployment) -> None:
    answers = described(facts(EndDate=ENDS)), running(0)
    levels = [finding.level for finding in found(settings, RESERVATION, *answers)]
    assert levels == [Level.OK, Level.WARNING]


@pytest.mark.parametrize(
    ("wants", "has", "remedy"),
    [
        (None, None, ""),
        ("mine", "mine", ""),
        ("mine", None, "remove node_groups.p5.capacity.placement_group"),
        (None, "mine", "set node_groups.p5.capacity.placement_group to mine"),
        ("mine", "other", "set node_groups.p5.capacity.placement_group to other"),
    ],
)
def test_the_placement_group_must_be_the_reservations(
    settings: Deployment, wants: str | None, has: str | None, remedy: str
) -> None:
    arn = f"arn:aws:ec2:us-east-1:123456789012:placement-group/{has}"
    reservation = facts(**({"PlacementGroupArn": arn} if has else {}))
    capacity = {**RESERVATION, "placement_group": wants}
    finding = only(found(settings, capacity, described(reservation), running(0)))
    assert (finding.level, finding.remedy) == (Level.ERROR if remedy else Level.OK, remedy)


def test_a_block_named_as_a_reservation_is_an_error(settings: Deployment) -> None:
    finding = only(found(settings, RESERVATION, described(block_facts()), running(0)))
    assert finding.remedy.startswith("set node_groups.p5.capacity.kind to capacity-block")


def members(*ids: str) -> Answer:
    arns = [f"arn:aws:ec2:us-east-1:123456789012:capacity-reservation/{one}" for one in ids]
    identifiers = [{"ResourceArn": arn} for arn in arns]
    return ("resource-groups", "list_group_resources", {"ResourceIdentifiers": identifiers})


def test_reservations_of_a_group_have_room_together(settings: Deployment) -> None:
    capacity = {"kind": "reservation", "reservation_group_arn": GROUP_ARN}
    one = facts(AvailableInstanceCount=1)
    both = members("cr-1", "cr-2")
    assert only(found(settings, capacity, both, described(one, one), running(0))).level is Level.OK
    elsewhere = facts(AvailabilityZone="us-east-1c")
    answers = both, described(one, elsewhere), running(0)
    finding = only(found(settings, capacity, *answers))
    assert (finding.level, finding.value) == (Level.ERROR, "1 reserved and free")


def test_nodes_in_a_member_that_does_not_fit_make_no_room_in_the_others(
    settings: Deployment,
) -> None:
    capacity = {"kind": "reservation", "reservation_group_arn": GROUP_ARN}
    fits = facts(AvailableInstanceCount=0)
    other = facts(CapacityReservationId="cr-other", AvailabilityZone="us-east-1c")
    answers = members("cr-1", "cr-2"), described(fits, other), running(2, "cr-other")
    assert only(found(settings, capacity, *answers)).value == "0 reserved and free"


@pytest.mark.parametrize("answer", [members(), (*members("not-there")[:2], "NotFoundException")])
def test_a_group_without_reservations_is_an_error(settings: Deployment, answer: Answer) -> None:
    capacity = {"kind": "reservation", "reservation_group_arn": GROUP_ARN}
    finding = only(found(settings, capacity, answer, running(0)))
    assert (finding.level, finding.value) == (Level.ERROR, f"0 reservations in {GROUP_ARN}")


def test_a_scheduled_block_with_the_files_dates_is_good(settings: Deployment) -> None:
    finding = only(found(settings, BLOCK, described(block_facts())))
    assert finding.level is Level.OK
    assert finding.value == "2027-01-11T11:30:00Z to 2027-01-13T11:30:00Z, scheduled"


def test_the_same_moment_in_another_zone_of_time_is_the_same_date(settings: Deployment) -> None:
    capacity = {**BLOCK, "starts_at": "2027-01-11T12:30:00+01:00"}
    assert only(found(settings, capacity, described(block_facts()))).level is Level.OK


@pytest.mark.parametrize("key", ["starts_at", "ends_at"])
def test_a_date_that_is_not_ec2s_is_an_error_with_both(settings: Deployment, key: str) -> None:
    wrong = "2027-01-12T11:30:00Z"
    finding = only(found(settings, {**BLOCK, key: wrong}, described(block_facts())))
    right = {"starts_at": "2027-01-11T11:30:00Z", "ends_at": "2027-01-13T11:30:00Z"}[key]
    assert finding.level is Level.ERROR
    assert finding.value == f"file {wrong}, EC2 {right}"
    assert finding.remedy == f'set node_groups.p5.capacity.{key} to "{right}"'


def test_a_running_block_needs_no_start(settings: Deployment) -> None:
    capacity = {key: value for key, value in BLOCK.items() if key != "starts_at"}
    answer = described(block_facts(State="active"))
    during = datetime(2027, 1, 12, tzinfo=UTC)
    assert only(found(settings, capacity, answer, now=during)).level is Level.OK
    before = only(found(settings, capacity, described(block_facts())))
    assert before.remedy == 'set node_groups.p5.capacity.starts_at to "2027-01-11T11:30:00Z"'


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"State": "payment-failed"}, "payment-failed"),
        ({"AvailabilityZone": "us-east-1d"}, "file us-east-1a, EC2 us-east-1d"),
        ({"TotalInstanceCount": 1}, "1 reserved and free"),
        ({"ReservationType": "default"}, "cr-0123456789abcdef0"),
    ],
)
def test_a_block_that_does_not_fit_is_an_error(
    settings: Deployment, changes: dict[str, Any], value: str
) -> None:
    finding = only(found(settings, BLOCK, described(block_facts(**changes))))
    assert (finding.level, finding.value) == (Level.ERROR, value)
