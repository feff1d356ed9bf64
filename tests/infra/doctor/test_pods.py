"""Pods that do not end, and the claim."""

from dataclasses import replace

import pytest

from deployment import Deployment
from infra.doctor.findings import Finding, Level
from infra.doctor.objects import Cluster
from infra.doctor.pods import judge_claim, judge_terminating
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import (
    FILE_SYSTEM_ID,
    TRAINING_NODES,
    claim,
    healthy,
    node,
    training_pod,
    volume,
)
from tests.infra.doctor.test_nodes import cluster_of, with_node

FIRST, _ = TRAINING_NODES
LATE = "2026-11-29T17:54:59Z"
IN_TIME = "2026-11-29T17:55:00Z"


def ending(cluster: Cluster, deleted: str, on: str = FIRST) -> list[Finding]:
    pod = training_pod("in-job-0", on, deleted=deleted)
    return judge_terminating(replace(cluster, pods=[*cluster.pods, pod]), NOW)


def test_a_pod_may_take_five_minutes_beyond_its_grace_period() -> None:
    [finding] = ending(cluster_of(healthy()), IN_TIME)
    assert finding.level is Level.OK


def test_a_pod_stuck_on_a_good_node_comes_with_the_restart_of_the_driver() -> None:
    [finding] = ending(cluster_of(healthy()), LATE)
    assert (finding.level, finding.what) == (Level.ERROR, "training/in-job-0 does not end")
    assert finding.value == "5 minutes late, no finalizers"
    assert finding.remedy.endswith("kubectl -n kube-system delete pod fsx-csi-node-0-1-11")


def test_a_pod_on_a_silent_node_is_not_forced_before_the_instance_ends() -> None:
    [finding] = ending(with_node(node(FIRST, ready="Unknown")), LATE)
    assert "terminate that instance first" in finding.remedy


def test_a_pod_of_a_node_that_is_gone_can_be_forced() -> None:
    [finding] = ending(cluster_of(healthy()), LATE, on="ip-10-0-1-99")
    assert finding.remedy == (
        "its node ip-10-0-1-99 is gone: "
        "kubectl -n training delete pod in-job-0 --force --grace-period=0"
    )


def test_a_bound_claim_is_good(settings: Deployment) -> None:
    [finding] = judge_claim(cluster_of(healthy()), settings, FILE_SYSTEM_ID)
    assert (finding.level, finding.what) == (Level.OK, f"bound to {FILE_SYSTEM_ID}")


@pytest.mark.parametrize(
    ("provider", "remedy"),
    [
        (True, "delete-stack --stack-name steadfast-p5-platform --region us-east-1; once"),
        (False, "workloads synth --deployment FILE --outputs cdk-outputs.json"),
    ],
)
def test_a_missing_claim_comes_with_who_makes_it(
    settings: Deployment, provider: bool, remedy: str
) -> None:
    wanted = settings.model_copy(update={"kubectl_provider": provider})
    bare = replace(cluster_of(healthy()), claims=[])
    [finding] = judge_claim(bare, wanted, FILE_SYSTEM_ID)
    assert finding.level is Level.ERROR
    assert finding.remedy.startswith("end the jobs, then")
    assert remedy in finding.remedy


def test_a_claim_that_waits_for_its_volume_is_an_error(settings: Deployment) -> None:
    waiting = replace(cluster_of(healthy()), claims=[claim(phase="Pending")])
    [finding] = judge_claim(waiting, settings, FILE_SYSTEM_ID)
    assert (finding.level, finding.value) == (Level.ERROR, "training/fsx Pending")


def test_a_claim_that_is_being_deleted_is_an_error(settings: Deployment) -> None:
    going = replace(cluster_of(healthy()), claims=[claim(deleted=True)])
    [finding] = judge_claim(going, settings, FILE_SYSTEM_ID)
    assert "waits for the pods that mount it" in finding.what
    assert "delete-stack" in finding.remedy


def test_a_claim_bound_to_a_former_file_system_is_an_error(settings: Deployment) -> None:
    other = replace(cluster_of(healthy()), volumes=[volume("fs-former")])
    [finding] = judge_claim(other, settings, FILE_SYSTEM_ID)
    assert (finding.level, finding.value) == (Level.ERROR, f"fs-former, not {FILE_SYSTEM_ID}")
    assert "delete-stack" in finding.remedy


def test_a_claim_whose_volume_may_not_be_seen_is_a_warning(settings: Deployment) -> None:
    blind = replace(cluster_of(healthy()), volumes=[])
    [finding] = judge_claim(blind, settings, FILE_SYSTEM_ID)
    assert finding.level is Level.WARNING
