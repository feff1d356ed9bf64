"""Quotas of what the network stack makes."""

from dataclasses import replace
from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.addresses import check_network
from infra.doctor.case import Case
from infra.doctor.findings import Level
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.deployed import status_of
from tests.infra.doctor.stand_ins import stubbed


@pytest.mark.parametrize(
    ("limits", "levels"),
    [
        ((5, 5), [Level.OK, Level.OK]),
        ((4, 5), [Level.ERROR, Level.OK]),
        ((5, 3), [Level.OK, Level.ERROR]),
    ],
)
def test_one_vpc_and_one_address_more_must_be_allowed(
    moto_case: Case, limits: tuple[int, int], levels: list[Level]
) -> None:
    ec2 = moto_case.clients("ec2")
    for _ in range(3):  # beside the default one
        ec2.create_vpc(CidrBlock="10.0.0.0/16")
        ec2.allocate_address(Domain="vpc")
    quotas = stubbed(
        *[("service-quotas", "get_service_quota", {"Quota": {"Value": n}}) for n in limits]
    )

    def clients(service: str) -> Any:
        return (quotas if service == "service-quotas" else moto_case.clients)(service)

    findings = check_network(replace(moto_case, clients=clients))
    assert [finding.level for finding in findings] == levels
    assert [finding.what for finding in findings] == [
        "VPCs per region: needs 1 VPC beside 4 of others",
        "EC2-VPC Elastic IPs: needs 1 address beside 3 of others",
    ]


def test_a_network_that_exists_needs_no_more(settings: Deployment) -> None:
    clients = stubbed(status_of("steadfast-p5-network", "UPDATE_COMPLETE"))
    assert check_network(Case(clients, settings, NOW)) == []
