"""Where the nodes of a group come from, how many there are, and when."""

from typing import Any

import pytest

from deployment import Deployment
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.groups import group, launch_template, with_nodes
from tests.infra.templates import Synthesized

RESERVATION = "cr-0123456789abcdef0"
GROUP_ARN = "arn:aws:resource-groups:us-east-1:111122223333:group/h100"


def test_on_demand_nodes_are_packed_close_and_all_wanted(synthesized: Synthesize) -> None:
    template = synthesized("p5")
    placement = template.only(template.nodes, "AWS::EC2::PlacementGroup")
    assert placement["Strategy"] == "cluster"
    assert "Placement" in launch_template(template)
    sizes = {key: group(template)[key] for key in ("MinSize", "DesiredCapacity", "MaxSize")}
    assert sizes == {"MinSize": "0", "DesiredCapacity": "2", "MaxSize": "2"}


def resizes(synthesized: Synthesized) -> list[dict[str, Any]]:
    found = synthesized.resources(synthesized.nodes, "AWS::AutoScaling::ScheduledAction")
    return sorted(found, key=lambda action: str(action["StartTime"]))


def update_policy(synthesized: Synthesized) -> dict[str, Any]:
    resources = synthesized.stacks[synthesized.nodes]["Resources"].values()
    [found] = [r for r in resources if r["Type"] == "AWS::AutoScaling::AutoScalingGroup"]
    policy: dict[str, Any] = found.get("UpdatePolicy", {})
    return policy


def test_no_node_of_a_capacity_block_starts_before_its_block(synthesized: Synthesize) -> None:
    sizes = group(synthesized("p5-capacity-block"))
    assert (sizes["MinSize"], sizes["MaxSize"]) == ("0", "2")
    # Absent is zero at creation, and does not end running nodes at a later deploy.
    assert "DesiredCapacity" not in sizes


def test_the_group_of_a_block_grows_at_its_start_and_is_empty_45_minutes_before_its_end(
    synthesized: Synthesize,
) -> None:
    template = synthesized("p5-capacity-block")
    start, end = resizes(template)
    for action, moment, num_nodes in (
        (start, "2027-01-11T11:30:00Z", 2),
        (end, "2027-01-13T10:45:00Z", 0),
    ):
        named = template.resource_named_by(action["AutoScalingGroupName"], template.nodes)
        assert named["Type"] == "AWS::AutoScaling::AutoScalingGroup"
        assert action["StartTime"] == moment
        sizes = action["MinSize"], action["DesiredCapacity"], action["MaxSize"]
        assert sizes == (0, num_nodes, num_nodes)


def test_the_spares_of_a_block_start_with_the_others(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    capacity = {
        "kind": "capacity-block",
        "reservation_id": RESERVATION,
        "starts_at": "2027-01-11T11:30:00Z",
        "ends_at": "2027-01-13T11:30:00Z",
    }
    template = synthesized_as(with_nodes(p5, capacity=capacity, spare_nodes=1))
    assert group(template)["MaxSize"] == "3"
    start, end = resizes(template)
    assert (start["DesiredCapacity"], start["MaxSize"], end["MaxSize"]) == (3, 3, 0)


def test_a_deploy_leaves_a_blocks_group_as_the_clock_has_set_it(synthesized: Synthesize) -> None:
    assert update_policy(synthesized("p5-capacity-block")) == {
        "AutoScalingScheduledAction": {"IgnoreUnmodifiedGroupSizeProperties": True}
    }


def test_a_running_block_has_all_nodes_at_once_and_only_an_end(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    capacity = {
        "kind": "capacity-block",
        "reservation_id": RESERVATION,
        "ends_at": "2027-01-13T12:30:00+01:00",
    }
    template = synthesized_as(with_nodes(p5, capacity=capacity, spare_nodes=1))
    sizes = group(template)
    assert (sizes["MinSize"], sizes["DesiredCapacity"], sizes["MaxSize"]) == ("0", "3", "3")
    [end] = resizes(template)
    assert (end["StartTime"], end["MaxSize"]) == ("2027-01-13T10:45:00Z", 0)


def test_on_demand_nodes_have_no_schedule(synthesized: Synthesize) -> None:
    assert resizes(synthesized("p5")) == []
    assert update_policy(synthesized("p5")) == {}


def test_spares_start_with_the_others(p5: Deployment, synthesized_as: SynthesizeChanged) -> None:
    sizes = group(synthesized_as(with_nodes(p5, spare_nodes=1)))
    assert (sizes["MinSize"], sizes["DesiredCapacity"], sizes["MaxSize"]) == ("0", "3", "3")


def test_a_capacity_block_names_its_market_and_has_no_placement_group(
    synthesized: Synthesize,
) -> None:
    template = synthesized("p5-capacity-block")
    data = launch_template(template)
    assert data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    assert data["CapacityReservationSpecification"] == {
        "CapacityReservationTarget": {"CapacityReservationId": RESERVATION}
    }
    assert "Placement" not in data
    assert not template.resources(template.nodes, "AWS::EC2::PlacementGroup")


@pytest.mark.parametrize(
    ("key", "value", "property_name"),
    [
        ("reservation_id", RESERVATION, "CapacityReservationId"),
        ("reservation_group_arn", GROUP_ARN, "CapacityReservationResourceGroupArn"),
    ],
)
def test_reserved_nodes_start_in_their_reservation_and_in_nothing_else(
    p5: Deployment,
    synthesized_as: SynthesizeChanged,
    key: str,
    value: str,
    property_name: str,
) -> None:
    template = synthesized_as(with_nodes(p5, capacity={"kind": "reservation", key: value}))
    data = launch_template(template)
    assert data["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {property_name: value},
    }
    assert "InstanceMarketOptions" not in data
    assert "Placement" not in data
    assert group(template)["DesiredCapacity"] == "2"


def test_a_reservation_is_entered_through_the_placement_group_that_it_was_made_in(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    capacity = {"kind": "reservation", "reservation_id": RESERVATION, "placement_group": "ours"}
    template = synthesized_as(with_nodes(p5, capacity=capacity))
    assert launch_template(template)["Placement"] == {"GroupName": "ours"}
    assert not template.resources(template.nodes, "AWS::EC2::PlacementGroup")
