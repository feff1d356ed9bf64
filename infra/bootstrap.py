"""What a training node is told at its first boot: the user data of its launch template.

Two MIME parts. nodeadm reads the NodeConfig and joins the cluster; on nodes with
EFA devices cloud-init first runs a script. Its changes hold from the first container
on: of amazon-eks-ami's units for AL2023, nodeadm-run.service is ordered after
cloud-final.service, which runs such scripts, and it alone starts containerd and the
kubelet. nodeadm limits open files in its base-runtime-spec.json and nothing else, so
containers inherit containerd's own limit on locked memory.
"""

from dataclasses import dataclass
from typing import Any

import yaml

from infra.hardware import InstanceType

GPU_PRESENT_LABEL = "nvidia.com/gpu.present"
EFA_PRESENT_LABEL = "vpc.amazonaws.com/efa.present"
GROUP_LABEL = "steadfast/node-group"
SYSTEM_LABELS = {"role": "system"}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
STORAGE_TAINT = {"key": "fsx.csi.aws.com/agent-not-ready", "effect": "NoExecute"}
"""Keeps pods away until the FSx driver runs on the node, which then removes the taint by its key
(aws-fsx-csi-driver, docs/install.md; since 0.10.0, with retries since 1.2.0)."""

BOOT_SECONDS = 900
"""Boot, drivers, images and plugins of a p5: until then the Auto Scaling group and node repair
hold nothing against a node."""

_BOUNDARY = "==steadfast=="
_HUGEPAGE_MIB = 2

_EFA_SCRIPT = """\
#!/bin/bash
set -o errexit -o nounset -o pipefail

# EFA registers memory with the device, far beyond what a container may lock by default.
mkdir -p /etc/systemd/system/containerd.service.d
cat > /etc/systemd/system/containerd.service.d/memlock.conf <<'UNIT'
[Service]
LimitMEMLOCK=infinity
UNIT
systemctl daemon-reload

# A pod that asks for huge pages is never scheduled unless the node has set them aside.
if [ "$(cat /proc/sys/vm/nr_hugepages)" -lt {num_hugepages} ]; then
  echo 'vm.nr_hugepages = {num_hugepages}' > /etc/sysctl.d/90-efa-hugepages.conf
  sysctl --load=/etc/sysctl.d/90-efa-hugepages.conf
fi
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAddress:
    """All that a node needs to find its cluster. A self-managed node looks none of it up."""

    name: str
    endpoint: str
    certificate_authority: str
    service_cidr: str
    """The cluster's own; another one leaves pods without DNS, and nothing says why."""


def node_user_data(cluster: ClusterAddress, *, group: str, hardware: InstanceType) -> str:
    """The whole user data, not yet encoded. Its values may be tokens of another tool."""
    parts = [("application/node.eks.aws", node_config(cluster, group=group, hardware=hardware))]
    if hardware.num_efa:
        parts.append(('text/x-shellscript; charset="us-ascii"', _efa_script(hardware)))
    body = "".join(f"--{_BOUNDARY}\nContent-Type: {kind}\n\n{text}\n" for kind, text in parts)
    header = f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_BOUNDARY}"\n\n'
    return f"{header}{body}--{_BOUNDARY}--\n"


def node_config(cluster: ClusterAddress, *, group: str, hardware: InstanceType) -> str:
    """The NodeConfig that nodeadm reads, as YAML."""
    labels = ",".join(f"{key}={value}" for key, value in node_labels(group, hardware).items())
    taints = [GPU_TAINT, STORAGE_TAINT] if hardware.num_gpus else [STORAGE_TAINT]
    spec: dict[str, Any] = {
        "cluster": {
            "name": cluster.name,
            "apiServerEndpoint": cluster.endpoint,
            "certificateAuthority": cluster.certificate_authority,
            "cidr": cluster.service_cidr,
        },
        "kubelet": {
            "flags": [f"--node-labels={labels}"],
            "config": {"registerWithTaints": [dict(taint) for taint in taints]},
        },
    }
    if hardware.local_nvme_gib:
        # One striped volume under containerd and the kubelet: images and scratch stay off EBS.
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    document = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    # A line of any length, because a token must not be folded.
    return yaml.safe_dump(document, sort_keys=False, width=float("inf"))


def node_labels(group: str, hardware: InstanceType) -> dict[str, str]:
    """Labels by which pods and device plugins find their nodes; none that would be false.

    The NVIDIA plugin runs nowhere without its label. The EFA plugin exits on a
    node that has no EFA device, whatever the instance type could have.
    """
    labels = {GROUP_LABEL: group}
    if hardware.num_gpus:
        labels[GPU_PRESENT_LABEL] = "true"
    if hardware.num_efa:
        labels[EFA_PRESENT_LABEL] = "true"
    return labels


def _efa_script(hardware: InstanceType) -> str:
    return _EFA_SCRIPT.format(num_hugepages=hardware.hugepages_mib // _HUGEPAGE_MIB)
