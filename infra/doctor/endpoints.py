"""Whether AWS offers each interface endpoint of the network stack in both zones.

One that is missing in one zone fails the deploy of the first stack.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok
from infra.doctor.lookups import all_pages
from infra.settings import InfraSettings

ENDPOINTS = "interface endpoints"

SERVICES = (
    *("ecr.api", "ecr.dkr", "ec2", "sts", "eks", "eks-auth", "logs", "fsx", "autoscaling"),
    *("ssm", "ssmmessages", "ec2messages"),
)
"""By the end of their names; the network stack makes an endpoint for each."""


def check_endpoints(case: Case) -> list[Finding]:
    """Nothing where the file asks for none."""
    if not case.settings.network.interface_endpoints:
        return []
    offered = all_pages(
        case.clients("ec2"),
        "describe_vpc_endpoint_services",
        "ServiceDetails",
        Filters=[{"Name": "service-type", "Values": ["Interface"]}],
    )
    return judge_endpoints(offered, case.settings)


def judge_endpoints(offered: Sequence[Mapping[str, Any]], settings: InfraSettings) -> list[Finding]:
    """``offered`` is what EC2's DescribeVpcEndpointServices lists."""
    zones_of = {each["ServiceName"]: each.get("AvailabilityZones", ()) for each in offered}
    findings = []
    for service in SERVICES:
        # Some services carry another prefix than com.amazonaws, as all do in China.
        end = f".{settings.region}.{service}"
        zones = {zone for name, each in zones_of.items() if name.endswith(end) for zone in each}
        wanted = (settings.training_zone, settings.second_zone)
        if missing := [zone for zone in wanted if zone not in zones]:
            findings.append(
                error(
                    ENDPOINTS,
                    f"AWS offers no endpoint of {service} in {' and '.join(missing)}",
                    f"offered in {', '.join(sorted(zones)) or 'no zone'}",
                    "choose other zones, or set network.interface_endpoints to false",
                )
            )
    return findings or [ok(ENDPOINTS, "offered in both zones", f"{len(SERVICES)} services")]
