"""Groups of nodes: what each is made of, how many, and where its capacity comes from."""

import difflib
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, BeforeValidator, Field, field_validator, model_validator

from infra.efa import Layout, plan_interfaces
from infra.fields import Settings
from infra.hardware import CATALOG, InstanceType

MOST_NODES = 1000
SMALLEST_ROOT_GIB = 50
LARGEST_ROOT_GIB = 16_384


def _not_a_number(value: object) -> object:
    """A number would be taken for seconds since 1970."""
    if isinstance(value, int | float):
        raise ValueError(f"{value} is no moment; write one such as '2027-01-13T11:30:00Z'")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_not_a_number)]
ReservationId = Annotated[str, Field(pattern=r"^cr-[0-9a-f]{17}$")]
ReservationGroupArn = Annotated[
    str, Field(pattern=r"^arn:aws[a-z-]*:resource-groups:[a-z0-9-]+:\d{12}:group/.+$")
]

PlacementGroupName = Annotated[str, Field(pattern=r"^[!-~]([ -~]{0,253}[!-~])?$")]

SYSTEM_TYPE = r"^([mr]5|[mrc](5a|6i|6a|7i|7a|8i|8a))\.(large|[248]?xlarge)$"
"""General types with an x86 processor, all of which EC2 has. Neither Arm nor burstable ones."""

BLOCK_DRAIN = timedelta(minutes=45)
"""EC2 ends the instances of a block 30 minutes before it does; jobs save and leave before that."""


class OnDemand(Settings):
    kind: Literal["on-demand"]
    placement_group: bool = True
    """Pack the nodes close together. For on-demand capacity it costs nothing but choice."""


class Reservation(Settings):
    kind: Literal["reservation"]
    reservation_id: ReservationId | None = None
    reservation_group_arn: ReservationGroupArn | None = None
    """A resource group of reservations, instead of one reservation."""

    placement_group: PlacementGroupName | None = None
    """The cluster placement group that the reservation was made in; with another, or with one
    where the reservation has none, no instance ever starts."""

    @model_validator(mode="after")
    def _names_one_target(self) -> Self:
        if (self.reservation_id is None) == (self.reservation_group_arn is None):
            raise ValueError(
                "a reservation is named by reservation_id or by reservation_group_arn; "
                "give exactly one of the two"
            )
        return self


class CapacityBlock(Settings):
    kind: Literal["capacity-block"]
    reservation_id: ReservationId
    starts_at: Moment | None = None
    """When the block begins: all nodes start then. Leave it out once the block is running, since
    Auto Scaling takes no schedule in the past."""

    ends_at: Moment
    """When the block ends: the group is empty 45 minutes before, 15 before EC2 would end it."""

    @model_validator(mode="after")
    def _lasts_long_enough(self) -> Self:
        if self.starts_at and self.ends_at - self.starts_at <= 2 * BLOCK_DRAIN:
            raise ValueError(
                f"ends_at {self.ends_at.isoformat()} is less than 90 minutes after starts_at "
                f"{self.starts_at.isoformat()}; copy both from the reservation"
            )
        return self

    @property
    def empty_at(self) -> datetime:
        """When the last node must be gone, in UTC."""
        return self.ends_at.astimezone(UTC) - BLOCK_DRAIN


Capacity = Annotated[OnDemand | Reservation | CapacityBlock, Field(discriminator="kind")]


class NodeGroup(Settings):
    instance_type: str
    num_nodes: Annotated[int, Field(strict=True, gt=0, le=MOST_NODES)]
    """What runs may use."""

    spare_nodes: Annotated[int, Field(strict=True, ge=0, le=MOST_NODES)] = 0
    """Started with the others, used by no run: the place of a failed node is free at once."""

    capacity: Capacity
    efa_layout: Layout = "ena-primary"
    """Which device carries IP on card 0: an ENA interface (today's guide) or the EFA itself."""

    root_volume_gib: Annotated[
        int, Field(strict=True, ge=SMALLEST_ROOT_GIB, le=LARGEST_ROOT_GIB)
    ] = 500
    """Where a type has local disks, images and scratch go there and not on this volume."""

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

    @property
    def all_nodes(self) -> int:
        """Nodes that run, spares included."""
        return self.num_nodes + self.spare_nodes


class SystemNodes(Settings):
    """A managed group for what is not training: DNS, storage driver, node repair."""

    instance_type: Annotated[str, Field(json_schema_extra={"pattern": SYSTEM_TYPE})] = "m7i.xlarge"
    num_nodes: Annotated[int, Field(strict=True, gt=0, le=100)] = 2

    @field_validator("instance_type")
    @classmethod
    def _is_a_general_x86_type(cls, value: str) -> str:
        if not re.fullmatch(SYSTEM_TYPE, value):
            raise ValueError(
                f"{value!r} is none for system nodes; take an x86 one of the families m, c or r, "
                "large to 8xlarge, such as 'm7i.xlarge'"
            )
        return value
