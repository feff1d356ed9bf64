"""Which instances count as a group's own."""

from infra.doctor.case import Case
from infra.doctor.lookups import running_nodes
from tests.infra.teardown.training_nodes import training_nodes


def test_only_nodes_of_the_group_itself_are_its_own(moto_case: Case) -> None:
    """Counting others as its own would make a full reservation look free."""
    clients, settings = moto_case.clients, moto_case.settings
    with (
        training_nodes(clients, 2, group="steadfast-p5-p5"),
        training_nodes(clients, 3, group="steadfast-p5-other"),
    ):
        assert running_nodes(clients, settings, "p5") == 2
        assert running_nodes(clients, settings, "other") == 3


def test_a_node_that_has_stopped_holds_no_capacity(moto_case: Case) -> None:
    clients, settings = moto_case.clients, moto_case.settings
    with training_nodes(clients, 2, group="steadfast-p5-p5") as nodes:
        clients("ec2").stop_instances(InstanceIds=nodes[:1])
        assert running_nodes(clients, settings, "p5") == 1
