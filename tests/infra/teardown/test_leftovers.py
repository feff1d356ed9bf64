"""What stays after a teardown is looked for by name and tag, in moto's account."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from deployment import Deployment, load
from infra.node_groups import CapacityBlock
from infra.teardown.leftovers import find_leftovers
from tests.infra.templates import ROOT

ACCOUNT = "123456789012"  # moto's
REGION = "us-east-1"
TAG = {"Key": "deployment", "Value": "steadfast-g5"}


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    for name in ("AWS_ENDPOINT_URL", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    with mock_aws():
        yield


def client(service: str) -> Any:
    return boto3.client(service, region_name=REGION)


def settings(name: str = "g5", **changes: object) -> Deployment:
    deployment = load(ROOT / f"deployments/{name}.yaml")
    return deployment.model_copy(update={"account": ACCOUNT, **changes})


def left() -> list[str]:
    found, unknown = find_leftovers(client, settings())
    assert not unknown
    return [f"{item.what} {'billed' if item.billed else 'free'}" for item in found]


def test_an_empty_account_has_nothing_left() -> None:
    assert left() == []


def test_a_file_system_that_an_update_replaced_is_named() -> None:
    fsx = client("fsx")
    made = {"FileSystemType": "LUSTRE", "StorageCapacity": 1200, "SubnetIds": ["subnet-12345678"]}
    mine = fsx.create_file_system(**made, Tags=[{"Key": "Name", "Value": "steadfast-g5"}])
    fsx.create_file_system(**made, Tags=[{"Key": "Name", "Value": "somebody-elses"}])
    assert left() == [f"file system {mine['FileSystem']['FileSystemId']} (1200 GiB) billed"]


def test_a_tagged_instance_and_its_volume_are_named() -> None:
    ec2 = client("ec2")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    tags = [{"ResourceType": "instance", "Tags": [TAG]}]
    counts = {"MinCount": 1, "MaxCount": 1, "InstanceType": "g5.8xlarge"}
    mine = ec2.run_instances(ImageId=image, TagSpecifications=tags, **counts)["Instances"][0]
    ec2.run_instances(ImageId=image, **counts)
    owned = {"Key": "kubernetes.io/cluster/steadfast-g5", "Value": "owned"}
    specification = [{"ResourceType": "volume", "Tags": [owned]}]
    zone = {"AvailabilityZone": "us-east-1a", "Size": 20}
    volume = ec2.create_volume(**zone, TagSpecifications=specification)["VolumeId"]
    assert left() == [
        f"instance {mine['InstanceId']} (g5.8xlarge, running) billed",
        f"EBS volume {volume} (20 GiB) billed",
    ]


def test_both_repositories_are_named_if_they_stay() -> None:
    for name in ("steadfast-g5/trainer", "steadfast-g5/node-repair", "another"):
        client("ecr").create_repository(repositoryName=name)
    assert left() == [
        "ECR repository steadfast-g5/trainer billed",
        "ECR repository steadfast-g5/node-repair billed",
    ]


def test_a_key_that_waits_for_its_deletion_is_free_and_one_in_use_is_not() -> None:
    kms = client("kms")
    tags = [{"TagKey": "deployment", "TagValue": "steadfast-g5"}]
    going, staying = (kms.create_key(Tags=tags)["KeyMetadata"]["KeyId"] for _ in range(2))
    kms.schedule_key_deletion(KeyId=going, PendingWindowInDays=7)
    assert sorted(left()) == sorted([f"KMS key {going} free", f"KMS key {staying} billed"])


def test_log_groups_under_the_deployments_name_are_named() -> None:
    for name in ("/aws/eks/steadfast-g5/cluster", "/aws/lambda/steadfast-g5-x", "/aws/eks/b/c"):
        client("logs").create_log_group(logGroupName=name)
    assert left() == [
        "log group /aws/eks/steadfast-g5/cluster billed",
        "log group /aws/lambda/steadfast-g5-x billed",
    ]


def test_the_bootstrap_bucket_is_named_and_left_alone() -> None:
    name = f"cdk-hnb659fds-assets-{ACCOUNT}-us-east-1"
    client("s3").create_bucket(Bucket=name)
    assert left() == [f"bucket {name} billed"]


def test_a_cluster_that_lost_its_stack_is_named() -> None:
    role = f"arn:aws:iam::{ACCOUNT}:role/eks"
    client("eks").create_cluster(name="steadfast-g5", roleArn=role, resourcesVpcConfig={})
    assert left() == ["EKS cluster steadfast-g5 billed"]


def test_a_capacity_block_is_paid_for_and_ends_by_itself() -> None:
    """moto knows no reservations, so their answer, in the shape of EC2's, stands in for it."""
    block = settings("p5-capacity-block")
    capacity = next(iter(block.node_groups.values())).capacity
    assert isinstance(capacity, CapacityBlock)
    block_id = capacity.reservation_id

    class StandInEc2:
        def describe_capacity_reservations(
            self, *, CapacityReservationIds: list[str]
        ) -> dict[str, Any]:
            assert CapacityReservationIds == [block_id]
            reservation = {
                "CapacityReservationId": block_id,
                "InstanceType": "p5.48xlarge",
                "TotalInstanceCount": 2,
                "State": "active",
                "ReservationType": "capacity-block",
            }
            return {"CapacityReservations": [reservation]}

        def get_paginator(self, name: str) -> Any:
            return client("ec2").get_paginator(name)

    found, unknown = find_leftovers(
        lambda service: StandInEc2() if service == "ec2" else client(service), block
    )
    assert unknown == []
    what = f"capacity block {block_id} (2 x p5.48xlarge, active)"
    assert [str(item) for item in found] == [f"{what}: billed; paid in advance, it ends by itself"]


def test_what_may_not_be_looked_at_is_one_line_and_hides_nothing_else() -> None:
    def some(service: str) -> Any:
        if service == "fsx":
            error = {"Code": "AccessDeniedException", "Message": "no"}
            raise ClientError({"Error": error}, "DescribeFileSystems")
        return client(service)

    client("ecr").create_repository(repositoryName="steadfast-g5/trainer")
    found, unknown = find_leftovers(some, settings())
    assert [item.what for item in found] == ["ECR repository steadfast-g5/trainer"]
    assert unknown == [
        "could not look for file systems: not allowed to call DescribeFileSystems: no; "
        "ask for that permission"
    ]
