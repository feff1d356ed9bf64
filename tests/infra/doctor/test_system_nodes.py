"""Changes of the system nodes that EKS does not take together."""

from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.findings import Level
from infra.doctor.system_nodes import check_system_nodes
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.deployed import status_of, synthesized, system_nodes
from tests.infra.doctor.stand_ins import stubbed


@pytest.mark.parametrize(
    ("deployed", "level", "value"),
    [
        ({}, Level.OK, "none"),
        ({"version": "1.34"}, Level.OK, "kubernetes_version 1.34 to 1.35"),
        ({"num_nodes": 3}, Level.OK, "system_nodes.num_nodes 3 to 2"),
        (
            {"version": "1.34", "num_nodes": 3},
            Level.ERROR,
            "kubernetes_version 1.34 to 1.35, system_nodes.num_nodes 3 to 2",
        ),
        (
            {"version": "1.34", "instance_type": "m5.large"},
            Level.ERROR,
            "kubernetes_version 1.34 to 1.35, system_nodes.instance_type m5.large to m7i.xlarge",
        ),
        (
            {"num_nodes": 3, "instance_type": "m5.large"},
            Level.ERROR,
            "system_nodes.num_nodes 3 to 2, system_nodes.instance_type m5.large to m7i.xlarge",
        ),
    ],
)
def test_system_nodes_change_one_key_at_a_time(
    settings: Deployment, deployed: dict[str, Any], level: Level, value: str
) -> None:
    [finding] = check_system_nodes(Case(stubbed(*system_nodes(**deployed)), settings, NOW))
    assert (finding.level, finding.value) == (level, value)


def test_system_nodes_are_found_in_a_synthesized_template(settings: Deployment) -> None:
    [finding] = check_system_nodes(Case(stubbed(*synthesized("p5", "cluster")), settings, NOW))
    assert (finding.what, finding.value) == ("one change at the most", "none")


@pytest.mark.parametrize("status", [None, "ROLLBACK_COMPLETE"])
def test_system_nodes_that_are_to_be_made_may_be_anything(
    settings: Deployment, status: str | None
) -> None:
    clients = stubbed(status_of("steadfast-p5-cluster", status))
    [finding] = check_system_nodes(Case(clients, settings, NOW))
    assert (finding.level, finding.what) == (Level.OK, "none are deployed yet")
