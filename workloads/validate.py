"""The API server's verdict on a run's manifest, without an API server.

First the JSON schema of the cluster's own Kubernetes version, then the rules
that only the server's code knows, then what nobody checks: that the objects
which a Job refers to exist. Not covered: volumes and claims themselves, which
the cluster's stacks make, and admission webhooks of the cluster.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import kubernetes_validate

from workloads.pod_rules import DNS_LABEL, containers, pod_problems

_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_ACTIONS = ("Ignore", "FailJob", "FailIndex", "Count")
_MANAGER = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9][-A-Za-z0-9_.~/]*")


def problems(
    documents: Sequence[Mapping[str, Any]], *, kubernetes_version: str, claims: frozenset[str]
) -> list[str]:
    """What is wrong with the manifest, one line each; nothing if it can be applied.

    ``claims`` are the PersistentVolumeClaims that the cluster has.
    """
    malformed = [
        problem for document in documents for problem in _schema(document, kubernetes_version)
    ]
    if malformed:
        return malformed  # the rules below trust the shape
    return [
        f"{document['kind']} {document['metadata']['name']!r}: {problem}"
        for document in documents
        for problem in (*_rules(document), *_references(document, documents, claims))
    ]


def _schema(document: Mapping[str, Any], version: str) -> Iterator[str]:
    try:
        kubernetes_validate.validate(document, version, strict=True)
    except kubernetes_validate.ValidationError as error:
        where = ".".join(str(part) for part in error.path) or "document"
        yield f"{document.get('kind')}: {where}: {error.message}"


def _rules(document: Mapping[str, Any]) -> Iterator[str]:
    match document["kind"]:
        case "Job":
            yield from _job_problems(document)
            yield from pod_problems(document["spec"]["template"]["spec"])
        case "Service":
            yield from _service_problems(document)
        case _:
            if not DNS_LABEL.fullmatch(document["metadata"]["name"]):
                yield "its name is not a DNS label"


def _service_problems(service: Mapping[str, Any]) -> Iterator[str]:
    if not _SERVICE_NAME.fullmatch(service["metadata"]["name"]):
        yield "its name must start with a letter and be a DNS label"
    for port in service["spec"]["ports"]:
        if not 1 <= port["port"] <= 65535:
            yield f"port {port['port']} is not between 1 and 65535"


def _job_problems(job: Mapping[str, Any]) -> Iterator[str]:
    spec, name = job["spec"], job["metadata"]["name"]
    completions = spec.get("completions")
    if spec.get("completionMode") == "Indexed":
        if completions is None or spec.get("parallelism") is None:
            yield "an Indexed Job needs completions and parallelism"
        elif not DNS_LABEL.fullmatch(host := f"{name}-{completions - 1}"):
            yield f"its last pod would be called {host!r}, which is not a DNS label of 63 letters"
    else:
        if "backoffLimitPerIndex" in spec:
            yield "backoffLimitPerIndex needs completionMode Indexed"
        if not DNS_LABEL.fullmatch(name):
            yield "its name is not a DNS label"
    if "maxFailedIndexes" in spec and "backoffLimitPerIndex" not in spec:
        yield "maxFailedIndexes needs backoffLimitPerIndex"
    if (manager := spec.get("managedBy")) and not _MANAGER.fullmatch(manager):
        yield f"managedBy {manager!r} must be a domain and a path"
    if "backoffLimitPerIndex" in spec or "podFailurePolicy" in spec:
        yield from _restarts_are_left_to_the_job(spec)
    for rule in spec.get("podFailurePolicy", {}).get("rules", []):
        yield from _failure_rule_problems(rule, spec)
    for rule in spec.get("successPolicy", {}).get("rules", []):
        yield from _success_rule_problems(rule, spec)


def _restarts_are_left_to_the_job(spec: Mapping[str, Any]) -> Iterator[str]:
    if (policy := spec["template"]["spec"].get("restartPolicy")) != "Never":
        yield f"podFailurePolicy and backoffLimitPerIndex need restartPolicy Never, not {policy!r}"
    replacement = spec.get("podReplacementPolicy", "Failed")
    if "podFailurePolicy" in spec and replacement != "Failed":
        yield f"podFailurePolicy needs podReplacementPolicy Failed, not {replacement!r}"


def _failure_rule_problems(rule: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    if (action := rule["action"]) not in _ACTIONS:
        yield f"podFailurePolicy action {action!r} does not exist; known: {', '.join(_ACTIONS)}"
    if action == "FailIndex" and "backoffLimitPerIndex" not in spec:
        yield "podFailurePolicy action FailIndex needs backoffLimitPerIndex"
    if ("onExitCodes" in rule) == ("onPodConditions" in rule):
        yield "a podFailurePolicy rule needs one of onExitCodes and onPodConditions"
    codes = rule.get("onExitCodes")
    if codes is None:
        return
    known = {container["name"] for container in containers(spec["template"]["spec"])}
    if codes.get("containerName") not in (None, *known):
        yield f"podFailurePolicy names container {codes['containerName']!r}, which does not exist"
    if codes["values"] != sorted(set(codes["values"])):
        yield f"podFailurePolicy exit codes {codes['values']} must ascend"
    if codes["operator"] == "In" and 0 in codes["values"]:
        yield "podFailurePolicy counts exit code 0 as a failure"


def _success_rule_problems(rule: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    completions = spec.get("completions", 0)
    if rule.get("succeededCount", 0) > completions:
        yield f"successPolicy wants {rule['succeededCount']} of {completions} pods to succeed"
    for part in filter(None, rule.get("succeededIndexes", "").split(",")):
        if int(part.rpartition("-")[2]) >= completions:
            yield f"successPolicy names indexes {part!r} of {completions} pods"


def _references(
    document: Mapping[str, Any], documents: Sequence[Mapping[str, Any]], claims: frozenset[str]
) -> Iterator[str]:
    """Objects that a Job refers to and that do not exist; its pods would wait for ever."""
    if document["kind"] != "Job":
        return
    template = document["spec"]["template"]
    named = {(other["kind"], other["metadata"]["name"]): other for other in documents}
    if subdomain := template["spec"].get("subdomain"):
        service = named.get(("Service", subdomain))
        if service is None:
            yield f"subdomain {subdomain!r} has no Service, so its pods have no names"
        elif service["spec"].get("clusterIP") != "None":
            yield f"Service {subdomain!r} must be headless to give pods names"
        elif not service["spec"].get("publishNotReadyAddresses"):
            # kubernetes#117819: peers that wait for each other never get ready.
            yield f"Service {subdomain!r} must publish pods that are not ready yet"
        elif not service["spec"]["selector"].items() <= template["metadata"]["labels"].items():
            yield f"Service {subdomain!r} does not select the pods"
    for volume in template["spec"].get("volumes", []):
        claim = volume.get("persistentVolumeClaim", {}).get("claimName")
        if claim and claim not in claims:
            yield f"claim {claim!r} does not exist; known: {', '.join(sorted(claims))}"
        config = volume.get("configMap", {}).get("name")
        if config and ("ConfigMap", config) not in named:
            yield f"ConfigMap {config!r} does not exist"
