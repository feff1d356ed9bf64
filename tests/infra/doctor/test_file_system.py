"""A deploy that would replace the file system, the state of it, and its bucket."""

from dataclasses import replace
from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.file_system import (
    FileSystem,
    check_change,
    check_state,
    judge_change,
    judge_state,
)
from infra.doctor.findings import Level
from infra.settings import Storage
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import (
    DNS_NAME,
    FILE_SYSTEM_ID,
    MOUNT_NAME,
    Answer,
    resources,
    stubbed,
)

DEPLOYED = FileSystem(
    id=FILE_SYSTEM_ID,
    zone="us-east-1a",
    vpc_cidr="10.0.0.0/16",
    deployment_type="SCRATCH_2",
    size_gib=1200,
    throughput_mbps_per_tib=None,
    lustre_version="2.15",
    lifecycle="AVAILABLE",
    dns_name=DNS_NAME,
    mount_name=MOUNT_NAME,
)

FACTS = {
    "FileSystemId": FILE_SYSTEM_ID,
    "StorageCapacity": 1200,
    "SubnetIds": ["subnet-0123456789abcdef0"],
    "FileSystemTypeVersion": "2.15",
    "Lifecycle": "AVAILABLE",
    "DNSName": DNS_NAME,
    "LustreConfiguration": {"DeploymentType": "SCRATCH_2", "MountName": MOUNT_NAME},
}


def deployed(zone: str = "us-east-1a", **changes: Any) -> list[Answer]:
    vpc_id = "vpc-0123456789abcdef0"
    subnet = {"AvailabilityZone": zone, "VpcId": vpc_id}
    return [
        (
            "cloudformation",
            "describe_stack_resources",
            resources(
                ("AWS::EC2::SecurityGroup", "sg-1"), ("AWS::FSx::FileSystem", FILE_SYSTEM_ID)
            ),
        ),
        ("fsx", "describe_file_systems", {"FileSystems": [{**FACTS, **changes}]}),
        ("ec2", "describe_subnets", {"Subnets": [subnet]}),
        ("ec2", "describe_vpcs", {"Vpcs": [{"CidrBlock": "10.0.0.0/16"}]}),
    ]


def test_nothing_is_lost_before_the_first_deploy(moto_case: Case) -> None:
    [finding] = check_change(moto_case)
    assert (finding.level, finding.what) == (Level.OK, "none is deployed yet")


def test_the_deployed_file_system_is_kept(settings: Deployment) -> None:
    [finding] = check_change(Case(stubbed(*deployed()), settings, NOW))
    assert (finding.level, finding.value) == (Level.OK, FILE_SYSTEM_ID)


def test_another_zone_is_refused_with_both_values(settings: Deployment) -> None:
    [finding] = check_change(Case(stubbed(*deployed(zone="us-east-1c")), settings, NOW))
    assert finding.level is Level.ERROR
    assert finding.what.startswith("another zone would replace fs-0123456789abcdef0")
    assert finding.value == "deployed us-east-1c, file us-east-1a"


def test_another_deployment_type_is_refused(settings: Deployment) -> None:
    [finding] = judge_change(
        replace(DEPLOYED, deployment_type="PERSISTENT_2", throughput_mbps_per_tib=125), settings
    )
    assert (finding.level, finding.value) == (
        Level.ERROR,
        "deployed PERSISTENT_2, file SCRATCH_2",
    )


def test_another_network_is_refused(settings: Deployment) -> None:
    [finding] = judge_change(replace(DEPLOYED, vpc_cidr="10.0.0.0/17"), settings)
    assert finding.level is Level.ERROR
    assert finding.value == "deployed 10.0.0.0/17, file 10.0.0.0/16"


@pytest.mark.parametrize(
    ("deployed_gib", "level"), [(2400, Level.ERROR), (1200, Level.OK), (600, Level.WARNING)]
)
def test_a_file_system_grows_and_never_shrinks(
    settings: Deployment, deployed_gib: int, level: Level
) -> None:
    [finding] = judge_change(replace(DEPLOYED, size_gib=deployed_gib), settings)
    assert finding.level is level


def test_another_throughput_is_changed_in_place(settings: Deployment) -> None:
    storage = Storage(deployment_type="PERSISTENT_2", throughput_mbps_per_tib=250)
    wanted = settings.model_copy(update={"storage": storage})
    has = replace(DEPLOYED, deployment_type="PERSISTENT_2", throughput_mbps_per_tib=125)
    [finding] = judge_change(has, wanted)
    assert (finding.level, finding.value) == (
        Level.WARNING,
        "deployed 125, file 250 MB/s per TiB",
    )
    [same] = judge_change(replace(has, throughput_mbps_per_tib=250), wanted)
    assert same.level is Level.OK


def test_a_file_system_of_the_default_version_cannot_be_mounted(settings: Deployment) -> None:
    case = Case(stubbed(*deployed(FileSystemTypeVersion="2.10")), settings, NOW)
    [finding] = check_state(case)
    assert (finding.level, finding.what) == (Level.ERROR, "nodes cannot mount Lustre 2.10")
    assert finding.remedy.endswith("--file-system-type-version 2.15")


@pytest.mark.parametrize(
    ("lifecycle", "level"),
    [
        ("AVAILABLE", Level.OK),
        ("UPDATING", Level.WARNING),
        ("MISCONFIGURED", Level.ERROR),
        ("FAILED", Level.ERROR),
    ],
)
def test_only_an_available_file_system_is_good(
    settings: Deployment, lifecycle: str, level: Level
) -> None:
    [finding] = judge_state(replace(DEPLOYED, lifecycle=lifecycle), settings)
    assert finding.level is level


def test_a_file_system_that_somebody_deleted_is_an_error(settings: Deployment) -> None:
    own, *_ = deployed()
    case = Case(stubbed(own, ("fsx", "describe_file_systems", "FileSystemNotFound")), settings, NOW)
    [finding] = check_state(case)
    assert finding.level is Level.ERROR
    steps = ["no stack steadfast-p5-storage: 'make deploy'", "end the jobs", "-p5-platform"]
    steps += ["--stack-name steadfast-p5-storage", "and 'make deploy'"]
    at = [finding.remedy.index(step) for step in steps]
    assert at == sorted(at)
