"""One mistake at a time in a manifest that is right: each must be found and named.

The mistakes are those that a real API server was given; all but the last group
it refuses too.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.workloads.conftest import Document, Manifests
from workloads.validate import problems

Mistake = Callable[["Parts"], object]


class Parts:
    """The places of a manifest in which a mistake is made."""

    def __init__(self, documents: list[Document]) -> None:
        self.documents = copy.deepcopy(documents)
        self.config, self.service, self.job = self.documents
        self.spec: dict[str, Any] = self.job["spec"]
        self.pod: dict[str, Any] = self.spec["template"]["spec"]
        self.container: dict[str, Any] = self.pod["containers"][0]
        self.limits: dict[str, str] = self.container["resources"]["limits"]
        self.requests: dict[str, str] = self.container["resources"]["requests"]
        self.failure_rule: dict[str, Any] = self.spec["podFailurePolicy"]["rules"][1]

    def call_everything(self, name: str) -> None:
        for document in self.documents:
            document["metadata"]["name"] = name
        self.pod["subdomain"] = name
        self.pod["volumes"][3]["configMap"]["name"] = name

    def ask_for(self, resource: str, amount: str) -> None:
        self.limits[resource] = self.requests[resource] = amount

    def forget(self, *keys: str) -> None:
        for key in keys:
            del self.spec[key]

    def fail_index_without_limit(self) -> None:
        self.forget("backoffLimitPerIndex", "maxFailedIndexes")
        self.failure_rule["action"] = "FailIndex"


MISTAKES: dict[str, tuple[Mistake, str]] = {
    # the schema
    "an unknown field": (lambda m: m.spec.update(backofLimit=3), "backofLimit"),
    "a number as text": (lambda m: m.spec.update(completions="2"), "completions"),
    # the Job
    "restart in place": (lambda m: m.pod.update(restartPolicy="OnFailure"), "need restartPolicy"),
    "restart always": (lambda m: m.pod.update(restartPolicy="Always"), "Never or OnFailure"),
    "capital letters": (lambda m: m.call_everything("Training_Job"), "not a DNS label"),
    "a name of 64": (lambda m: m.call_everything("a" * 64), "not a DNS label"),
    "a name of 63": (lambda m: m.call_everything("a" * 63), "not a DNS label"),
    "a name of 62": (lambda m: m.call_everything("a" * 62), "not a DNS label"),
    "a dot in the name": (lambda m: m.call_everything("a.b"), "not a DNS label"),
    "a Service named by a digit": (lambda m: m.call_everything("1a"), "start with a letter"),
    "replacement beside the old pod": (
        lambda m: m.spec.update(podReplacementPolicy="TerminatingOrFailed"),
        "needs podReplacementPolicy Failed",
    ),
    "FailIndex without a limit": (
        lambda m: m.fail_index_without_limit(),
        "FailIndex needs backoffLimitPerIndex",
    ),
    "failed indexes without a limit": (
        lambda m: m.forget("backoffLimitPerIndex"),
        "maxFailedIndexes needs",
    ),
    "an action that is none": (lambda m: m.failure_rule.update(action="FailPod"), "FailPod"),
    "no such container": (
        lambda m: m.failure_rule["onExitCodes"].update(containerName="other"),
        "other",
    ),
    "descending exit codes": (
        lambda m: m.failure_rule["onExitCodes"].update(values=[78, 64]),
        "must ascend",
    ),
    "success as a failure": (
        lambda m: m.failure_rule["onExitCodes"].update(values=[0, 64]),
        "exit code 0",
    ),
    "a rule about nothing": (lambda m: m.failure_rule.pop("onExitCodes"), "needs one of"),
    "no indexes": (lambda m: m.spec.update(completionMode="NonIndexed"), "needs completionMode"),
    "no completions": (lambda m: m.forget("completions"), "needs completions"),
    "success of a third pod": (
        lambda m: m.spec.update(successPolicy={"rules": [{"succeededIndexes": "0-2"}]}),
        "of 2 pods",
    ),
    "success of five pods": (
        lambda m: m.spec.update(successPolicy={"rules": [{"succeededCount": 5}]}),
        "5 of 2 pods",
    ),
    "a manager without a domain": (lambda m: m.spec.update(managedBy="me"), "managedBy"),
    # the pod
    "other devices asked than given": (
        lambda m: m.limits.update({"nvidia.com/gpu": "4"}),
        "must be equal",
    ),
    "devices without a limit": (lambda m: m.limits.pop("nvidia.com/gpu"), "no limit"),
    "devices without a limit of memory": (
        lambda m: m.limits.pop("memory"),
        "takes devices and has no limit of memory",
    ),
    "huge pages alone": (
        lambda m: m.container.update(resources={"limits": {"hugepages-2Mi": "2Mi"}}),
        "cpu or memory",
    ),
    "other huge pages asked than given": (
        lambda m: m.requests.update({"hugepages-2Mi": "4Gi"}),
        "must be equal",
    ),
    "half a huge page": (lambda m: m.ask_for("hugepages-2Mi", "5121Mi"), "multiple of 2Mi"),
    "an amount that is none": (lambda m: m.ask_for("memory", "1900GiB"), "not a quantity"),
    "a mount of nothing": (
        lambda m: m.container["volumeMounts"].append({"name": "nope", "mountPath": "/nope"}),
        "'nope'",
    ),
    "an effect that is none": (
        lambda m: m.pod["tolerations"][0].update(effect="NoWay"),
        "NoWay",
    ),
    "seconds for the wrong effect": (
        lambda m: m.pod["tolerations"][0].update(tolerationSeconds=60),
        "NoExecute",
    ),
    "an operator in small letters": (
        lambda m: m.pod["affinity"]["nodeAffinity"][
            "requiredDuringSchedulingIgnoredDuringExecution"
        ]["nodeSelectorTerms"][0]["matchExpressions"][0].update(operator="in"),
        "'in'",
    ),
    "a subdomain that is no label": (
        lambda m: m.pod.update(subdomain="Bad_Name"),
        "not a DNS label",
    ),
    # the Service
    "a port out of range": (lambda m: m.service["spec"]["ports"][0].update(port=70000), "70000"),
    # what the server accepts, or only warns of, and what then does not work
    "a subdomain without a Service": (lambda m: m.pod.update(subdomain="other"), "no Service"),
    "a Service with an address": (lambda m: m.service["spec"].pop("clusterIP"), "headless"),
    "a Service of ready pods alone": (
        lambda m: m.service["spec"].pop("publishNotReadyAddresses"),
        "must publish pods that are not ready yet",
    ),
    "a Service of other pods": (
        lambda m: m.service["spec"].update(selector={"app": "other"}),
        "does not select",
    ),
    "a claim that nobody made": (
        lambda m: m.pod["volumes"][2]["persistentVolumeClaim"].update(claimName="nope"),
        "claim 'nope'",
    ),
    "settings that are not there": (
        lambda m: m.pod["volumes"][3]["configMap"].update(name="nope"),
        "ConfigMap 'nope'",
    ),
    "a privileged container": (
        lambda m: m.container["securityContext"].update(privileged=True),
        "Pod Security",
    ),
    "a capability": (
        lambda m: m.container["securityContext"]["capabilities"].update(add=["IPC_LOCK"]),
        "Pod Security",
    ),
    "a folder of the node": (
        lambda m: m.pod["volumes"].append({"name": "host", "hostPath": {"path": "/dev/shm"}}),
        "hostPath",
    ),
    "a variable twice": (
        lambda m: m.container["env"].append({"name": "HOME", "value": "/root"}),
        "HOME twice",
    ),
    "a negative grace period": (
        lambda m: m.pod.update(terminationGracePeriodSeconds=-1),
        "must not be negative",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_manifest_is_refused_for(mistake: str, manifests: Manifests) -> None:
    make, expected = MISTAKES[mistake]
    mistaken = Parts(manifests["p5"]["in-job"])
    make(mistaken)
    found = verdict(mistaken.documents)
    assert any(expected in problem for problem in found), found


@pytest.mark.parametrize("version", ["1.34", "1.35", "1.36"])
def test_every_shipped_run_is_accepted_by(version: str, manifests: Manifests) -> None:
    for name in ("p5", "rehearsal"):
        for documents in manifests[name].values():
            assert verdict(documents, version) == []


@pytest.mark.parametrize(
    "harmless",
    [
        lambda m: m.spec.update(successPolicy={"rules": [{"succeededCount": 1}]}),
        lambda m: m.spec.update(managedBy="example.com/queue"),
        lambda m: m.ask_for("cpu", "1500m"),
        lambda m: m.call_everything("a" * 61),
    ],
    ids=["one success is enough", "a manager", "parts of a cpu", "a name of 61"],
)
def test_a_manifest_is_accepted_with(harmless: Mistake, manifests: Manifests) -> None:
    changed = Parts(manifests["p5"]["in-job"])
    harmless(changed)
    assert verdict(changed.documents) == []


def verdict(documents: list[Document], version: str = "1.35") -> list[str]:
    return problems(documents, kubernetes_version=version, claims=frozenset({"fsx"}))
