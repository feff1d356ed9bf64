"""Which instances count as a group's own, and what of a stack is deployed."""

from typing import Any

from infra.aws import Clients
from infra.doctor.case import Case
from infra.doctor.lookups import deployed_resources, running_nodes
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import stubbed
from tests.infra.teardown.training_nodes import training_nodes

RESERVED = "cr-0123456789abcdef0"


def put_in_reservation(clients: Clients) -> None:
    """moto knows of no reservation, so each of its instances is said to run in this one."""

    def add(parsed: dict[str, Any], **_: object) -> None:
        for reservation in parsed["Reservations"]:
            for instance in reservation["Instances"]:
                instance["CapacityReservationId"] = RESERVED

    clients("ec2").meta.events.register("after-call.ec2.DescribeInstances", add)


def test_only_nodes_of_the_group_itself_are_its_own(moto_case: Case) -> None:
    """Counting others as its own would make a full reservation look free."""
    clients, settings = moto_case.clients, moto_case.settings
    put_in_reservation(clients)
    with (
        training_nodes(clients, 2, group="steadfast-p5-p5"),
        training_nodes(clients, 3, group="steadfast-p5-other"),
    ):
        assert running_nodes(clients, settings, "p5") == {RESERVED: 2}
        assert running_nodes(clients, settings, "other") == {RESERVED: 3}


def test_a_node_that_has_stopped_holds_no_capacity(moto_case: Case) -> None:
    clients, settings = moto_case.clients, moto_case.settings
    put_in_reservation(clients)
    with training_nodes(clients, 2, group="steadfast-p5-p5") as nodes:
        clients("ec2").stop_instances(InstanceIds=nodes[:1])
        assert running_nodes(clients, settings, "p5") == {RESERVED: 1}


def test_a_node_on_demand_takes_up_no_reservation(moto_case: Case) -> None:
    clients, settings = moto_case.clients, moto_case.settings
    with training_nodes(clients, 2, group="steadfast-p5-p5"):
        assert running_nodes(clients, settings, "p5") == {}


def test_a_deployed_template_is_read_by_type(moto_case: Case) -> None:
    template = '{"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}'
    moto_case.clients("cloudformation").create_stack(StackName="mine", TemplateBody=template)
    assert deployed_resources(moto_case.clients, "mine") == {"AWS::SNS::Topic": [{}]}
    assert deployed_resources(moto_case.clients, "absent") == {}


def test_nothing_of_a_stack_that_is_made_anew_counts_as_deployed() -> None:
    for status in ("ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS"):
        stack = {"StackName": "mine", "CreationTime": NOW, "StackStatus": status}
        clients = stubbed(("cloudformation", "describe_stacks", {"Stacks": [stack]}))
        assert deployed_resources(clients, "mine") == {}
