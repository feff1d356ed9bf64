"""What the cluster is: the part of a deployment file that the CDK stacks read.

Every name that a chart needs later (namespace, claim, repository, labels) is
chosen here, and the stacks create it under that name: names flow down.
"""

import re
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from infra.fields import DnsLabel, GroupName, PositiveInt, Settings
from infra.network_settings import NetworkSettings
from infra.node_groups import NodeGroup, Reservation, SystemNodes

OLDEST_KUBERNETES_MINOR = 34
NEWEST_KUBERNETES_MINOR = 36

Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
Region = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d$")]
PrincipalArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/.+$")]
RepositoryName = Annotated[str, Field(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*$", max_length=256)]
Bucket = Annotated[
    str, Field(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](/[A-Za-z0-9._/-]*)?$")
]


class Storage(Settings):
    deployment_type: Literal["SCRATCH_2", "PERSISTENT_2"] = "SCRATCH_2"
    """SCRATCH_2 keeps no copy: a lost file server loses its data. PERSISTENT_2 replaces it."""

    size_gib: PositiveInt = 1200
    """FSx for Lustre on SSD comes in 1,200 GiB or multiples of 2,400 GiB; it can grow later."""

    throughput_mbps_per_tib: Literal[125, 250, 500, 1000] | None = None
    """MB/s for each TiB, of PERSISTENT_2 alone; SCRATCH_2 always has 200."""

    data_repository: Bucket | None = None
    """A bucket or prefix, ``s3://bucket/prefix``, of the same region that mirrors the file
    system both ways. What is deleted in one is deleted in the other: turn on versioning there.
    Deleting the stacks deletes nothing in it. Before the first run on a large one, see
    docs/assumptions.md about who owns its files."""

    claim: DnsLabel = "fsx"
    """Name of the PersistentVolumeClaim that every run mounts."""

    @field_validator("size_gib")
    @classmethod
    def _is_a_size_that_fsx_sells(cls, value: int) -> int:
        if value != 1200 and value % 2400:
            raise ValueError(f"{value} GiB is not sold; take 1200 or a multiple of 2400")
        return value

    @model_validator(mode="after")
    def _has_throughput_if_persistent(self) -> Self:
        persistent = self.deployment_type == "PERSISTENT_2"
        if persistent and self.throughput_mbps_per_tib is None:
            raise ValueError(
                "deployment_type 'PERSISTENT_2' needs throughput_mbps_per_tib; "
                "add 125, 250, 500 or 1000"
            )
        if not persistent and self.throughput_mbps_per_tib is not None:
            raise ValueError(
                f"throughput_mbps_per_tib {self.throughput_mbps_per_tib} cannot be chosen for "
                "'SCRATCH_2'; remove it or take deployment_type 'PERSISTENT_2'"
            )
        return self


class PinnedImage(Settings):
    repository: RepositoryName
    """ECR repository; the registry stack creates it under this name."""

    tag: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]

    @field_validator("tag")
    @classmethod
    def _is_pinned(cls, value: str) -> str:
        if value == "latest":
            raise ValueError("'latest' changes under a running job; give the tag that was built")
        return value


class Image(PinnedImage):
    nvrx_version: Literal["0.4.1", "0.6.0", "0.7.0"]
    """NVIDIA Resiliency Extension in the image; it decides which launcher flags exist."""


class NodeRepair(Settings):
    """A controller that replaces broken training nodes, which EKS does not do for ours."""

    image: PinnedImage
    mode: Literal["dry-run", "act"]
    """``dry-run`` only says what it would do."""

    accelerator_seconds: PositiveInt = 600
    """How long the monitoring agent must have called the GPUs or the fabric broken; EKS waits
    as long for managed nodes."""

    not_ready_seconds: PositiveInt = 300
    """How long a node must have been silent."""

    max_at_once: PositiveInt = 1
    """Nodes that may be under repair at the same time, over all groups."""

    max_per_hour: PositiveInt = 3
    """Beyond it something else is wrong, and a human should look."""


class InfraSettings(Settings):
    name: DnsLabel
    """Names the cluster and prefixes every stack."""

    account: Annotated[str, Field(pattern=r"^\d{12}$")]
    region: Region
    training_zone: Zone
    """Zone of the GPU nodes and of the file system: EFA and Lustre do not cross zones well."""

    second_zone: Zone
    kubernetes_version: str
    lifetime: Literal["ephemeral", "durable"]
    """``durable``: no stack can be deleted, and file system, images and key outlive theirs.
    ``ephemeral``: deleting the stacks deletes everything, checkpoints and images included."""

    network: NetworkSettings = NetworkSettings()
    node_groups: Annotated[dict[GroupName, NodeGroup], Field(min_length=1)]
    """Training nodes, by the name that a run chooses its group by."""

    system_nodes: SystemNodes = SystemNodes()
    storage: Storage = Storage()
    image: Image
    node_repair: NodeRepair | None = None
    namespace: DnsLabel
    admin_arns: Annotated[tuple[PrincipalArn, ...], Field(min_length=1)]
    """IAM roles or users with full rights in the cluster. Nobody else can use kubectl."""

    submitter_arns: tuple[PrincipalArn, ...] = ()
    """IAM roles or users who may run jobs: the right to edit, in ``namespace`` alone."""

    kubectl_provider: bool = True
    """Let a stack install device plugins and the claim; otherwise ``kubectl`` and ``helm`` do."""

    @field_validator("kubernetes_version")
    @classmethod
    def _is_supported(cls, value: str) -> str:
        match = re.fullmatch(r"1\.(\d+)", value)
        oldest, newest = OLDEST_KUBERNETES_MINOR, NEWEST_KUBERNETES_MINOR
        if not match or not oldest <= int(match[1]) <= newest:
            raise ValueError(
                f"Kubernetes {value!r} is not supported; take 1.{oldest} to 1.{newest}, in quotes"
            )
        return value

    @field_validator("namespace")
    @classmethod
    def _is_its_own_namespace(cls, value: str) -> str:
        if value in ("default", "node-repair") or value.startswith("kube-"):
            raise ValueError(
                f"namespace {value!r} belongs to others, and the platform stack would delete "
                "it with everything in it; choose a name of your own"
            )
        return value

    @model_validator(mode="after")
    def _zones_agree(self) -> Self:
        for key in ("training_zone", "second_zone"):
            if getattr(self, key)[:-1] != self.region:
                raise ValueError(
                    f"{key} {getattr(self, key)!r} is not in region {self.region!r}; "
                    "name a zone of that region"
                )
        if self.training_zone == self.second_zone:
            raise ValueError(
                f"training_zone and second_zone are both {self.training_zone!r}; "
                "the control plane needs two different zones"
            )
        return self

    @model_validator(mode="after")
    def _reservations_are_in_the_region(self) -> Self:
        for name, group in self.node_groups.items():
            match group.capacity:
                case Reservation(reservation_group_arn=str(arn)) if arn.split(":")[3:5] != [
                    self.region,
                    self.account,
                ]:
                    raise ValueError(
                        f"node_groups.{name}.capacity.reservation_group_arn {arn!r} is not of "
                        f"region {self.region} and account {self.account}; name one that is"
                    )
        return self

    @model_validator(mode="after")
    def _principals_have_one_right(self) -> Self:
        arns = [*self.admin_arns, *self.submitter_arns]
        if twice := sorted({arn for arn in arns if arns.count(arn) > 1}):
            raise ValueError(
                f"admin_arns and submitter_arns name {twice[0]!r} twice; EKS takes one entry for "
                "each principal, so leave it in one place"
            )
        return self

    @model_validator(mode="after")
    def _repositories_differ(self) -> Self:
        if self.node_repair and self.node_repair.image.repository == self.image.repository:
            raise ValueError(
                f"image.repository and node_repair.image.repository are both "
                f"{self.image.repository!r}; give each image a repository of its own"
            )
        return self

    @property
    def image_uri(self) -> str:
        return self.uri_of(self.image)

    def uri_of(self, image: PinnedImage) -> str:
        """What a pod pulls the image by."""
        registry = f"{self.account}.dkr.ecr.{self.region}.amazonaws.com"
        return f"{registry}/{image.repository}:{image.tag}"

    def auto_scaling_group_name(self, group: str) -> str:
        """The name under which the Auto Scaling group of ``group`` is created."""
        return f"{self.name}-{group}"
