"""What must hold once the cluster is up, asked of the cluster itself and of FSx.

Not covered: whether the fabric carries traffic, which only a run shows.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from infra.aws import ERRORS
from infra.doctor import nodes
from infra.doctor.before import (
    ADD_ONS,
    FILE_SYSTEM_STATE,
    UNEXPECTED,
    Progress,
    not_understood,
    run_checks,
)
from infra.doctor.case import Case
from infra.doctor.cluster import describe_cluster
from infra.doctor.file_system import FileSystem, find_file_system
from infra.doctor.findings import Finding, error, warning
from infra.doctor.kubelets import KUBELETS, judge_kubelets
from infra.doctor.lookups import storage_file_system_id
from infra.doctor.mounting import CLIENT, VOLUME, judge_clients, judge_volume
from infra.doctor.objects import Cluster
from infra.doctor.pods import CLAIM, TERMINATING, judge_claim, judge_terminating
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
    for name, kinds, judge in _judges(case):
        if kinds <= seen.keys():
            findings += _judged(name, judge, cluster)
    return findings


def _judged(check: str, judge: Judge, cluster: Cluster) -> list[Finding]:
    try:
        return judge(cluster)
    except UNEXPECTED as problem:
        return [not_understood(check, problem)]


def _judges(case: Case) -> list[tuple[str, set[str], Judge]]:
    """Each with its check, and the kinds of objects without which it would judge wrongly."""
    settings, now = case.settings, case.now
    has = _file_system(case)
    judges: list[tuple[str, set[str], Judge]] = [
        (nodes.NODES, {NODES}, partial(nodes.judge_counts, settings=settings, now=now)),
        (nodes.DEVICES, {NODES}, partial(nodes.judge_devices, settings=settings)),
        (nodes.HEALTH, {NODES}, nodes.judge_health),
        (KUBELETS, {NODES}, partial(judge_kubelets, version=_version(case))),
        (
            nodes.PLUGINS,
            {NODES, PODS, DAEMON_SETS},
            partial(nodes.judge_plugins, settings=settings),
        ),
        (nodes.TAINT, {NODES, PODS}, partial(nodes.judge_taints, now=now)),
        (CLIENT, {NODES}, judge_clients),
        (
            CLAIM,
            {CLAIMS},
            partial(
                judge_claim,
                settings=settings,
                file_system_id=has.id if has else _file_system_id(case),
            ),
        ),
        (TERMINATING, {NODES, PODS}, partial(judge_terminating, now=now)),
    ]
    if has:
        judges.append((VOLUME, {VOLUMES}, partial(judge_volume, settings=settings, has=has)))
    return judges


def _version(case: Case) -> str:
    """The control plane's; the file's where EKS could not be asked."""
    try:
        cluster = describe_cluster(case.clients, case.settings) or {}
    except (*ERRORS, *UNEXPECTED):
        cluster = {}
    return str(cluster.get("version", case.settings.kubernetes_version))


def _file_system(case: Case) -> FileSystem | None:
    """None also where it could not be asked for, which the file system's own check says."""
    try:
        return find_file_system(case.clients, case.settings)
    except (*ERRORS, *UNEXPECTED):
        return None


def _file_system_id(case: Case) -> str | None:
    """Of which CloudFormation knows even where FSx could not be asked."""
    try:
        return storage_file_system_id(case.clients, case.settings)
    except (*ERRORS, *UNEXPECTED):
        return None
