"""vCPU and FSx quotas."""

from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.findings import Level
from infra.doctor.quotas import (
    G_INSTANCES,
    P_INSTANCES,
    STANDARD_INSTANCES,
    check_fsx,
    check_vcpus,
    judge_fsx,
    judge_vcpus,
    quota_of,
    vcpus_needed,
)
from infra.node_groups import NodeGroup
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.deployed import scaling_group, status_of, system_nodes
from tests.infra.doctor.stand_ins import FILE_SYSTEM_ID, Answer, resources, stubbed

BLOCK = {
    "kind": "capacity-block",
    "reservation_id": "cr-0123456789abcdef0",
    "ends_at": "2027-01-13T11:30:00Z",
}


def group(
    instance_type: str, num_nodes: int, *, spares: int = 0, capacity: dict[str, str] | None = None
) -> NodeGroup:
    return NodeGroup.model_validate(
        {
            "instance_type": instance_type,
            "num_nodes": num_nodes,
            "spare_nodes": spares,
            "capacity": capacity or {"kind": "on-demand"},
        }
    )


def quota(value: float) -> dict[str, Any]:
    return {"Quota": {"Value": value}}


@pytest.mark.parametrize(
    ("instance_type", "expected"),
    [
        ("p5.48xlarge", P_INSTANCES),
        ("p6-b200.48xlarge", P_INSTANCES),
        ("g5.8xlarge", G_INSTANCES),
        ("vt1.3xlarge", G_INSTANCES),
        ("m7i.xlarge", STANDARD_INSTANCES),
        ("trn1.32xlarge", None),
        ("inf2.xlarge", None),
    ],
)
def test_an_instance_type_counts_under_its_family(instance_type: str, expected: object) -> None:
    assert quota_of(instance_type) == expected


def test_vcpus_are_added_up_over_groups_and_spares(settings: Deployment) -> None:
    groups = {"big": group("p5.48xlarge", 2, spares=1), "old": group("p4de.24xlarge", 1)}
    needed = vcpus_needed(settings.model_copy(update={"node_groups": groups}), 4)
    # 3 x 192 + 96, and two system nodes of 4.
    assert needed == {P_INSTANCES: 672, STANDARD_INSTANCES: 8}


def test_a_capacity_block_uses_no_quota(settings: Deployment) -> None:
    groups = {"big": group("p5.48xlarge", 2, capacity=BLOCK)}
    needed = vcpus_needed(settings.model_copy(update={"node_groups": groups}), 4)
    assert needed == {STANDARD_INSTANCES: 8}


def test_nodes_without_gpus_share_the_quota_of_system_nodes(settings: Deployment) -> None:
    groups = {"cpu": group("m7i.2xlarge", 3)}
    needed = vcpus_needed(settings.model_copy(update={"node_groups": groups}), 4)
    assert needed == {STANDARD_INSTANCES: 32}


def test_a_quota_one_vcpu_short_is_an_error() -> None:
    [short, good] = judge_vcpus(
        {P_INSTANCES: 384, STANDARD_INSTANCES: 8},
        {P_INSTANCES: 383, STANDARD_INSTANCES: 8},
        "us-east-1",
    )
    assert (short.level, good.level) == (Level.ERROR, Level.OK)
    assert "needs 384 vCPUs" in short.what
    assert short.value == "383 vCPUs allowed"
    assert short.remedy.endswith("--quota-code L-417A185B --desired-value 384")


def test_a_quota_that_was_never_raised_is_read_from_awss_defaults(settings: Deployment) -> None:
    clients = stubbed(
        ("ec2", "describe_instance_types", {"InstanceTypes": [{"VCpuInfo": {"DefaultVCpus": 4}}]}),
        ("service-quotas", "get_service_quota", quota(5)),
        ("service-quotas", "get_service_quota", "NoSuchResourceException"),
        ("service-quotas", "get_aws_default_service_quota", quota(384)),
        scaling_group(None),
    )
    standard, p = check_vcpus(Case(clients, settings, NOW))
    assert (standard.level, p.level) == (Level.ERROR, Level.OK)


