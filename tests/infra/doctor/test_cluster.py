"""Kubernetes versions of a cluster that exists."""

import pytest

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.cluster import check_upgrade, judge_upgrade
from infra.doctor.findings import Level
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import Answer, stubbed


def test_no_cluster_can_become_any_version(moto_case: Case) -> None:
    [finding] = check_upgrade(moto_case)
    assert (finding.level, finding.what) == (Level.OK, "none is deployed yet")


@pytest.mark.parametrize(
    ("deployed", "level", "remedy"),
    [
        ("1.35", Level.OK, ""),
        ("1.34", Level.WARNING, "replace the training nodes afterwards, group by group"),
        ("1.33", Level.ERROR, 'set kubernetes_version to "1.34" first'),
        ("1.36", Level.ERROR, 'set kubernetes_version to "1.36" first'),
    ],
)
def test_versions_go_up_one_at_a_time(deployed: str, level: Level, remedy: str) -> None:
    finding = judge_upgrade({"version": deployed, "status": "ACTIVE"}, "1.35")
    assert (finding.level, finding.remedy) == (level, remedy)


@pytest.mark.parametrize(
    ("status", "level"), [("UPDATING", Level.WARNING), ("FAILED", Level.ERROR)]
)
def test_a_cluster_that_is_not_active_is_not_good(
    settings: Deployment, status: str, level: Level
) -> None:
    answer = {"cluster": {"version": "1.35", "status": status}}
    [finding] = check_upgrade(Case(stubbed(("eks", "describe_cluster", answer)), settings, NOW))
    assert finding.level is level


def test_an_upgrade_says_which_nodes_it_rolls() -> None:
    finding = judge_upgrade({"version": "1.34", "status": "ACTIVE"}, "1.35")
    assert "control plane and the system nodes, not the training nodes" in finding.what


def place(zones: tuple[str, ...], service_cidr: str) -> list[Answer]:
    cluster = {
        "version": "1.35",
        "status": "ACTIVE",
        "resourcesVpcConfig": {"subnetIds": ["subnet-1", "subnet-2"]},
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": service_cidr},
    }
    subnets = [{"AvailabilityZone": zone} for zone in zones]
    return [
        ("eks", "describe_cluster", {"cluster": cluster}),
        ("ec2", "describe_subnets", {"Subnets": subnets}),
    ]


@pytest.mark.parametrize(
    ("zones", "service_cidr", "keys"),
    [
        (("us-east-1a", "us-east-1b"), "172.20.0.0/16", []),
        (("us-east-1b", "us-east-1a"), "172.20.0.0/16", []),
        (("us-east-1a", "us-east-1c"), "172.20.0.0/16", ["second_zone"]),
        (("us-east-1a", "us-east-1b"), "10.100.0.0/16", ["network.service_cidr"]),
        (
            ("us-east-1a", "us-east-1c"),
            "10.100.0.0/16",
            ["second_zone", "network.service_cidr"],
        ),
    ],
)
def test_a_deployed_cluster_keeps_its_zones_and_its_services(
    settings: Deployment, zones: tuple[str, ...], service_cidr: str, keys: list[str]
) -> None:
    upgrade, *found = check_upgrade(Case(stubbed(*place(zones, service_cidr)), settings, NOW))
    assert upgrade.level is Level.OK
    assert all(finding.level is Level.ERROR for finding in found)
    assert [finding.remedy for finding in found] == [
        f"set {key} back, or deploy under another name" for key in keys
    ]
