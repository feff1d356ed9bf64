"""Nodes: as many as the deployment says, ready, and with the devices of their type."""

from datetime import datetime, timedelta

from infra.bootstrap import GROUP_LABEL, STORAGE_TAINT
from infra.doctor.findings import Finding, error, ok, warning
from infra.doctor.objects import (
    SYSTEM_NAMESPACE,
    Cluster,
    Object,
    condition,
    daemon_pod,
    is_ready,
    name_of,
    quantity,
    seconds_since,
)
from infra.doctor.platform import made_anew
from infra.hardware import InstanceType
from infra.node_groups import CapacityBlock, NodeGroup
from infra.settings import InfraSettings

NODES = "nodes"
DEVICES = "devices"
HEALTH = "node health"
PLUGINS = "daemon sets"
TAINT = "storage taint"

NVIDIA_PLUGIN = "nvidia-device-plugin"
EFA_PLUGIN = "aws-efa-k8s-device-plugin"
STORAGE_DRIVER = "fsx-csi-node"

PATIENCE = timedelta(minutes=5)
"""What comes right by itself has done so by then."""

_GPUS, _EFA, _HUGEPAGES = "nvidia.com/gpu", "vpc.amazonaws.com/efa", "hugepages-2Mi"


def nodes_of_group(cluster: Cluster, group: str) -> list[Object]:
    return [n for n in cluster.nodes if n["metadata"].get("labels", {}).get(GROUP_LABEL) == group]


def judge_counts(cluster: Cluster, settings: InfraSettings, now: datetime) -> list[Finding]:
    findings = []
    for name, group in settings.node_groups.items():
        ready = [node for node in nodes_of_group(cluster, name) if is_ready(node)]
        findings.append(_judge_count(name, group, len(ready), settings, now))
    others = [n for n in cluster.nodes if GROUP_LABEL not in n["metadata"].get("labels", {})]
    ready_count, wanted = sum(map(is_ready, others)), settings.system_nodes.num_nodes
    value = f"{ready_count} of {wanted} ready"
    if ready_count < wanted:
        remedy = f"see why: aws eks list-nodegroups --cluster-name {settings.name}, then describe"
        findings.append(error(NODES, "system nodes are missing", value, remedy))
    else:
        findings.append(ok(NODES, "system nodes", value))
    return findings


def _judge_count(
    name: str, group: NodeGroup, ready: int, settings: InfraSettings, now: datetime
) -> Finding:
    value = f"{ready} of {group.all_nodes} ready"
    if group.spare_nodes:
        value += f", {group.spare_nodes} of them spare"
    if ready >= group.all_nodes:
        return ok(NODES, f"{name}: {group.instance_type}", value)
    if isinstance(group.capacity, CapacityBlock):
        block = group.capacity
        if block.starts_at and now < block.starts_at:
            when = f"{block.starts_at:%Y-%m-%d %H:%M %Z}"
            return ok(NODES, f"{name}: nodes start with the block", when)
        if now >= block.empty_at:
            return warning(NODES, f"{name}: the block is over", value, "buy another block")
    remedy = (
        "see why: aws autoscaling describe-scaling-activities --max-items 5 "
        f"--region {settings.region} "
        f"--auto-scaling-group-name {settings.auto_scaling_group_name(name)}"
    )
    if ready >= group.num_nodes:
        return warning(NODES, f"{name}: spares are missing", value, remedy)
    return error(NODES, f"{name}: nodes are missing", value, remedy)


def judge_devices(cluster: Cluster, settings: InfraSettings) -> list[Finding]:
    """On each ready node what a pod may ask for, against the catalog."""
    findings = []
    for name, group in settings.node_groups.items():
        ready = [node for node in nodes_of_group(cluster, name) if is_ready(node)]
        wrong = [f for node in ready for f in _wrong_devices(name, node, group.hardware)]
        has = group.hardware
        what = f"{name}: {has.num_gpus} GPUs, {has.num_efa} EFA, {has.hugepages_mib} MiB huge pages"
        findings += wrong or ([ok(DEVICES, what, f"on {len(ready)} nodes")] if ready else [])
    return findings


def _wrong_devices(group: str, node: Object, hardware: InstanceType) -> list[Finding]:
    allocatable = node["status"].get("allocatable", {})
    findings = []
    for resource, needed, plugin in (
        (_GPUS, hardware.num_gpus, NVIDIA_PLUGIN),
        (_EFA, hardware.num_efa, EFA_PLUGIN),
    ):
        if (has := quantity(allocatable.get(resource))) != needed:
            findings.append(
                error(
                    DEVICES,
                    f"{group}: {name_of(node)} offers {has} {resource}",
                    f"{needed} on a {hardware.name}",
                    f"kubectl -n {SYSTEM_NAMESPACE} logs daemonset/{plugin}; if that is healthy, "
                    "replace the node",
                )
            )
    # More than asked for is well: some images set aside more by themselves.
    needed_bytes = hardware.hugepages_mib * 2**20
    if (has := quantity(allocatable.get(_HUGEPAGES))) < needed_bytes:
        findings.append(
            error(
                DEVICES,
                f"{group}: {name_of(node)} offers {has // 2**20} MiB of huge pages",
                f"{hardware.hugepages_mib} MiB on a {hardware.name}",
                "replace the node: its user data sets them aside only at the first boot",
            )
        )
    return findings


