"""How far the nodes' kubelets lie behind the control plane: no deploy upgrades training nodes.

Source of the limit: Kubernetes' version skew policy, three minor versions.
"""

import re

from infra.doctor.findings import Finding, error, ok, warning
from infra.doctor.objects import Cluster, name_of
from infra.wording import some_of

KUBELETS = "kubelets"

MOST_MINORS_BEHIND = 3


def judge_kubelets(cluster: Cluster, version: str) -> list[Finding]:
    """``version`` is that of the control plane, such as 1.35."""
    behind: dict[str, list[str]] = {}
    for node in cluster.nodes:
        kubelet = str(node["status"].get("nodeInfo", {}).get("kubeletVersion", ""))
        if kubelet:
            behind.setdefault(kubelet, []).append(name_of(node))
    findings = []
    for kubelet, nodes in sorted(behind.items()):
        minors = _minor(version) - _minor(kubelet)
        if minors <= 1:
            continue
        level = error if minors > MOST_MINORS_BEHIND else warning
        what = f"{len(nodes)} nodes are {minors} minor versions older than the control plane"
        value = f"{kubelet} under {version}: {some_of(nodes)}"
        remedy = "replace these nodes, group by group (docs/operations.md), before the next upgrade"
        findings.append(level(KUBELETS, what, value, remedy))
    return findings or [
        ok(KUBELETS, f"none is more than one version behind {version}", ", ".join(sorted(behind)))
    ]


def _minor(version: str) -> int:
    """Of 1.35 and of v1.35.2-eks-1234567 alike."""
    match = re.match(r"v?\d+\.(\d+)", version)
    if not match:
        raise ValueError(f"{version!r} is no version of Kubernetes")
    return int(match[1])
