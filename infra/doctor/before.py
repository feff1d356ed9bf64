"""What must hold before a deploy can work, asked of AWS.

A check that is refused, throttled or cut off becomes a warning that it could not
be made, or an error where a deploy might destroy what it guards; the others go on.
Nothing here changes anything.
"""

from collections.abc import Callable
from dataclasses import dataclass

from botocore.exceptions import BotoCoreError, ClientError

from infra.aws import ERRORS, is_denied, one_line
from infra.doctor import (
    access,
    account,
    addons,
    capacity,
    cluster,
    dates,
    endpoints,
    file_system,
    platform,
    quotas,
    repository,
    software,
)
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, warning
from infra.doctor.reservations import RESERVATION

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    actions: tuple[str, ...]
    """The IAM actions it needs."""

    run: Callable[[Case], list[Finding]]

    guards: Callable[[Case], bool] | None = None
    """Whether a deploy may destroy what this check looks at, so that it must not go unmade."""


BEFORE = (
    Check(
        account.REGION,
        ("ec2:DescribeRegions", "ec2:DescribeAvailabilityZones"),
        account.check_region,
    ),
    Check(access.ACCESS, ("iam:GetRole", "iam:GetUser"), access.check_access),
    Check(account.BOOTSTRAP, ("ssm:GetParameter",), account.check_bootstrap),
    Check(endpoints.ENDPOINTS, ("ec2:DescribeVpcEndpointServices",), endpoints.check_endpoints),
    Check(
        capacity.OFFERINGS,
        ("ec2:DescribeInstanceTypeOfferings",),
        capacity.check_offerings,
    ),
    Check(
        quotas.VCPUS,
        (
            "ec2:DescribeInstanceTypes",
            "servicequotas:GetServiceQuota",
            "servicequotas:GetAWSDefaultServiceQuota",
        ),
        quotas.check_vcpus,
    ),
    Check(
        RESERVATION,
        (
            "ec2:DescribeCapacityReservations",
            "ec2:DescribeInstances",
            "resource-groups:ListGroupResources",
        ),
        capacity.check_reservations,
    ),
    Check(dates.DATES, ("autoscaling:DescribeAutoScalingGroups",), dates.check_dates),
    Check(
        software.AMI,
        ("ssm:GetParameter", "ec2:DescribeImages"),
        software.check_amis,
    ),
    Check(software.KUBERNETES, ("eks:DescribeClusterVersions",), software.check_version),
    Check(
        cluster.UPGRADE,
        ("eks:DescribeCluster", "ec2:DescribeSubnets"),
        cluster.check_upgrade,
    ),
    Check(platform.PLATFORM, ("cloudformation:DescribeStacks",), platform.check_platform),
    Check(
        quotas.FSX,
        (
            "fsx:DescribeFileSystems",
            "cloudformation:DescribeStackResources",
            "servicequotas:GetServiceQuota",
            "servicequotas:GetAWSDefaultServiceQuota",
        ),
        quotas.check_fsx,
    ),
    Check(
        file_system.UNCHANGED,
        (
            "cloudformation:DescribeStackResources",
            "cloudformation:DescribeStacks",
            "fsx:DescribeFileSystems",
            "ec2:DescribeSubnets",
            "ec2:DescribeVpcs",
        ),
        file_system.check_change,
        guards=file_system.may_exist,
    ),
    Check(
        repository.BUCKET,
        (
            "s3:ListBucket",
            "cloudformation:DescribeStackResources",
            "fsx:DescribeDataRepositoryAssociations",
        ),
        repository.check_repository,
    ),
    Check(
        software.IMAGE,
        ("ecr:DescribeImages",),
        software.check_images,
    ),
)

FILE_SYSTEM_STATE = Check(
    file_system.STATE,
    (
        "cloudformation:DescribeStackResources",
        "fsx:DescribeFileSystems",
        "ec2:DescribeSubnets",
        "ec2:DescribeVpcs",
    ),
    file_system.check_state,
)
"""Like ``ADD_ONS`` a check after a deploy that asks AWS."""

ADD_ONS = Check(addons.ADDONS, ("eks:ListAddons", "eks:DescribeAddon"), addons.check_addons)


def run_checks(checks: tuple[Check, ...], case: Case, progress: Progress) -> list[Finding]:
    findings = []
    for check in checks:
        progress(check.name)
        try:
            findings += check.run(case)
        except ERRORS as problem:
            findings.append(_not_made(check, case, problem))
    return findings


def _not_made(check: Check, case: Case, problem: BotoCoreError | ClientError) -> Finding:
    said, remedy = one_line(problem), "run the doctor again"
    if is_denied(problem):
        remedy = f"have {', '.join(check.actions)} allowed to whom you are logged in as"
    if check.guards and check.guards(case):
        return error(check.name, "could not be compared with what is deployed", said, remedy)
    return warning(check.name, "could not be checked", said, remedy)