def judge_health(cluster: Cluster) -> list[Finding]:
    """What the monitoring agent says of GPUs and fabric, and who is cordoned."""
    findings = []
    for node in cluster.nodes:
        name = name_of(node)
        hardware = condition(node, "AcceleratedHardwareReady")
        if hardware and hardware["status"] == "False":
            value = ": ".join(filter(None, (hardware.get("reason"), hardware.get("message"))))
            remedy = "replace it (docs/operations.md), or let node repair in mode act do so"
            findings.append(error(HEALTH, f"{name}: its accelerators are broken", value, remedy))
        if node.get("spec", {}).get("unschedulable"):
            remedy = f"kubectl uncordon {name}, if it is not being replaced"
            findings.append(warning(HEALTH, f"{name}: takes no pods", "cordoned", remedy))
    return findings or [
        ok(HEALTH, "no node reports broken hardware", f"{len(cluster.nodes)} nodes")
    ]


def judge_plugins(cluster: Cluster, settings: InfraSettings) -> list[Finding]:
    """On each ready training node the daemons that make its devices and storage usable."""
    installed = {
        name_of(each)
        for each in cluster.daemon_sets
        if each["metadata"].get("namespace") == SYSTEM_NAMESPACE
    }
    findings = []
    for daemon_set, nodes in _where_needed(cluster, settings).items():
        if daemon_set not in installed:
            findings.append(_not_installed(daemon_set, settings))
            continue
        bare = [node for node in nodes if not _runs(cluster, daemon_set, node)]
        value = f"ready on {len(nodes) - len(bare)} of {len(nodes)} nodes"
        if not bare:
            findings.append(ok(PLUGINS, daemon_set, value))
            continue
        look = f"kubectl -n {SYSTEM_NAMESPACE} describe daemonset/{daemon_set}"
        what = f"{daemon_set} is not ready on {', '.join(map(name_of, bare))}"
        findings.append(error(PLUGINS, what, value, f"see why: {look}"))
    return findings


def _where_needed(cluster: Cluster, settings: InfraSettings) -> dict[str, list[Object]]:
    """Ready nodes by the daemon set that they need; no entry for one that no group needs."""
    needed: dict[str, list[Object]] = {}
    for name, group in settings.node_groups.items():
        ready = [node for node in nodes_of_group(cluster, name) if is_ready(node)]
        for daemon_set, applies in (
            (NVIDIA_PLUGIN, group.hardware.num_gpus),
            (EFA_PLUGIN, group.hardware.num_efa),
            (STORAGE_DRIVER, True),
        ):
            if applies:
                needed.setdefault(daemon_set, []).extend(ready)
    return needed


def _runs(cluster: Cluster, daemon_set: str, node: Object) -> bool:
    pod = daemon_pod(cluster.pods, daemon_set, name_of(node))
    return pod is not None and is_ready(pod)


def _not_installed(daemon_set: str, settings: InfraSettings) -> Finding:
    if daemon_set == STORAGE_DRIVER:
        remedy = (
            "see what the add-on says: aws eks describe-addon --addon-name aws-fsx-csi-driver "
            f"--region {settings.region} --cluster-name {settings.name}; if it is gone, the same "
            "with create-addon and --pod-identity-associations "
            "serviceAccount=fsx-csi-controller-sa,roleArn=ARN "
            f"(of the role in stack {settings.name}-cluster)"
        )
    else:
        remedy = made_anew(settings)
    return error(PLUGINS, f"{daemon_set} is not installed", "none", remedy)


def judge_taints(cluster: Cluster, now: datetime) -> list[Finding]:
    """The storage driver takes its startup taint away once; where it lost that race it stays."""
    findings = []
    for node in cluster.nodes:
        keys = [taint["key"] for taint in node.get("spec", {}).get("taints", ())]
        age = seconds_since(node["metadata"]["creationTimestamp"], now)
        if STORAGE_TAINT["key"] not in keys or age <= PATIENCE.total_seconds():
            continue
        pod = daemon_pod(cluster.pods, STORAGE_DRIVER, name_of(node))
        restart = f"kubectl -n {SYSTEM_NAMESPACE} delete pod {name_of(pod)}" if pod else None
        describe = f"kubectl -n {SYSTEM_NAMESPACE} describe daemonset/{STORAGE_DRIVER}"
        findings.append(
            error(
                TAINT,
                f"{name_of(node)} still carries {STORAGE_TAINT['key']}, so no run starts there",
                f"{age / 60:.0f} minutes after it joined",
                f"restart its driver: {restart}" if restart else f"no driver there: {describe}",
            )
        )
    return findings or [ok(TAINT, "no node waits for the storage driver", "none")]
