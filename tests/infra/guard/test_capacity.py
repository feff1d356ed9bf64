"""A template that asks EC2 for other capacity than its file names, planted and refused."""

from typing import Any

import pytest

from infra.node_groups import Reservation
from tests.infra.conftest import Synthesize
from tests.infra.guard.planted import Plant, plant_in

RESERVATION = "cr-0123456789abcdef0"
TARGET = {"CapacityReservationTarget": {"CapacityReservationId": RESERVATION}}
ENDS = "AWS::AutoScaling::ScheduledAction"


def reserved(synthesized: Synthesize, placement_group: str | None, **data: Any) -> Plant:
    """The templates of p5 as if its file named a reservation, in which it starts."""
    templates = plant_in(synthesized("p5"))
    capacity = Reservation(
        kind="reservation", reservation_id=RESERVATION, placement_group=placement_group
    )
    group = templates.deployment.node_groups["p5"].model_copy(update={"capacity": capacity})
    deployment = templates.deployment.model_copy(update={"node_groups": {"p5": group}})
    del templates.launch_template["Placement"]
    templates.launch_template.update({"CapacityReservationSpecification": TARGET, **data})
    return Plant(deployment, templates.stacks)


def test_another_instance_type_than_the_files_is_refused(synthesized: Synthesize) -> None:
    templates = plant_in(synthesized("p5"))
    templates.launch_template["InstanceType"] = "p5e.48xlarge"
    [problem] = templates.verdict()
    assert "starts p5e.48xlarge, not the p5.48xlarge of the file" in problem


def test_a_placement_group_for_a_capacity_block_is_refused(synthesized: Synthesize) -> None:
    templates = plant_in(synthesized("p5-capacity-block"))
    templates.launch_template["Placement"] = {"GroupName": "close"}
    [problem] = templates.verdict()
    assert "has a placement group in which its reservation was not made" in problem


def test_a_block_that_says_no_market_is_refused(synthesized: Synthesize) -> None:
    templates = plant_in(synthesized("p5-capacity-block"))
    del templates.launch_template["InstanceMarketOptions"]
    [problem] = templates.verdict()
    assert "does not say MarketType capacity-block" in problem


def test_a_block_that_names_no_reservation_is_refused(synthesized: Synthesize) -> None:
    templates = plant_in(synthesized("p5-capacity-block"))
    del templates.launch_template["CapacityReservationSpecification"]
    [problem] = templates.verdict()
    assert "names no reservation" in problem


def test_a_block_that_nothing_empties_is_refused(synthesized: Synthesize) -> None:
    templates = plant_in(synthesized("p5-capacity-block"))
    assert templates.delete(templates.nodes, ENDS, lambda p: p["MaxSize"] == 0) == 1
    [problem] = templates.verdict()
    assert "nothing empties the group" in problem


def test_the_end_of_another_groups_block_empties_only_that_one(synthesized: Synthesize) -> None:
    templates = plant_in(synthesized("p5-capacity-block"))
    own = templates.stacks[templates.nodes]["Resources"]
    [end] = [key for key, r in own.items() if r["Type"] == ENDS and r["Properties"]["MaxSize"] == 0]
    templates.stacks["network"]["Resources"][end] = own.pop(end)
    [problem] = templates.verdict()
    assert "nothing empties the group" in problem


def test_a_reservation_that_is_not_named_is_refused(synthesized: Synthesize) -> None:
    [problem] = reserved(synthesized, None, CapacityReservationSpecification={}).verdict()
    assert "names no reservation" in problem


@pytest.mark.parametrize("own", ["close", None])
def test_a_reservation_is_not_packed_into_a_group_of_another_name(
    synthesized: Synthesize, own: str | None
) -> None:
    [problem] = reserved(synthesized, own, Placement={"GroupName": "elsewhere"}).verdict()
    assert "has a placement group in which its reservation was not made" in problem


def test_a_reservation_that_was_made_in_a_placement_group_is_not_entered_without(
    synthesized: Synthesize,
) -> None:
    [problem] = reserved(synthesized, "close").verdict()
    assert "lacks the placement group 'close'" in problem


def test_a_reservation_in_its_own_placement_group_is_right(synthesized: Synthesize) -> None:
    assert reserved(synthesized, "close", Placement={"GroupName": "close"}).verdict() == []
    assert reserved(synthesized, None).verdict() == []
