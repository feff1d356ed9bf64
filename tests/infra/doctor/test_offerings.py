"""Instance types in zones: of training nodes, and of system nodes."""

import pytest

from deployment import Deployment
from infra.doctor.capacity import check_offerings, judge_system_type
from infra.doctor.case import Case
from infra.doctor.findings import Level
from infra.node_groups import NodeGroup
from tests.infra.doctor.conftest import NOW


def test_a_type_offered_in_the_training_zone_is_good(moto_case: Case) -> None:
    training, system = check_offerings(moto_case)
    assert (training.level, system.level) == (Level.OK, Level.OK)
    assert system.what == "m7i.xlarge of the system nodes is offered in both zones"


def test_a_type_offered_elsewhere_comes_with_the_zones_that_have_it(moto_case: Case) -> None:
    group = NodeGroup.model_validate(
        {"instance_type": "p4de.24xlarge", "num_nodes": 1, "capacity": {"kind": "on-demand"}}
    )
    settings = moto_case.settings.model_copy(update={"node_groups": {"old": group}})
    finding, _ = check_offerings(Case(moto_case.clients, settings, NOW))
    assert finding.level is Level.ERROR
    assert finding.remedy == "set training_zone to one of: us-east-1b, us-east-1c"


@pytest.mark.parametrize(
    ("zones", "missing"),
    [
        ({"us-east-1a"}, "us-east-1b"),
        ({"us-east-1b"}, "us-east-1a"),
        ({"us-east-1c"}, "us-east-1a and us-east-1b"),
        (set(), "us-east-1a and us-east-1b"),
    ],
)
def test_the_type_of_system_nodes_must_be_offered_in_both_zones(
    settings: Deployment, zones: set[str], missing: str
) -> None:
    finding = judge_system_type(settings, zones)
    assert finding.level is Level.ERROR
    assert finding.what == f"m7i.xlarge of the system nodes is not offered in {missing}"
