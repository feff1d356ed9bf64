"""What makes a volume unmountable or a cluster impossible to take down, as templates show it."""

import json
from collections.abc import Iterator
from typing import Any

from infra.bootstrap import EFA_PRESENT_LABEL, GPU_TAINT
from infra.guard.view import Resource, Templates, text_of

DRIVER = "fsx.csi.aws.com"
LUSTRE_VERSION = "2.15"
LUSTRE_PORTS = {(988, 988), (1018, 1023)}
WORKLOADS = ("Job", "CronJob", "Pod", "Deployment", "StatefulSet")
OWN_NAMESPACES = ("node-repair",)


def storage_problems(templates: Templates) -> Iterator[str]:
    """Problems of the file system and of the rules around it."""
    for file_system in templates.of_kind("AWS::FSx::FileSystem"):
        version = file_system.properties.get("FileSystemTypeVersion", "2.10")
        if version != LUSTRE_VERSION:
            yield (
                f"{file_system.where}: Lustre {version} cannot be mounted by Amazon Linux 2023; "
                f"set {LUSTRE_VERSION} (aws-fsx-csi-driver#437)"
            )
        if "Retain" not in str(file_system.whole.get("UpdateReplacePolicy")):
            yield (
                f"{file_system.where}: an update that replaces it would delete every checkpoint; "
                "set UpdateReplacePolicy Retain"
            )
        for reference in file_system.properties["SecurityGroupIds"]:
            group = templates.named_by(reference, file_system.stack)
            for missing in _missing_lustre_rules(group, file_system.stack, templates):
                yield f"{file_system.where}: {missing} (aws-fsx-csi-driver#32)"


def inline_rule_problems(templates: Templates) -> Iterator[str]:
    """Groups that name each other inline can be neither made nor deleted (aws-cdk#18650)."""
    for group in templates.of_kind("AWS::EC2::SecurityGroup"):
        for key in ("SecurityGroupIngress", "SecurityGroupEgress"):
            for rule in group.properties.get(key, []):
                if {"SourceSecurityGroupId", "DestinationSecurityGroupId"} & set(rule):
                    yield (
                        f"{group.where}: names another group inline; make the rule a resource of "
                        "its own (aws-cdk#18650)"
                    )


def manifest_problems(templates: Templates) -> Iterator[str]:
    """Problems of what the stacks put into the cluster."""
    for applied in templates.of_kind("Custom::AWSCDK-EKS-KubernetesResource"):
        for document in json.loads(text_of(applied.properties["Manifest"])):
            for problem in _document(document):
                yield f"{applied.where}: {document['kind']}: {problem}"
    for chart in templates.of_kind("Custom::AWSCDK-EKS-HelmChart"):
        for problem in _chart(chart):
            yield f"{chart.where}: {problem}"


def _missing_lustre_rules(
    group: Resource | None, storage_stack: str, templates: Templates
) -> Iterator[str]:
    """FSx tries its ports before it makes a file system, so the rules come in earlier stacks."""
    nodes = {
        found.logical_id
        for template in templates.of_kind("AWS::EC2::LaunchTemplate")
        for interface in template.properties["LaunchTemplateData"].get("NetworkInterfaces", [])
        for reference in interface.get("Groups", [])
        if (found := templates.named_by(reference, template.stack))
    }
    open_ports: dict[str, dict[str, set[tuple[Any, Any]]]] = {"Ingress": {}, "Egress": {}}
    for direction, peers in open_ports.items():
        key = "SourceSecurityGroupId" if direction == "Ingress" else "DestinationSecurityGroupId"
        for rule in templates.of_kind(f"AWS::EC2::SecurityGroup{direction}"):
            earlier = rule.stack != storage_stack
            if earlier and templates.named_by(rule.properties["GroupId"], rule.stack) == group:
                peer = templates.named_by(rule.properties.get(key), rule.stack)
                ports = (rule.properties.get("FromPort"), rule.properties.get("ToPort"))
                peers.setdefault(peer.logical_id if peer else "", set()).add(ports)
    own = group.logical_id if group else ""
    for direction, peers in open_ports.items():
        if not peers.get(own, set()) >= LUSTRE_PORTS:
            yield f"its group lacks an {direction} rule for its own ports 988 and 1018-1023"
        if not all(peers.get(node, set()) >= LUSTRE_PORTS for node in nodes):
            yield f"its group lacks an {direction} rule for the nodes' ports 988 and 1018-1023"


def _document(document: dict[str, Any]) -> Iterator[str]:
    spec = document.get("spec", {})
    match document["kind"]:
        case "PersistentVolume":
            if spec.get("persistentVolumeReclaimPolicy") != "Retain":
                yield "would delete the file system with its claim; set Retain"
            source = spec.get("csi", {})
            if source.get("driver") != DRIVER:
                yield f"is of driver {source.get('driver')!r}; FSx for Lustre is {DRIVER}"
            if not source.get("fsType") or "ReadWriteOnce" not in spec.get("accessModes", []):
                yield (
                    "needs an fsType and ReadWriteOnce beside ReadWriteMany, or no trainer can "
                    "write to it: the driver's fsGroupPolicy asks for both"
                )
            if "flock" not in spec.get("mountOptions", []):
                yield "is mounted without flock, which file locks need"
            if "claimRef" not in spec:
                yield "any claim could take it; name its own in claimRef"
        case "PersistentVolumeClaim":
            if spec.get("storageClassName") != "":
                yield "an absent class means the default one, which makes a second volume"
        case kind if kind in WORKLOADS:
            if document["metadata"].get("namespace") not in OWN_NAMESPACES:
                yield (
                    "runs pods, and CloudFormation cannot wait for those to end; render it with "
                    "'python -m workloads synth' instead (aws-cdk#9970)"
                )


def _chart(chart: Resource) -> Iterator[str]:
    values = json.loads(text_of(chart.properties.get("Values", "{}")))
    tolerated = {t.get("key") for t in values.get("tolerations", [])}
    if GPU_TAINT["key"] not in tolerated:
        yield f"does not tolerate {GPU_TAINT['key']}, so it would run on no GPU node"
    if chart.properties.get("Wait"):
        yield "waits for pods that only GPU nodes can run; the deploy would hang without any"
    name = str(chart.properties.get("Chart"))
    if "efa" in name and values.get("nodeSelector", {}).get(EFA_PRESENT_LABEL) != "true":
        yield (
            f"is not bound to nodes with {EFA_PRESENT_LABEL}; it exits where no device is "
            "attached (eksctl#8201)"
        )
    if "nvidia" in name and values.get("mofedEnabled") is not False:
        yield "would hand every RDMA device to every GPU pod; set mofedEnabled to false"
