"""What is still there after a teardown, and whether it costs money.

Looks for what bears the deployment's name or tag. What bears neither, such as a
load balancer that somebody made by hand, it does not see.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from infra.aws import ERRORS, error_code, one_line
from infra.names import BOOTSTRAP_QUALIFIER
from infra.node_groups import OnDemand
from infra.settings import InfraSettings
from infra.teardown.stacks import DEPLOYMENT_TAG

Client = Callable[[str], Any]

_GONE = frozenset(
    {"404", "NoSuchBucket", "RepositoryNotFoundException", "ResourceNotFoundException"}
)


@dataclass(frozen=True, slots=True)
class Left:
    what: str
    billed: bool
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}: {'billed' if self.billed else 'free'}; {self.remedy}"


def find_leftovers(client: Client, settings: InfraSettings) -> tuple[list[Left], list[str]]:
    """What was found, and a line for each kind that could not be looked for."""
    left: list[Left] = []
    unknown = []
    for kind, find in _KINDS.items():
        try:
            left.extend(find(client, settings))
        except ERRORS as error:
            unknown.append(f"could not look for {kind}: {one_line(error)}")
    return left, unknown


def _cluster(client: Client, settings: InfraSettings) -> Iterator[Left]:
    try:
        client("eks").describe_cluster(name=settings.name)
    except ClientError as error:
        if error_code(error) in _GONE:
            return
        raise
    remedy = f"aws eks delete-cluster --name {settings.name} --region {settings.region}"
    yield Left(f"EKS cluster {settings.name}", True, remedy)


def _file_systems(client: Client, settings: InfraSettings) -> Iterator[Left]:
    """Such as one that an update has replaced: it is kept, whatever the deployment's lifetime."""
    for page in client("fsx").get_paginator("describe_file_systems").paginate():
        for fs in page["FileSystems"]:
            tags = {tag["Key"]: tag["Value"] for tag in fs.get("Tags", [])}
            if settings.name not in (tags.get(DEPLOYMENT_TAG), tags.get("Name")):
                continue
            name = fs["FileSystemId"]
            yield Left(
                f"file system {name} ({fs['StorageCapacity']} GiB)",
                True,
                f"aws fsx delete-file-system --file-system-id {name} --region {settings.region}",
            )


def _instances(client: Client, settings: InfraSettings) -> Iterator[Left]:
    alive = ["pending", "running", "stopping", "stopped"]
    states = {"Name": "instance-state-name", "Values": alive}
    for instance_id, instance in _ec2(client, settings, "instances", states):
        yield Left(
            f"instance {instance_id} ({instance['InstanceType']}, {instance['State']['Name']})",
            True,
            f"aws ec2 terminate-instances --instance-ids {instance_id} --region {settings.region}",
        )


def _volumes(client: Client, settings: InfraSettings) -> Iterator[Left]:
    states = {"Name": "status", "Values": ["available", "in-use"]}
    for volume_id, volume in _ec2(client, settings, "volumes", states):
        yield Left(
            f"EBS volume {volume_id} ({volume['Size']} GiB)",
            True,
            f"aws ec2 delete-volume --volume-id {volume_id} --region {settings.region}",
        )


