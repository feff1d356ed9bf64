"""Stand-ins for AWS where moto has no such operation, and objects as kubectl prints them."""

import json
from collections.abc import Sequence
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import boto3
from botocore.stub import Stubber

from infra.aws import Clients

Answer = tuple[str, str, dict[str, Any] | str]
"""Service, operation (in snake case), and its answer, or the code of the error that it raises."""


@cache
def _session() -> boto3.Session:
    return boto3.Session(
        region_name="us-east-1", aws_access_key_id="testing", aws_secret_access_key="testing"
    )


def stubbed(*answers: Answer) -> Clients:
    """Real clients that reach no network: the calls must come in this order, and no others."""
    clients: dict[str, Any] = {}
    for service, operation, answer in answers:
        if service not in clients:
            client = _session().client(service)
            clients[service] = client, Stubber(client)
            clients[service][1].activate()
        stubber = clients[service][1]
        if isinstance(answer, str):
            stubber.add_client_error(operation, answer, f"no {operation} for you")
        else:
            # botocore reads a template in its place, and others may be given the same answer.
            stubber.add_response(operation, deepcopy(answer))
    return lambda service: clients[service][0]


def resources(*kinds_and_ids: tuple[str, str]) -> dict[str, Any]:
    """CloudFormation's answer to DescribeStackResources."""
    return {
        "StackResources": [
            {
                "LogicalResourceId": f"Resource{index}",
                "ResourceType": kind,
                "PhysicalResourceId": physical,
                "ResourceStatus": "CREATE_COMPLETE",
                "Timestamp": "2026-11-29T12:00:00Z",
            }
            for index, (kind, physical) in enumerate(kinds_and_ids)
        ]
    }


P5_ALLOCATABLE = {
    "cpu": "191450m",
    "memory": "1984931840Ki",
    "nvidia.com/gpu": "8",
    "vpc.amazonaws.com/efa": "32",
    "hugepages-2Mi": "5120Mi",
}


def node(
    name: str,
    *,
    group: str | None = "p5",
    ready: str = "True",
    joined: str = "2026-11-29T12:00:00Z",
    taints: Sequence[str] = (),
    allocatable: dict[str, str] | None = None,
    conditions: Sequence[dict[str, str]] = (),
    cordoned: bool = False,
    kubelet: str = "v1.35.2-eks-1234567",
    os_image: str = "Amazon Linux 2023.9.20261118",
) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {
            "name": name,
            "creationTimestamp": joined,
            "labels": {"steadfast/node-group": group} if group else {},
        },
        "spec": {
            "taints": [{"key": key, "effect": "NoExecute"} for key in taints],
            **({"unschedulable": True} if cordoned else {}),
        },
        "status": {
            "allocatable": P5_ALLOCATABLE if allocatable is None else allocatable,
            "conditions": [{"type": "Ready", "status": ready}, *conditions],
            "nodeInfo": {
                "kubeletVersion": kubelet,
                "osImage": os_image,
                "kernelVersion": "6.12.55-74.119.amzn2023.x86_64",
            },
        },
    }


def daemon_set(name: str) -> dict[str, Any]:
    return {"kind": "DaemonSet", "metadata": {"name": name, "namespace": "kube-system"}}


def daemon_pod(daemon_set: str, node: str, *, ready: str = "True") -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"{daemon_set}-{node[-6:]}",
            "namespace": "kube-system",
            "ownerReferences": [{"kind": "DaemonSet", "name": daemon_set}],
        },
        "spec": {"nodeName": node},
        "status": {"conditions": [{"type": "Ready", "status": ready}]},
    }


def training_pod(name: str, node: str, *, deleted: str | None = None) -> dict[str, Any]:
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "training",
            **({"deletionTimestamp": deleted} if deleted else {}),
        },
        "spec": {"nodeName": node},
        "status": {},
    }


def claim(*, phase: str = "Bound", deleted: bool = False) -> dict[str, Any]:
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "fsx",
            "namespace": "training",
            **({"deletionTimestamp": "2026-11-29T17:00:00Z"} if deleted else {}),
        },
        "spec": {"volumeName": "training-fsx"},
        "status": {"phase": phase},
    }


def volume(file_system_id: str, **attributes: str) -> dict[str, Any]:
    source = {
        "driver": "fsx.csi.aws.com",
        "volumeHandle": file_system_id,
        "volumeAttributes": {"dnsname": DNS_NAME, "mountname": MOUNT_NAME, **attributes},
    }
    return {
        "kind": "PersistentVolume",
        "metadata": {"name": "training-fsx"},
        "spec": {"csi": source},
    }


DAEMON_SETS = ("nvidia-device-plugin", "aws-efa-k8s-device-plugin", "fsx-csi-node")
TRAINING_NODES = ("ip-10-0-1-11", "ip-10-0-1-12")
SYSTEM_NODES = ("ip-10-0-2-21", "ip-10-0-2-22")
FILE_SYSTEM_ID = "fs-0123456789abcdef0"
DNS_NAME = f"{FILE_SYSTEM_ID}.fsx.us-east-1.amazonaws.com"
MOUNT_NAME = "abcdefgh"


def healthy() -> dict[str, list[dict[str, Any]]]:
    """What kubectl prints of a cluster of deployments/p5.yaml in which all is well, by kind."""
    system = [node(name, group=None, allocatable={"cpu": "3920m"}) for name in SYSTEM_NODES]
    return {
        "nodes": [*(node(name) for name in TRAINING_NODES), *system],
        "pods": [daemon_pod(name, on) for name in DAEMON_SETS for on in TRAINING_NODES],
        "daemonsets": [daemon_set(name) for name in DAEMON_SETS],
        "persistentvolumeclaims": [claim()],
        "persistentvolumes": [volume(FILE_SYSTEM_ID)],
    }


_KUBECTL = """\
#!/bin/sh
# Stand-in for kubectl: prints the recorded list of a kind, or the refusal recorded for it.
while [ "$1" != get ]; do shift; done
if [ -e "{folder}/$2.json" ]; then exec cat "{folder}/$2.json"; fi
cat "{folder}/$2.refusal" >&2
exit 1
"""


def write_kubectl(folder: Path, answers: dict[str, list[dict[str, Any]] | str]) -> Path:
    """An executable for the front of PATH; gives its folder. A text is a refusal."""
    for kind, answer in answers.items():
        if isinstance(answer, str):
            (folder / f"{kind}.refusal").write_text(answer)
        else:
            (folder / f"{kind}.json").write_text(json.dumps({"items": answer}))
    programs = folder / "bin"
    programs.mkdir()
    program = programs / "kubectl"
    program.write_text(_KUBECTL.format(folder=folder))
    program.chmod(0o755)
    return programs
