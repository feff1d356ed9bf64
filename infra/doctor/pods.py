"""Pods that do not go, and the claim that every run mounts."""

from datetime import datetime

from infra.doctor.findings import Finding, error, ok, warning
from infra.doctor.nodes import PATIENCE, STORAGE_DRIVER
from infra.doctor.objects import (
    SYSTEM_NAMESPACE,
    Cluster,
    Object,
    daemon_pod,
    is_ready,
    name_of,
    seconds_since,
)
from infra.doctor.platform import made_anew
from infra.settings import InfraSettings

TERMINATING = "pods"
CLAIM = "claim"


def judge_terminating(cluster: Cluster, now: datetime) -> list[Finding]:
    """Pods that are still there five minutes after their grace period."""
    findings = []
    for pod in cluster.pods:
        # The time of deletion has the grace period in it already.
        deleted = pod["metadata"].get("deletionTimestamp")
        late = seconds_since(deleted, now) if deleted else 0.0
        if late <= PATIENCE.total_seconds():
            continue
        metadata = pod["metadata"]
        held = ", ".join(metadata.get("finalizers", ())) or "no finalizers"
        findings.append(
            error(
                TERMINATING,
                f"{metadata['namespace']}/{name_of(pod)} does not end",
                f"{late / 60:.0f} minutes late, {held}",
                _how_to_end(cluster, pod),
            )
        )
    return findings or [ok(TERMINATING, "none is stuck while it ends", f"{len(cluster.pods)} pods")]


def _how_to_end(cluster: Cluster, pod: Object) -> str:
    namespace, node_name = pod["metadata"]["namespace"], pod["spec"].get("nodeName")
    force = f"kubectl -n {namespace} delete pod {name_of(pod)} --force --grace-period=0"
    node = next((node for node in cluster.nodes if name_of(node) == node_name), None)
    if node is None:
        return f"its node {node_name} is gone: {force}"
    if not is_ready(node):
        # Forced away while its process still writes, its successor would write beside it.
        return f"its node {node_name} is silent: terminate that instance first, then {force}"
    driver = daemon_pod(cluster.pods, STORAGE_DRIVER, name_of(node))
    if driver is None:
        return f"see its events: kubectl -n {namespace} describe pod {name_of(pod)}"
    restart = f"kubectl -n {SYSTEM_NAMESPACE} delete pod {name_of(driver)}"
    return f"often an unmount that hangs, so restart the node's storage driver: {restart}"


def judge_claim(
    cluster: Cluster, settings: InfraSettings, file_system_id: str | None
) -> list[Finding]:
    """``file_system_id`` is the deployment's own; None where it could not be asked for."""
    name = settings.storage.claim
    where = f"{settings.namespace}/{name}"
    claim = next((each for each in cluster.claims if name_of(each) == name), None)
    if claim is None:
        what = "the claim that runs mount does not exist"
        return [error(CLAIM, what, where, made_anew(settings))]
    if claim["metadata"].get("deletionTimestamp"):
        what = "the claim is being deleted, and waits for the pods that mount it"
        return [error(CLAIM, what, where, made_anew(settings))]
    phase, volume_name = claim.get("status", {}).get("phase"), claim["spec"].get("volumeName")
    if phase != "Bound":
        look = f"kubectl -n {settings.namespace} describe pvc {name}"
        return [error(CLAIM, "the claim is not bound", f"{where} {phase}", f"see why: {look}")]
    volume = next((each for each in cluster.volumes if name_of(each) == volume_name), None)
    handle = volume["spec"].get("csi", {}).get("volumeHandle") if volume else None
    if file_system_id and handle and handle != file_system_id:
        return [
            error(
                CLAIM,
                "the claim is bound to another file system than the storage stack's",
                f"{handle}, not {file_system_id}",
                made_anew(settings),
            )
        ]
    if handle is None:
        what = "the claim is bound, but its volume could not be seen"
        return [warning(CLAIM, what, where, f"kubectl get pv {volume_name}")]
    return [ok(CLAIM, f"bound to {handle}", where)]