def _ec2(
    client: Client, settings: InfraSettings, kind: str, states: dict[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Tagged by our stacks, or by Kubernetes for one of its own."""
    found: dict[str, dict[str, Any]] = {}
    for key, value in (
        (DEPLOYMENT_TAG, settings.name),
        (f"kubernetes.io/cluster/{settings.name}", "owned"),
    ):
        filters = [states, {"Name": f"tag:{key}", "Values": [value]}]
        for page in client("ec2").get_paginator(f"describe_{kind}").paginate(Filters=filters):
            if kind == "volumes":
                found |= {volume["VolumeId"]: volume for volume in page["Volumes"]}
            else:
                instances = [i for r in page["Reservations"] for i in r["Instances"]]
                found |= {instance["InstanceId"]: instance for instance in instances}
    yield from sorted(found.items())


def _reservations(client: Client, settings: InfraSettings) -> Iterator[Left]:
    """Not part of any stack: whoever bought capacity pays for it, used or not."""
    wanted = []
    for group in settings.node_groups.values():
        match group.capacity:
            case OnDemand():
                continue
            case capacity if capacity.reservation_id:
                wanted.append(capacity.reservation_id)
            case capacity:
                arn = getattr(capacity, "reservation_group_arn", None)
                remedy = "cancel those that nobody needs"
                yield Left(f"capacity reservations of group {arn}", True, remedy)
    if not wanted:
        return
    answer = client("ec2").describe_capacity_reservations(CapacityReservationIds=wanted)
    for found in answer["CapacityReservations"]:
        if found["State"] not in ("active", "pending", "scheduled"):
            continue
        name = found["CapacityReservationId"]
        block = found.get("ReservationType") == "capacity-block"
        cancel = (
            f"aws ec2 cancel-capacity-reservation --capacity-reservation-id {name} "
            f"--region {settings.region}"
        )
        yield Left(
            f"capacity {'block' if block else 'reservation'} {name} "
            f"({found['TotalInstanceCount']} x {found['InstanceType']}, {found['State']})",
            True,
            "paid in advance, it ends by itself" if block else cancel,
        )


def _repositories(client: Client, settings: InfraSettings) -> Iterator[Left]:
    images = [settings.image] + ([settings.node_repair.image] if settings.node_repair else [])
    for name in (image.repository for image in images):
        try:
            client("ecr").describe_repositories(repositoryNames=[name])
        except ClientError as error:
            if error_code(error) in _GONE:
                continue
            raise
        remedy = f"aws ecr delete-repository --force --repository-name {name}"
        yield Left(f"ECR repository {name}", True, f"{remedy} --region {settings.region}")


def _keys(client: Client, settings: InfraSettings) -> Iterator[Left]:
    pages = client("resourcegroupstaggingapi").get_paginator("get_resources")
    tag = {"Key": DEPLOYMENT_TAG, "Values": [settings.name]}
    for page in pages.paginate(TagFilters=[tag], ResourceTypeFilters=["kms:key"]):
        for resource in page["ResourceTagMappingList"]:
            arn = resource["ResourceARN"]
            key = client("kms").describe_key(KeyId=arn)["KeyMetadata"]
            what = f"KMS key {key['KeyId']}"
            if key["KeyState"] == "PendingDeletion":
                yield Left(what, False, f"deletes itself on {key['DeletionDate']:%Y-%m-%d}")
            else:
                remedy = f"aws kms schedule-key-deletion --pending-window-in-days 7 --key-id {arn}"
                yield Left(what, True, f"{remedy} --region {settings.region}")


def _log_groups(client: Client, settings: InfraSettings) -> Iterator[Left]:
    logs = client("logs").get_paginator("describe_log_groups")
    for prefix in ("/aws/eks/{}/", "/aws/vpc/{}/", "/aws/lambda/{}-"):
        for page in logs.paginate(logGroupNamePrefix=prefix.format(settings.name)):
            for name in (group["logGroupName"] for group in page["logGroups"]):
                remedy = f"aws logs delete-log-group --log-group-name {name}"
                yield Left(f"log group {name}", True, f"{remedy} --region {settings.region}")


def _buckets(client: Client, settings: InfraSettings) -> Iterator[Left]:
    if bucket := settings.storage.data_repository:
        yield Left(f"data repository {bucket}", True, "yours: it holds what was exported to it")
    name = f"cdk-{BOOTSTRAP_QUALIFIER}-assets-{settings.account}-{settings.region}"
    try:
        client("s3").head_bucket(Bucket=name, ExpectedBucketOwner=settings.account)
    except ClientError as error:
        if error_code(error) in _GONE:
            return
        raise
    yield Left(f"bucket {name}", True, "templates of every CDK app of this account; keep it")


_KINDS: dict[str, Callable[[Client, InfraSettings], Iterator[Left]]] = {
    "instances": _instances,
    "cluster": _cluster,
    "file systems": _file_systems,
    "capacity reservations": _reservations,
    "EBS volumes": _volumes,
    "repositories": _repositories,
    "keys": _keys,
    "log groups": _log_groups,
    "buckets": _buckets,
}
