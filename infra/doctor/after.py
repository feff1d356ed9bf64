"""What must hold once the cluster is up, asked of the cluster itself and of FSx.

Not covered: whether the fabric carries traffic, which only a run shows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from infra.aws import ERRORS
from infra.doctor.before import ADD_ONS, FILE_SYSTEM_STATE, Progress, run_checks
from infra.doctor.case import Case
from infra.doctor.cluster import describe_cluster
from infra.doctor.file_system import FileSystem, find_file_system
from infra.doctor.findings import Finding, error, warning
from infra.doctor.kubelets import judge_kubelets
from infra.doctor.lookups import storage_file_system_id
from infra.doctor.mounting import judge_clients, judge_volume
from infra.doctor.nodes import (
    judge_counts,
    judge_devices,
    judge_health,
    judge_plugins,
    judge_taints,
)
from infra.doctor.objects import Cluster
from infra.doctor.pods import judge_claim, judge_terminating
from infra.kubectl import Kubectl, KubectlError, KubectlForbiddenError

API = "cluster API"

NODES, PODS, DAEMON_SETS = "nodes", "pods", "daemonsets"
CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"

Judge = Callable[[Cluster], list[Finding]]


def check_after(case: Case, kubectl: Kubectl, progress: Progress) -> list[Finding]:
    """Findings on file system and cluster; one error where the cluster does not answer."""
    findings = run_checks((FILE_SYSTEM_STATE, ADD_ONS), case, progress)
    seen: dict[str, list[dict[str, Any]]] = {}
    for kind in (NODES, PODS, DAEMON_SETS, CLAIMS, VOLUMES):
        progress(f"{API}: {kind}")
        namespace = case.settings.namespace if kind == CLAIMS else None
        try:
            seen[kind] = kubectl.get(kind, namespace=namespace)
        except KubectlForbiddenError as problem:
            remedy = "ask a principal of admin_arns to run the doctor"
            findings.append(warning(kind, "could not be checked", problem, remedy))
        except KubectlError as problem:
            return [*findings, error(API, "the cluster does not answer", problem, kubectl.remedy)]
    cluster = Cluster(
        nodes=seen.get(NODES, []),
        pods=seen.get(PODS, []),
        daemon_sets=seen.get(DAEMON_SETS, []),
        claims=seen.get(CLAIMS, []),
        volumes=seen.get(VOLUMES, []),
    )
    for kinds, judge in _judges(case):
        if kinds <= seen.keys():
            findings += judge(cluster)
    return findings


def _judges(case: Case) -> list[tuple[set[str], Judge]]:
    """Each with the kinds of objects without which it would judge wrongly."""
    settings, now = case.settings, case.now
    has = _file_system(case)
    judges: list[tuple[set[str], Judge]] = [
        ({NODES}, partial(judge_counts, settings=settings, now=now)),
        ({NODES}, partial(judge_devices, settings=settings)),
        ({NODES}, judge_health),
        ({NODES}, partial(judge_kubelets, version=_version(case))),
        ({NODES, PODS, DAEMON_SETS}, partial(judge_plugins, settings=settings)),
        ({NODES, PODS}, partial(judge_taints, now=now)),
        ({NODES}, judge_clients),
        (
            {CLAIMS},
            partial(
                judge_claim,
                settings=settings,
                file_system_id=has.id if has else _file_system_id(case),
            ),
        ),
        ({NODES, PODS}, partial(judge_terminating, now=now)),
    ]
    if has:
        judges.append(({VOLUMES}, partial(judge_volume, settings=settings, has=has)))
    return judges


def _version(case: Case) -> str:
    """The control plane's; the file's where EKS could not be asked."""
    try:
        cluster = describe_cluster(case.clients, case.settings) or {}
    except ERRORS:
        cluster = {}
    return str(cluster.get("version", case.settings.kubernetes_version))


def _file_system(case: Case) -> FileSystem | None:
    """None also where it could not be asked for, which the file system's own check says."""
    try:
        return find_file_system(case.clients, case.settings)
    except ERRORS:
        return None


def _file_system_id(case: Case) -> str | None:
    """Of which CloudFormation knows even where FSx could not be asked."""
    try:
        return storage_file_system_id(case.clients, case.settings)
    except ERRORS:
        return None
