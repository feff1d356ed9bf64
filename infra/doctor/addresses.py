"""Whether the account's quotas leave room for the network: one VPC and one Elastic IP.

Not covered: NAT gateways, whose quota counts by zone, five in each by default.
"""

from infra import names
from infra.doctor.case import Case
from infra.doctor.findings import Finding
from infra.doctor.lookups import ABSENT, all_pages, stack_status
from infra.doctor.quotas import Quota, judge_quota, limit_of

NETWORK = "network quota"

VPCS = Quota("L-F678F1CE", "VPCs per region")
ELASTIC_IPS = Quota("L-0263D0A3", "EC2-VPC Elastic IPs")


def check_network(case: Case) -> list[Finding]:
    """Nothing once the network stack exists: it has both."""
    if stack_status(case.clients, names.stack_name(case.settings, names.NETWORK)) not in ABSENT:
        return []
    ec2 = case.clients("ec2")
    vpcs = len(all_pages(ec2, "describe_vpcs", "Vpcs"))
    addresses = len(ec2.describe_addresses()["Addresses"])
    return [
        judge_quota(
            NETWORK,
            quota,
            needed=1,
            used=used,
            limit=limit_of(case.clients, service, quota),
            unit=unit,
            region=case.settings.region,
            service=service,
        )
        for service, quota, used, unit in (
            ("vpc", VPCS, vpcs, "VPC"),
            ("ec2", ELASTIC_IPS, addresses, "address"),
        )
    ]
