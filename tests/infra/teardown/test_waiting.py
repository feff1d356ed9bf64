"""Pods get the grace that they ask for, and a claim that never goes ends the wait."""

from dataclasses import dataclass
from typing import Any

import pytest

from deployment import load
from infra.kubectl import Kubectl
from infra.teardown.cluster import delete_claim, wait_for_pods
from infra.teardown.waiting import Pace, StepFailed
from tests.infra.templates import ROOT

SETTINGS = load(ROOT / "deployments/g5.yaml")
STUCK = {
    "metadata": {
        "namespace": "training",
        "name": "in-job-0-x",
        "ownerReferences": [{"kind": "Job", "name": "in-job", "controller": True}],
    },
    "spec": {"nodeName": "ip-10-0-1-7", "terminationGracePeriodSeconds": 960},
}


@dataclass(frozen=True, slots=True)
class StandInKubectl(Kubectl):
    """A cluster in which nothing that is deleted goes."""

    def get(self, kind: str, *, namespace: str | None = None) -> list[dict[str, Any]]:
        assert namespace == "training"
        return [STUCK if kind == "pods" else {"metadata": {"name": "fsx"}}]

    def run(self, arguments: Any, *, timeout_seconds: float = 0) -> str:
        return f"{arguments} {timeout_seconds}"


KUBECTL = StandInKubectl(context="stand-in", remedy="")


def pace(slept: list[float]) -> Pace:
    """Time that passes only while somebody sleeps."""
    return Pace(poll_seconds=30.0, now=lambda: sum(slept), sleep=slept.append)


def test_a_pod_is_waited_for_beyond_its_own_grace() -> None:
    slept: list[float] = []
    with pytest.raises(StepFailed) as failure:
        wait_for_pods(SETTINGS, KUBECTL, pace(slept))
    assert sum(slept) == 1260.0  # 960 of its own, then five minutes
    assert str(failure.value) == (
        "1 pods of namespace training: in-job-0-x on ip-10-0-1-7; gave up after 1260 s; "
        "if its node is dead, terminate the instance, then run again"
    )


def test_a_claim_that_does_not_go_says_where_to_look() -> None:
    slept: list[float] = []
    with pytest.raises(StepFailed) as failure:
        delete_claim(SETTINGS, KUBECTL, pace(slept))
    assert sum(slept) == 300.0
    assert str(failure.value) == (
        "claim training/fsx is held by its finalizers; gave up after 300 s; "
        "'kubectl describe pvc fsx --namespace training' says who uses it"
    )
