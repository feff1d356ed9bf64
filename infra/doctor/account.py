"""Whose account this is, and whether it is ready: region, zones, and what CDK needs there."""

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from infra.aws import Clients, error_code
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok
from infra.doctor.lookups import parameter
from infra.names import BOOTSTRAP_QUALIFIER
from infra.settings import InfraSettings

CREDENTIALS = "credentials"
REGION = "region"
BOOTSTRAP = "CDK bootstrap"

BOOTSTRAP_PARAMETER = f"/cdk-bootstrap/{BOOTSTRAP_QUALIFIER}/version"
OLDEST_BOOTSTRAP = 6
"""Every synthesized template refuses an older one."""

NO_CONTROL_PLANE = frozenset({"use1-az3", "usw1-az2", "cac1-az3"})
"""Zones, by id, in which EKS takes no subnet of a cluster (EKS User Guide, network requirements).

A zone's name means another zone in another account; its id does not."""

# What EC2 says in a region that the account has not enabled, although the credentials are good.
_NOT_ENABLED = frozenset({"AuthFailure", "OptInRequired", "UnrecognizedClientException"})


def check_credentials(clients: Clients, settings: InfraSettings) -> Finding:
    """Asks AWS who is calling.

    Raises:
        BotoCoreError, ClientError: there are no credentials, or AWS does not accept them.
    """
    identity = clients("sts").get_caller_identity()
    return judge_identity(identity["Account"], identity["Arn"], settings.account)


def judge_identity(account: str, arn: str, wanted: str) -> Finding:
    if account != wanted:
        return error(
            CREDENTIALS,
            f"the credentials belong to account {account}, the deployment to {wanted}",
            arn,
            f"set AWS_PROFILE to a profile of account {wanted}, or correct 'account' in the file",
        )
    return ok(CREDENTIALS, f"they belong to account {account}", arn)


def check_region(case: Case) -> list[Finding]:
    ec2 = case.clients("ec2")
    try:
        regions = ec2.describe_regions(RegionNames=[case.settings.region], AllRegions=True)[
            "Regions"
        ]
        zones = ec2.describe_availability_zones(AllAvailabilityZones=False)["AvailabilityZones"]
    except ClientError as problem:
        if error_code(problem) not in _NOT_ENABLED:
            raise
        return judge_region(case.settings, [{"OptInStatus": "not-opted-in"}], [])
    return judge_region(case.settings, regions, zones)


def judge_region(
    settings: InfraSettings,
    regions: Sequence[Mapping[str, Any]],
    zones: Sequence[Mapping[str, Any]],
) -> list[Finding]:
    """From what EC2's DescribeRegions and DescribeAvailabilityZones say."""
    status = regions[0].get("OptInStatus", "opt-in-not-required") if regions else "unknown"
    if status not in ("opt-in-not-required", "opted-in"):
        return [
            error(
                REGION,
                f"region {settings.region} is not enabled for this account",
                status,
                f"run 'aws account enable-region --region-name {settings.region}'",
            )
        ]
    usable = {zone["ZoneName"] for zone in zones if zone.get("State") == "available"}
    missing = [z for z in (settings.training_zone, settings.second_zone) if z not in usable]
    if missing:
        return [
            error(
                REGION,
                f"this account has no zone {', '.join(missing)}",
                f"has {', '.join(sorted(usable))}",
                "choose training_zone and second_zone among these",
            )
        ]
    ids = {zone["ZoneName"]: zone.get("ZoneId", "") for zone in zones}
    return [
        error(
            REGION,
            f"EKS takes no control plane in {zone}",
            f"{key} is zone {ids[zone]}",
            f"choose another {key}",
        )
        for key, zone in (
            ("training_zone", settings.training_zone),
            ("second_zone", settings.second_zone),
        )
        if ids[zone] in NO_CONTROL_PLANE
    ] or [ok(REGION, "enabled, with both zones", settings.region)]


def check_bootstrap(case: Case) -> list[Finding]:
    return [judge_bootstrap(parameter(case.clients, BOOTSTRAP_PARAMETER), case.settings)]


def judge_bootstrap(version: str | None, settings: InfraSettings) -> Finding:
    """``version`` is that of the stack which ``cdk bootstrap`` leaves in a region."""
    if version is not None and version.isdigit() and int(version) >= OLDEST_BOOTSTRAP:
        return ok(BOOTSTRAP, "done", f"version {version}")
    what = "has never been run here" if version is None else "must be run again"
    target = f"aws://{settings.account}/{settings.region}"
    remedy = f"run 'node_modules/.bin/cdk bootstrap {target}'"
    return error(BOOTSTRAP, f"'cdk bootstrap' {what}", f"version {version or 'none'}", remedy)
