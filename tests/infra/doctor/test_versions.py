"""Kubelets behind the control plane, and add-ons that do not work."""

from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.addons import check_addons, judge_addons
from infra.doctor.case import Case
from infra.doctor.findings import Level
from infra.doctor.kubelets import judge_kubelets
from infra.doctor.objects import Cluster
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import node, stubbed


def cluster(*kubelets: str) -> Cluster:
    nodes = [node(f"n-{index}", kubelet=kubelet) for index, kubelet in enumerate(kubelets)]
    return Cluster(nodes=nodes, pods=[], daemon_sets=[], claims=[], volumes=[])


@pytest.mark.parametrize(
    ("kubelet", "level"),
    [
        ("v1.35.2-eks-1234567", Level.OK),
        ("v1.34.9-eks-1234567", Level.OK),
        ("v1.33.1-eks-1234567", Level.WARNING),
        ("v1.32.0-eks-1234567", Level.WARNING),
        ("v1.31.0-eks-1234567", Level.ERROR),
    ],
)
def test_a_kubelet_may_be_one_version_behind(kubelet: str, level: Level) -> None:
    [finding] = judge_kubelets(cluster("v1.35.0", kubelet), "1.35")
    assert finding.level is level


def test_old_nodes_are_counted_by_version_and_some_named() -> None:
    old = ["v1.33.1"] * 6
    [finding] = judge_kubelets(cluster("v1.35.0", *old), "1.35")
    assert finding.what == "6 nodes are 2 minor versions older than the control plane"
    assert finding.value == "v1.33.1 under 1.35: n-1, n-2, n-3, n-4 and 2 more"


def addon(status: str, *issues: dict[str, str], name: str = "coredns") -> dict[str, Any]:
    return {"addonName": name, "status": status, "health": {"issues": [*issues]}}


def test_every_add_on_of_the_cluster_is_asked_for(settings: Deployment) -> None:
    issue = {"code": "InsufficientNumberOfReplicas", "message": "0 of 2\nreplicas"}
    clients = stubbed(
        ("eks", "list_addons", {"addons": ["vpc-cni"], "nextToken": "more"}),
        ("eks", "list_addons", {"addons": ["coredns"]}),
        ("eks", "describe_addon", {"addon": addon("ACTIVE", name="vpc-cni")}),
        ("eks", "describe_addon", {"addon": addon("DEGRADED", issue)}),
    )
    [finding] = check_addons(Case(clients, settings, NOW))
    assert (finding.level, finding.what) == (Level.ERROR, "coredns does not work")
    assert finding.value == "DEGRADED; InsufficientNumberOfReplicas: 0 of 2 replicas"
    assert "aws eks update-addon --cluster-name steadfast-p5 --addon-name coredns" in finding.remedy
    assert "deploy" not in finding.remedy


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ("ACTIVE", Level.OK),
        ("CREATING", Level.WARNING),
        ("UPDATING", Level.WARNING),
        ("DEGRADED", Level.ERROR),
        ("CREATE_FAILED", Level.ERROR),
        ("UPDATE_FAILED", Level.ERROR),
        ("DELETE_FAILED", Level.ERROR),
    ],
)
def test_an_add_on_that_is_not_active_is_not_good(
    settings: Deployment, status: str, level: Level
) -> None:
    [finding] = judge_addons([addon(status)], settings)
    assert finding.level is level
