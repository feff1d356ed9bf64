"""What the cluster is: the part of a deployment file that the CDK stacks read.

Every name that a chart needs later (namespace, claim, repository, labels) is
chosen here, and the stacks create it under that name: names flow down.
"""

import difflib
import ipaddress
import re
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from infra.efa import Layout, plan_interfaces
from infra.hardware import CATALOG, InstanceType

OLDEST_KUBERNETES_MINOR = 34
NEWEST_KUBERNETES_MINOR = 36
LARGEST_VPC_PREFIX = 16
SMALLEST_VPC_PREFIX = 18

# Strict, because pydantic's own takes True for 1, and YAML reads an unquoted yes as True.
PositiveInt = Annotated[int, Field(strict=True, gt=0)]
DnsLabel = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=40)]
Zone = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]
ReservationId = Annotated[str, Field(pattern=r"^cr-[0-9a-f]{17}$")]
PrincipalArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::\d{12}:(role|user)/.+$")]


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class NetworkSettings(Settings):
    vpc_cidr: str = "10.0.0.0/16"
    service_cidr: str = "172.20.0.0/16"
    """Addresses of Kubernetes Services. The cluster and every node must be told the same."""

    public_endpoint_cidrs: tuple[str, ...] = ()
    """Who may reach the Kubernetes API from outside the VPC; nobody by default."""

    @field_validator("vpc_cidr", "service_cidr")
    @classmethod
    def _is_a_network(cls, value: str) -> str:
        try:
            ipaddress.IPv4Network(value)
        except ValueError as error:
            raise ValueError(f"{error}; give a network such as 10.0.0.0/16") from error
        return value

    @field_validator("public_endpoint_cidrs")
    @classmethod
    def _are_networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(cls._is_a_network(cidr) for cidr in value)

    @model_validator(mode="after")
    def _networks_fit(self) -> Self:
        vpc = ipaddress.IPv4Network(self.vpc_cidr)
        if not LARGEST_VPC_PREFIX <= vpc.prefixlen <= SMALLEST_VPC_PREFIX:
            raise ValueError(
                f"vpc_cidr {self.vpc_cidr!r} is a /{vpc.prefixlen}; take "
                f"/{LARGEST_VPC_PREFIX} to /{SMALLEST_VPC_PREFIX}, of which each private "
                "subnet gets a quarter"
            )
        if vpc.overlaps(ipaddress.IPv4Network(self.service_cidr)):
            raise ValueError(
                f"vpc_cidr {self.vpc_cidr!r} and service_cidr {self.service_cidr!r} overlap; "
                "give Services addresses that the VPC does not use"
            )
        return self


class OnDemand(Settings):
    kind: Literal["on-demand"]
    placement_group: bool = True
    """Pack the nodes close together; right for on-demand capacity."""


class Reservation(Settings):
    kind: Literal["reservation"]
    reservation_id: ReservationId
    placement_group: bool = False
    """Only if the reservation itself was made in this group; else no instance ever starts."""


class CapacityBlock(Settings):
    kind: Literal["capacity-block"]
    reservation_id: ReservationId


Capacity = Annotated[OnDemand | Reservation | CapacityBlock, Field(discriminator="kind")]


class GpuNodes(Settings):
    instance_type: str
    num_nodes: PositiveInt
    capacity: Capacity
    efa_layout: Layout = "ena-primary"
    """Which device carries IP on card 0: an ENA interface (today's guide) or the EFA itself."""

    root_volume_gib: PositiveInt = 500
    ami_id: Annotated[str, Field(pattern=r"^ami-[0-9a-f]{8,17}$")] | None = None
    """Pins the image. Without it each deploy takes the newest recommended one."""

    @field_validator("instance_type")
    @classmethod
    def _is_in_the_catalog(cls, value: str) -> str:
        if value not in CATALOG:
            nearest = difflib.get_close_matches(value, CATALOG, n=1)
            hint = f"did you mean {nearest[0]!r}? " if nearest else ""
            raise ValueError(
                f"instance type {value!r} is not in the catalog; {hint}known: {', '.join(CATALOG)}"
            )
        return value

    @model_validator(mode="after")
    def _has_this_layout(self) -> Self:
        plan_interfaces(self.hardware, self.efa_layout)
        return self

    @property
    def hardware(self) -> InstanceType:
        return CATALOG[self.instance_type]


class SystemNodes(Settings):
    instance_type: str = "m7i.xlarge"
    num_nodes: PositiveInt = 2


class Storage(Settings):
    size_gib: PositiveInt = 1200
    """FSx for Lustre SCRATCH_2 comes in 1,200 GiB or multiples of 2,400 GiB."""

    claim: DnsLabel = "fsx"
    """Name of the PersistentVolumeClaim that every run mounts."""

    @field_validator("size_gib")
    @classmethod
    def _is_a_size_that_fsx_sells(cls, value: int) -> int:
        if value != 1200 and value % 2400:
            raise ValueError(f"{value} GiB is not sold; take 1200 or a multiple of 2400")
        return value


class Image(Settings):
    repository: Annotated[str, Field(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*$")]
    tag: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$")]
    nvrx_version: Literal["0.4.1", "0.6.0", "0.7.0"]
    """NVIDIA Resiliency Extension in the image; it decides which launcher flags exist."""

    @field_validator("tag")
    @classmethod
    def _is_pinned(cls, value: str) -> str:
        if value == "latest":
            raise ValueError("'latest' changes under a running job; give the tag that was built")
        return value


class InfraSettings(Settings):
    name: DnsLabel
    """Names the cluster and prefixes every stack."""

    account: Annotated[str, Field(pattern=r"^\d{12}$")]
    region: str
    training_zone: Zone
    """Zone of the GPU nodes and of the file system: EFA and Lustre do not cross zones well."""

    second_zone: Zone
    kubernetes_version: str
    network: NetworkSettings = NetworkSettings()
    gpu_nodes: GpuNodes
    system_nodes: SystemNodes = SystemNodes()
    storage: Storage = Storage()
    image: Image
    namespace: DnsLabel
    admin_arns: tuple[PrincipalArn, ...] = ()
    """IAM roles or users with full rights in the cluster. Without any, nobody can use kubectl."""

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
        if value == "default" or value.startswith("kube-"):
            raise ValueError(
                f"namespace {value!r} belongs to Kubernetes, and the platform stack would delete "
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

    @property
    def image_uri(self) -> str:
        registry = f"{self.account}.dkr.ecr.{self.region}.amazonaws.com"
        return f"{registry}/{self.image.repository}:{self.image.tag}"
