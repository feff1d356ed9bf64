"""A volume with another address than the file system's, and nodes without its client."""

from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.findings import Level
from infra.doctor.mounting import judge_clients, judge_volume
from infra.doctor.objects import Cluster
from tests.infra.doctor.stand_ins import DNS_NAME, FILE_SYSTEM_ID, node, volume
from tests.infra.doctor.test_file_system import DEPLOYED


def cluster(
    *, nodes: tuple[dict[str, Any], ...] = (), volumes: tuple[dict[str, Any], ...] = ()
) -> Cluster:
    return Cluster(nodes=nodes, pods=[], daemon_sets=[], claims=[], volumes=volumes)


def test_a_volume_with_the_address_that_fsx_gives_is_good(settings: Deployment) -> None:
    [finding] = judge_volume(cluster(volumes=(volume(FILE_SYSTEM_ID),)), settings, DEPLOYED)
    assert (finding.level, finding.what) == (Level.OK, "mounts Lustre 2.15")
    assert finding.value == f"{DNS_NAME}:/abcdefgh"


@pytest.mark.parametrize(("key", "wanted"), [("dnsname", DNS_NAME), ("mountname", "abcdefgh")])
def test_a_volume_with_another_address_is_an_error(
    settings: Deployment, key: str, wanted: str
) -> None:
    wrong = volume(FILE_SYSTEM_ID, **{key: "old"})
    [finding] = judge_volume(cluster(volumes=(wrong,)), settings, DEPLOYED)
    assert (finding.level, finding.value) == (Level.ERROR, f"volume old, FSx {wanted}")
    assert key in finding.what
    assert "delete-stack --stack-name steadfast-p5-platform" in finding.remedy


def test_a_volume_of_another_file_system_is_left_to_the_claims_check(settings: Deployment) -> None:
    other = volume("fs-0fedcba9876543210", mountname="old")
    assert judge_volume(cluster(volumes=(other,)), settings, DEPLOYED) == []
    assert judge_volume(cluster(), settings, DEPLOYED) == []


def test_training_nodes_say_their_system_and_kernel() -> None:
    nodes = node("n-1"), node("n-2"), node("system", group=None, os_image="Bottlerocket")
    [finding] = judge_clients(cluster(nodes=nodes))
    assert (finding.level, finding.what) == (Level.OK, "nodes can mount Lustre 2.15")
    assert finding.value == (
        "Amazon Linux 2023.9.20261118, kernel 6.12.55-74.119.amzn2023.x86_64: n-1, n-2"
    )


def test_a_training_node_of_another_system_is_an_error() -> None:
    nodes = node("n-1"), node("n-2", os_image="Amazon Linux 2")
    wrong, _ = judge_clients(cluster(nodes=nodes))
    assert (wrong.level, wrong.what) == (
        Level.ERROR,
        "1 nodes do not run Amazon Linux 2023, whose client mounts it",
    )
    assert wrong.value.endswith(": n-2")
