"""Nodes, their devices and their daemons, from what kubectl prints."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from deployment import Deployment
from infra.bootstrap import node_labels
from infra.doctor.findings import Finding, Level
from infra.doctor.nodes import (
    judge_counts,
    judge_devices,
    judge_health,
    judge_plugins,
    judge_taints,
)
from infra.doctor.objects import Cluster, quantity
from infra.node_groups import NodeGroup
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import (
    DAEMON_SETS,
    P5_ALLOCATABLE,
    TRAINING_NODES,
    daemon_pod,
    healthy,
    node,
)

FIRST, SECOND = TRAINING_NODES


def cluster_of(objects: dict[str, list[dict[str, Any]]]) -> Cluster:
    return Cluster(
        nodes=objects["nodes"],
        pods=objects["pods"],
        daemon_sets=objects["daemonsets"],
        claims=objects["persistentvolumeclaims"],
        volumes=objects["persistentvolumes"],
    )


def with_node(changed: dict[str, Any]) -> Cluster:
    """A healthy cluster with another node in the place of the one of that name."""
    objects = healthy()
    name = changed["metadata"]["name"]
    objects["nodes"] = [
        changed if each["metadata"]["name"] == name else each for each in objects["nodes"]
    ]
    return cluster_of(objects)


def bad(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.level is not Level.OK]


def with_group(settings: Deployment, **changes: Any) -> Deployment:
    group = {
        "instance_type": "p5.48xlarge",
        "num_nodes": 2,
        "capacity": {"kind": "on-demand"},
        **changes,
    }
    return settings.model_copy(update={"node_groups": {"p5": NodeGroup.model_validate(group)}})


@pytest.mark.parametrize(
    "judge",
    [
        lambda cluster, settings: judge_counts(cluster, settings, NOW),
        judge_devices,
        lambda cluster, _: judge_health(cluster),
        judge_plugins,
        lambda cluster, _: judge_taints(cluster, NOW),
    ],
)
def test_a_healthy_cluster_has_only_good_findings(
    settings: Deployment, judge: Callable[[Cluster, Deployment], list[Finding]]
) -> None:
    findings = judge(cluster_of(healthy()), settings)
    assert findings
    assert bad(findings) == []


def test_the_stand_in_nodes_are_labelled_as_real_ones(settings: Deployment) -> None:
    labels = node_labels("p5", settings.node_groups["p5"].hardware)
    assert node(FIRST)["metadata"]["labels"].items() <= labels.items()


def test_a_node_that_is_not_ready_is_missing(settings: Deployment) -> None:
    [finding] = bad(judge_counts(with_node(node(SECOND, ready="Unknown")), settings, NOW))
    assert (finding.level, finding.value) == (Level.ERROR, "1 of 2 ready")
    assert finding.remedy.endswith("--auto-scaling-group-name steadfast-p5-p5")


def test_a_missing_spare_is_a_warning(settings: Deployment) -> None:
    one_spare = with_group(settings, num_nodes=2, spare_nodes=1)
    [finding] = bad(judge_counts(cluster_of(healthy()), one_spare, NOW))
    assert (finding.level, finding.value) == (Level.WARNING, "2 of 3 ready, 1 of them spare")


def test_missing_system_nodes_are_an_error(settings: Deployment) -> None:
    lost = with_node(node("ip-10-0-2-22", group=None, ready="False"))
    [finding] = bad(judge_counts(lost, settings, NOW))
    assert (finding.what, finding.value) == ("system nodes are missing", "1 of 2 ready")


def test_a_block_has_no_nodes_outside_of_its_dates(settings: Deployment) -> None:
    dates = {"starts_at": "2027-01-11T11:30:00Z", "ends_at": "2027-01-13T11:30:00Z"}
    block = {"kind": "capacity-block", "reservation_id": "cr-0123456789abcdef0", **dates}
    in_block = with_group(settings, capacity=block)
    objects = healthy()
    objects["nodes"] = objects["nodes"][2:]

    def level_at(moment: datetime) -> Level:
        return judge_counts(cluster_of(objects), in_block, moment)[0].level

    assert level_at(datetime(2027, 1, 11, 11, 29, tzinfo=UTC)) is Level.OK
    assert level_at(datetime(2027, 1, 11, 11, 30, tzinfo=UTC)) is Level.ERROR
    assert level_at(datetime(2027, 1, 13, 10, 45, tzinfo=UTC)) is Level.WARNING


@pytest.mark.parametrize(
    ("resource", "has", "what", "value"),
    [
        ("nvidia.com/gpu", "7", "7 nvidia.com/gpu", "8 on a p5.48xlarge"),
        ("vpc.amazonaws.com/efa", "31", "31 vpc.amazonaws.com/efa", "32 on a p5.48xlarge"),
        ("hugepages-2Mi", "0", "0 MiB of huge pages", "5120 MiB on a p5.48xlarge"),
    ],
)
def test_a_node_that_offers_less_than_its_type_has_is_an_error(
    settings: Deployment, resource: str, has: str, what: str, value: str
) -> None:
    less = node(SECOND, allocatable={**P5_ALLOCATABLE, resource: has})
    [finding] = bad(judge_devices(with_node(less), settings))
    assert (finding.level, finding.what) == (Level.ERROR, f"p5: {SECOND} offers {what}")
    assert finding.value == value


def test_a_node_without_device_plugins_offers_nothing(settings: Deployment) -> None:
    bare = with_node(node(SECOND, allocatable={"cpu": "191450m"}))
    assert len(bad(judge_devices(bare, settings))) == 3


def test_more_huge_pages_than_asked_for_are_well(settings: Deployment) -> None:
    more = node(SECOND, allocatable={**P5_ALLOCATABLE, "hugepages-2Mi": "21122Mi"})
    assert bad(judge_devices(with_node(more), settings)) == []


@pytest.mark.parametrize(
    ("text", "value"), [("8", 8), (None, 0), ("5120Mi", 5368709120), ("5Gi", 5368709120)]
)
def test_quantities_are_read_with_their_units(text: str | None, value: int) -> None:
    assert quantity(text) == value


def test_broken_hardware_is_an_error_with_the_agents_words() -> None:
    condition = {
        "type": "AcceleratedHardwareReady",
        "status": "False",
        "reason": "NvidiaXID79Error",
        "message": "GPU has fallen off the bus",
    }
    [finding] = judge_health(with_node(node(SECOND, conditions=[condition])))
    assert (finding.level, finding.value) == (
        Level.ERROR,
        "NvidiaXID79Error: GPU has fallen off the bus",
    )
    good = {**condition, "status": "True"}
    assert bad(judge_health(with_node(node(SECOND, conditions=[good])))) == []


def test_a_cordoned_node_is_a_warning() -> None:
    [finding] = judge_health(with_node(node(SECOND, cordoned=True)))
    assert (finding.level, finding.remedy) == (
        Level.WARNING,
        f"kubectl uncordon {SECOND}, if it is not being replaced",
    )


@pytest.mark.parametrize("name", DAEMON_SETS)
def test_a_daemon_that_is_missing_on_one_node_is_named_with_it(
    settings: Deployment, name: str
) -> None:
    objects = healthy()
    objects["pods"].remove(daemon_pod(name, SECOND))
    [finding] = bad(judge_plugins(cluster_of(objects), settings))
    assert (finding.level, finding.what) == (Level.ERROR, f"{name} is not ready on {SECOND}")
    assert finding.value == "ready on 1 of 2 nodes"


def test_a_daemon_that_crashes_is_not_ready(settings: Deployment) -> None:
    objects = healthy()
    objects["pods"].remove(daemon_pod("fsx-csi-node", FIRST))
    objects["pods"].append(daemon_pod("fsx-csi-node", FIRST, ready="False"))
    [finding] = bad(judge_plugins(cluster_of(objects), settings))
    assert finding.what == f"fsx-csi-node is not ready on {FIRST}"


def test_daemons_that_are_not_installed_come_with_who_installs_them(settings: Deployment) -> None:
    bare = replace(cluster_of(healthy()), daemon_sets=[])
    by_stack = [finding.remedy for finding in judge_plugins(bare, settings)]
    assert all("--stack-name steadfast-p5-platform" in remedy for remedy in by_stack[:2])
    assert "create-addon" in by_stack[2]
    assert "describe-addon --addon-name aws-fsx-csi-driver" in by_stack[2]
    by_hand = settings.model_copy(update={"kubectl_provider": False})
    assert "helm" in judge_plugins(bare, by_hand)[0].remedy


def test_nodes_without_gpus_need_only_the_storage_driver(settings: Deployment) -> None:
    cpu = with_group(settings, instance_type="m7i.2xlarge")
    bare = replace(cluster_of(healthy()), daemon_sets=[])
    assert [f.what for f in judge_plugins(bare, cpu)] == ["fsx-csi-node is not installed"]


def test_a_storage_taint_that_stays_comes_with_the_restart_of_its_driver() -> None:
    taint = "fsx.csi.aws.com/agent-not-ready"
    stuck = node(SECOND, taints=[taint], joined="2026-11-29T17:54:00Z")
    [finding] = judge_taints(with_node(stuck), NOW)
    assert (finding.level, finding.value) == (Level.ERROR, "6 minutes after it joined")
    assert finding.remedy == (
        "restart its driver: kubectl -n kube-system delete pod fsx-csi-node-0-1-12"
    )
    young = node(SECOND, taints=[taint], joined="2026-11-29T17:55:00Z")
    assert bad(judge_taints(with_node(young), NOW)) == []


def test_a_storage_taint_without_a_driver_says_so() -> None:
    stuck = node(SECOND, taints=["fsx.csi.aws.com/agent-not-ready"])
    [finding] = judge_taints(replace(with_node(stuck), pods=[]), NOW)
    assert finding.remedy.startswith("no driver there: kubectl -n kube-system describe")
