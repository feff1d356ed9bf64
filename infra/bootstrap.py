"""What a training node is told at its first boot: the user data of its launch template.

Two MIME parts. nodeadm reads the NodeConfig and joins the cluster; on nodes with
EFA devices cloud-init first runs a script, whose changes nodeadm picks up because
it starts containerd and the kubelet only after cloud-init has finished.
"""

from dataclasses import dataclass
from typing import Any

import yaml

from infra.hardware import InstanceType

GPU_PRESENT_LABEL = "nvidia.com/gpu.present"
EFA_PRESENT_LABEL = "vpc.amazonaws.com/efa.present"
GROUP_LABEL = "steadfast/node-group"
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}

_BOUNDARY = "==steadfast=="
_HUGEPAGE_MIB = 2

_EFA_SCRIPT = """\
#!/bin/bash
set -o errexit -o nounset -o pipefail

# EFA registers memory with the device, far beyond the 64 KiB that a container may lock by default.
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
    kubelet: dict[str, Any] = {"flags": [f"--node-labels={labels}"]}
    if hardware.num_gpus:
        kubelet["config"] = {"registerWithTaints": [dict(GPU_TAINT)]}
    spec: dict[str, Any] = {
        "cluster": {
            "name": cluster.name,
            "apiServerEndpoint": cluster.endpoint,
            "certificateAuthority": cluster.certificate_authority,
            "cidr": cluster.service_cidr,
        },
        "kubelet": kubelet,
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
