"""What the API server demands of a Job's pod template beyond its JSON schema.

Each rule was checked against a real API server, which refuses what is refused
here. Two rules are stricter, because the server only warns and then does
something else: a variable set twice and a negative grace period. Pod Security
``baseline`` is checked too: the server takes such a Job and then no pod starts.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

_QUANTITY = re.compile(
    r"[+-]?(?P<number>\d+\.?\d*|\.\d+)(?P<unit>Ki|Mi|Gi|Ti|Pi|Ei|n|u|m|k|M|G|T|P|E|[eE][+-]?\d+)?"
)
_BYTES = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, None: 1}
_EFFECTS = (None, "", "NoSchedule", "PreferNoSchedule", "NoExecute")
_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")


def pod_problems(pod: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the spec of a pod template."""
    if (policy := pod.get("restartPolicy")) not in ("Never", "OnFailure"):
        yield f"restartPolicy is {policy!r}; a Job takes Never or OnFailure"
    if (subdomain := pod.get("subdomain")) and not DNS_LABEL.fullmatch(subdomain):
        yield f"subdomain {subdomain!r} is not a DNS label"
    if (grace := pod.get("terminationGracePeriodSeconds", 0)) < 0:
        yield f"terminationGracePeriodSeconds is {grace}; it must not be negative"
    if "hostPath" in {kind for volume in pod.get("volumes", []) for kind in volume}:
        yield "a hostPath volume is refused by Pod Security baseline; use an emptyDir"
    volumes = {volume["name"] for volume in pod.get("volumes", [])}
    for container in containers(pod):
        for problem in _container_problems(container, volumes):
            yield f"container {container['name']!r}: {problem}"
    yield from _toleration_problems(pod)
    yield from _affinity_problems(pod)


def containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every container of the pod, those that only initialize included."""
    return [*pod["containers"], *pod.get("initContainers", [])]


def _container_problems(container: Mapping[str, Any], volumes: set[str]) -> Iterator[str]:
    yield from _resource_problems(container.get("resources", {}))
    for mount in container.get("volumeMounts", []):
        if mount["name"] not in volumes:
            yield f"mounts volume {mount['name']!r}, which the pod does not have"
    names = [variable["name"] for variable in container.get("env", [])]
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield f"sets {name} twice; only the last would count"
    security = container.get("securityContext", {})
    added = security.get("capabilities", {}).get("add", [])
    if security.get("privileged") or added:
        yield "asks for privileges that Pod Security baseline refuses; no pod would start"


def _resource_problems(resources: Mapping[str, Any]) -> Iterator[str]:
    limits, requests = resources.get("limits", {}), resources.get("requests", {})
    malformed = [
        f"{name}: {amount!r} is not a quantity; write it like 8 or 16Gi"
        for amounts in (limits, requests)
        for name, amount in amounts.items()
        if not _QUANTITY.fullmatch(str(amount))
    ]
    if malformed:
        yield from malformed
        return
    for name in sorted({*limits, *requests}):
        if "/" in name or name.startswith("hugepages-"):
            yield from _fixed_amount_problems(name, limits.get(name), requests.get(name))
    if "memory" not in limits and any("/" in name for name in limits):
        # libfabric calls an out-of-memory kill "Invalid receiver QPN" (awsome-distributed-ai#312).
        yield "takes devices and has no limit of memory; give it what the node can spare"
    pages = [name for name in limits if name.startswith("hugepages-")]
    if pages and not {"cpu", "memory"} & {*limits, *requests}:
        yield f"{pages[0]} needs a request of cpu or memory beside it"


def _fixed_amount_problems(name: str, limit: str | None, request: str | None) -> Iterator[str]:
    """Devices and huge pages are never overcommitted: the limit is the amount."""
    if limit is None:
        yield f"{name} has a request and no limit; give both the same amount"
        return
    if request not in (None, limit):
        yield f"{name}: request {request} and limit {limit} must be equal"
    if name == "hugepages-2Mi" and _bytes(limit) % 2**21:
        yield f"{name}: {limit} is not a multiple of 2Mi"


def _bytes(amount: str) -> float:
    match = _QUANTITY.fullmatch(amount)
    assert match is not None, "malformed quantities were reported before"
    return float(match["number"]) * _BYTES.get(match["unit"], 1)


def _toleration_problems(pod: Mapping[str, Any]) -> Iterator[str]:
    for toleration in pod.get("tolerations", []):
        effect = toleration.get("effect")
        if effect not in _EFFECTS:
            yield f"toleration effect {effect!r} does not exist"
        if "tolerationSeconds" in toleration and effect != "NoExecute":
            yield f"tolerationSeconds needs the effect NoExecute, not {effect!r}"


def _affinity_problems(pod: Mapping[str, Any]) -> Iterator[str]:
    node = pod.get("affinity", {}).get("nodeAffinity", {})
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    for term in required.get("nodeSelectorTerms", []):
        for expression in term.get("matchExpressions", []):
            if expression["operator"] not in _OPERATORS:
                yield f"node affinity operator {expression['operator']!r} does not exist"
