"""Whether there is a cluster, and whether the file's Kubernetes version can be made of its own."""

from collections.abc import Mapping
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
    return [
        judge_upgrade(
            describe_cluster(case.clients, case.settings), case.settings.kubernetes_version
        )
    ]


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
    steps = _minor(wanted) - _minor(has)
    if steps == 0:
        return ok(UPGRADE, "active", f"Kubernetes {has}")
    if steps == 1:
        remedy = "replace the training nodes afterwards, group by group"
        return warning(UPGRADE, "a deploy upgrades the control plane, not the nodes", value, remedy)
    reachable = f"1.{_minor(has) + 1}" if steps > 1 else has
    return error(
        UPGRADE,
        "the control plane goes up one version at a time, and never down",
        value,
        f'set kubernetes_version to "{reachable}" first',
    )


def _minor(version: str) -> int:
    return int(version.split(".")[1])
