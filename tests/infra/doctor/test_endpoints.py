"""Interface endpoints in both zones."""

from dataclasses import replace
from typing import Any

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.endpoints import SERVICES, check_endpoints, judge_endpoints
from infra.doctor.findings import Level
from infra.endpoints import SERVICES as SERVICES_OF_THE_STACK
from infra.network_settings import NetworkSettings
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import stubbed

ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]


def offered() -> list[dict[str, Any]]:
    prefix = "com.amazonaws.us-east-1."
    return [{"ServiceName": prefix + each, "AvailabilityZones": ZONES} for each in SERVICES]


def test_the_doctor_knows_the_endpoints_that_the_stack_makes() -> None:
    assert {service.short_name for service in SERVICES_OF_THE_STACK.values()} == {*SERVICES}


def test_services_that_both_zones_have_are_good(settings: Deployment) -> None:
    clients = stubbed(("ec2", "describe_vpc_endpoint_services", {"ServiceDetails": offered()}))
    [finding] = check_endpoints(Case(clients, settings, NOW))
    assert finding.level is Level.OK


def test_a_service_that_one_zone_lacks_is_named(settings: Deployment) -> None:
    services = offered()
    services[5]["AvailabilityZones"] = ["us-east-1a", "us-east-1c"]
    [finding] = judge_endpoints(services, settings)
    assert finding.level is Level.ERROR
    assert finding.what == "AWS offers no endpoint of eks-auth in us-east-1b"
    assert finding.value == "offered in us-east-1a, us-east-1c"


def test_a_service_that_is_not_offered_at_all_is_named(settings: Deployment) -> None:
    [finding] = judge_endpoints(offered()[1:], settings)
    assert finding.what == "AWS offers no endpoint of ecr.api in us-east-1a and us-east-1b"


def test_a_deployment_without_endpoints_asks_nobody(moto_case: Case) -> None:
    network = NetworkSettings(interface_endpoints=False)
    settings = moto_case.settings.model_copy(update={"network": network})
    assert check_endpoints(replace(moto_case, settings=settings)) == []
