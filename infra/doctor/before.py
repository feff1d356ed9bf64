"""What must hold before a deploy can work, asked of AWS.

A check that is refused, throttled or cut off, or that does not understand the answer,
becomes a warning that it could not be made, or an error where a deploy might destroy
what it guards; the others go on.
Nothing here changes anything.
"""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from botocore.exceptions import BotoCoreError, ClientError

from infra.aws import ERRORS, is_denied, one_line
from infra.doctor import (
    access,
    account,
    addons,
    addresses,
    capacity,
    cluster,
    dates,
    endpoints,
    file_system,
    platform,
    quotas,
    repository,
    software,
    stacks,
    system_nodes,
    taken,
)
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, warning
from infra.doctor.reservations import RESERVATION

Progress = Callable[[str], None]

UNEXPECTED = (LookupError, TypeError, ValueError)
"""What reading an answer raises that is not of the form which the check knows."""


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
    Check(stacks.STACKS, ("cloudformation:DescribeStacks",), stacks.check_stacks),
    Check(
        taken.NAMES,
        (
            "cloudformation:DescribeStacks",
            "ecr:DescribeRepositories",
            "eks:DescribeCluster",
            "logs:DescribeLogGroups",
            "autoscaling:DescribeAutoScalingGroups",
        ),
        taken.check_names,
    ),
    Check(
        addresses.NETWORK,
        (
            "cloudformation:DescribeStacks",
            "ec2:DescribeVpcs",
            "ec2:DescribeAddresses",
            "servicequotas:GetServiceQuota",
            "servicequotas:GetAWSDefaultServiceQuota",
        ),
        addresses.check_network,
    ),
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
            "autoscaling:DescribeAutoScalingGroups",
            "cloudformation:DescribeStacks",
            "cloudformation:GetTemplate",
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
            "cloudformation:DescribeStacks",
            "cloudformation:GetTemplate",
            "resource-groups:ListGroupResources",
        ),
        capacity.check_reservations,
    ),
    Check(
        dates.DATES,
        ("cloudformation:DescribeStacks", "cloudformation:GetTemplate"),
        dates.check_dates,
    ),
    Check(
        software.AMI,
        ("ssm:GetParameter", "ec2:DescribeImages"),
        software.check_amis,
    ),
    Check(
        software.KUBERNETES,
        ("eks:DescribeClusterVersions", "eks:DescribeCluster"),
        software.check_version,
    ),
    Check(
        cluster.UPGRADE,
        ("eks:DescribeCluster", "ec2:DescribeSubnets"),
        cluster.check_upgrade,
    ),
    Check(
        system_nodes.SYSTEM_NODES,
        ("cloudformation:DescribeStacks", "cloudformation:GetTemplate"),
        system_nodes.check_system_nodes,
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
        except UNEXPECTED as problem:
            findings.append(not_understood(check.name, problem, guards=_guards(check, case)))
    return findings


def not_understood(check: str, problem: Exception, *, guards: bool = False) -> Finding:
    """For an answer in which something is missing, or is not what the check takes it for."""
    frames = traceback.extract_tb(problem.__traceback__)
    where = f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown place"
    said = " ".join(str(problem).split())
    level = error if guards else warning
    return level(
        check,
        "could not be checked: unexpected answer",
        f"{type(problem).__name__} {said} at {where}",
        "look at it by hand, and report this line as a defect of the doctor",
    )


def _not_made(check: Check, case: Case, problem: BotoCoreError | ClientError) -> Finding:
    said, remedy = one_line(problem), "run the doctor again"
    if is_denied(problem):
        remedy = f"have {', '.join(check.actions)} allowed to whom you are logged in as"
    if _guards(check, case):
        return error(check.name, "could not be compared with what is deployed", said, remedy)
    return warning(check.name, "could not be checked", said, remedy)


def _guards(check: Check, case: Case) -> bool:
    return check.guards is not None and check.guards(case)