def test_a_system_node_type_that_ec2_does_not_know_is_an_error(settings: Deployment) -> None:
    clients = stubbed(("ec2", "describe_instance_types", "InvalidInstanceType"))
    [finding] = check_vcpus(Case(clients, settings, NOW))
    assert (finding.level, finding.value) == (Level.ERROR, "m7i.xlarge")


def lustre(identifier: str, size: int, kind: str = "SCRATCH_2") -> dict[str, Any]:
    return {
        "FileSystemId": identifier,
        "StorageCapacity": size,
        "LustreConfiguration": {"DeploymentType": kind},
    }


def test_storage_of_others_counts_and_the_deployments_own_once(settings: Deployment) -> None:
    file_systems = [
        lustre("fs-own", 1200),
        lustre("fs-other", 2400),
        lustre("fs-old", 3600, "SCRATCH_1"),
        lustre("fs-kept", 9600, "PERSISTENT_2"),
        {"FileSystemId": "fs-windows", "StorageCapacity": 300},
        {"FileSystemId": "fs-elastic", "LustreConfiguration": {"DeploymentType": "SCRATCH_2"}},
    ]
    good = judge_fsx(settings, file_systems, own="fs-own", limit=7200)
    assert good.level is Level.OK
    assert good.what.endswith("needs 1200 GiB beside 6000 of others")
    assert judge_fsx(settings, file_systems, own="fs-own", limit=7199).level is Level.ERROR
    assert judge_fsx(settings, file_systems, own=None, limit=7200).level is Level.ERROR


def test_fsx_is_asked_for_the_quota_of_the_deployment_type(settings: Deployment) -> None:
    own = resources(("AWS::FSx::FileSystem", FILE_SYSTEM_ID))
    clients = stubbed(
        ("fsx", "describe_file_systems", {"FileSystems": [lustre(FILE_SYSTEM_ID, 1200)]}),
        ("cloudformation", "describe_stack_resources", own),
        ("service-quotas", "get_service_quota", quota(1200)),
    )
    [finding] = check_fsx(Case(clients, settings, NOW))
    assert (finding.level, finding.value) == (Level.OK, "1200 GiB allowed")


@pytest.mark.parametrize(("has", "level"), [(1200, Level.WARNING), (600, Level.ERROR)])
def test_a_file_system_that_does_not_grow_needs_no_quota(
    settings: Deployment, has: int, level: Level
) -> None:
    clients = stubbed(
        ("fsx", "describe_file_systems", {"FileSystems": [lustre(FILE_SYSTEM_ID, has)]}),
        (
            "cloudformation",
            "describe_stack_resources",
            resources(("AWS::FSx::FileSystem", FILE_SYSTEM_ID)),
        ),
        ("service-quotas", "get_service_quota", quota(0)),
    )
    [finding] = check_fsx(Case(clients, settings, NOW))
    assert finding.level is level


@pytest.mark.parametrize(
    ("answers", "level"),
    [
        ([scaling_group(2), *system_nodes(num_nodes=2)], Level.WARNING),
        ([scaling_group(1)], Level.ERROR),
        ([scaling_group(None)], Level.ERROR),
        ([scaling_group(2), *system_nodes(num_nodes=1)], Level.ERROR),
        ([scaling_group(2), status_of("steadfast-p5-cluster", None)], Level.ERROR),
    ],
)
def test_a_quota_forbids_no_deploy_that_starts_no_node(
    settings: Deployment, answers: list[Answer], level: Level
) -> None:
    """Or a deployment whose quota was lowered could not be changed, and taken down."""
    clients = stubbed(
        ("ec2", "describe_instance_types", {"InstanceTypes": [{"VCpuInfo": {"DefaultVCpus": 4}}]}),
        *[("service-quotas", "get_service_quota", quota(7))] * 2,
        *answers,
    )
    findings = check_vcpus(Case(clients, settings, NOW))
    assert [finding.level for finding in findings] == [level, level]
