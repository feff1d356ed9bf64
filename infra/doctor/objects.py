"""Objects of the Kubernetes API, as ``kubectl get -o json`` prints them, and what they say."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Object = Mapping[str, Any]

SYSTEM_NAMESPACE = "kube-system"

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


@dataclass(frozen=True, slots=True)
class Cluster:
    """All objects that the checks look at, taken one after the other."""

    nodes: Sequence[Object]
    pods: Sequence[Object]
    daemon_sets: Sequence[Object]
    claims: Sequence[Object]
    """Those of the deployment's namespace."""

    volumes: Sequence[Object]


def name_of(thing: Object) -> str:
    return str(thing["metadata"]["name"])


def condition(thing: Object, kind: str) -> Object | None:
    conditions = thing.get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == kind), None)


def is_ready(thing: Object) -> bool:
    """Of a node or a pod."""
    ready = condition(thing, "Ready")
    return ready is not None and ready["status"] == "True"


def seconds_since(moment: str, now: datetime) -> float:
    """``moment`` as Kubernetes writes it: 2026-11-29T18:00:00Z."""
    return (now - datetime.fromisoformat(moment)).total_seconds()


def quantity(text: str | None) -> int:
    """A resource quantity as a whole number: "8" of a device, "5120Mi" in bytes; none is 0."""
    match = re.fullmatch(r"(\d+)([A-Za-z]*)", text or "0")
    if not match or match[2] not in _UNITS:
        raise ValueError(f"{text!r} is not a whole quantity of Kubernetes")
    return int(match[1]) * _UNITS[match[2]]


def daemon_pod(pods: Sequence[Object], daemon_set: str, node: str) -> Object | None:
    """The pod of a daemon set of ``kube-system`` on one node."""
    for pod in pods:
        owners = pod["metadata"].get("ownerReferences", ())
        if (
            pod["metadata"].get("namespace") == SYSTEM_NAMESPACE
            and pod["spec"].get("nodeName") == node
            and any(o["kind"] == "DaemonSet" and o["name"] == daemon_set for o in owners)
        ):
            return pod
    return None
