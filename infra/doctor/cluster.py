"""Whether there is a cluster, and whether it can become what the file says: version and place."""

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from infra.aws import Clients, error_code
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok, warning
from infra.settings import InfraSettings

UPGRADE = "cluster"


def describe_cluster(clients: Clients, settings: InfraSettings) -> Mapping[str, Any] | None:
    """EKS's description of the cluster; None if there is none."""
    try:
        cluster: Mapping[str, Any] = clients("eks").describe_cluster(name=settings.name)["cluster"]
    except ClientError as problem:
        if error_code(problem) != "ResourceNotFoundException":
            raise
        return None
    return cluster


def check_upgrade(case: Case) -> list[Finding]:
    cluster = describe_cluster(case.clients, case.settings)
    findings = [judge_upgrade(cluster, case.settings.kubernetes_version)]
    if cluster is not None:
        subnets = cluster.get("resourcesVpcConfig", {}).get("subnetIds", [])
        findings += judge_place(cluster, _zones_of(case.clients, subnets), case.settings)
    return findings


def judge_upgrade(cluster: Mapping[str, Any] | None, wanted: str) -> Finding:
    """EKS goes up by one minor version at a time, and never down."""
    if cluster is None:
        return ok(UPGRADE, "none is deployed yet", "any version can be")
    status = cluster.get("status", "unknown")
    if status in ("FAILED", "DELETING"):
        return error(UPGRADE, "the cluster cannot be used", status, "take it down, then deploy")
    if status != "ACTIVE":
        return warning(UPGRADE, "the cluster is changing", status, "wait some minutes")
    has = cluster["version"]
    value = f"deployed {has}, file {wanted}"
    steps = minor_of(wanted) - minor_of(has)
    if steps == 0:
        return ok(UPGRADE, "active", f"Kubernetes {has}")
    if steps == 1:
        remedy = "replace the training nodes afterwards, group by group"
        what = "a deploy upgrades the control plane and the system nodes, not the training nodes"
        return warning(UPGRADE, what, value, remedy)
    reachable = f"1.{minor_of(has) + 1}" if steps > 1 else has
    return error(
        UPGRADE,
        "the control plane goes up one version at a time, and never down",
        value,
        f'set kubernetes_version to "{reachable}" first',
    )


def judge_place(
    cluster: Mapping[str, Any], zones: Sequence[str], settings: InfraSettings
) -> list[Finding]:
    """What can never be changed of a cluster; ``zones`` are those of its subnets."""
    findings = []
    if zones and settings.second_zone not in zones:
        what = "the cluster stays in the zones that it was made in, and EKS refuses another"
        value = f"deployed {', '.join(sorted(zones))}, file {settings.second_zone}"
        findings.append(error(UPGRADE, what, value, _set_back("second_zone")))
    has = cluster.get("kubernetesNetworkConfig", {}).get("serviceIpv4Cidr")
    if has and has != settings.network.service_cidr:
        what = "another range for Services would replace the cluster"
        value = f"deployed {has}, file {settings.network.service_cidr}"
        findings.append(error(UPGRADE, what, value, _set_back("network.service_cidr")))
    return findings


def _set_back(key: str) -> str:
    return f"set {key} back, or deploy under another name"


def _zones_of(clients: Clients, subnets: Sequence[str]) -> list[str]:
    if not subnets:
        return []
    found = clients("ec2").describe_subnets(SubnetIds=list(subnets))["Subnets"]
    return [subnet["AvailabilityZone"] for subnet in found]


def minor_of(version: str) -> int:
    return int(version.split(".")[1])
