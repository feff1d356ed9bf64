"""What a pass sees and what it may do: values, without any call to Kubernetes or AWS."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

READY = "Ready"
ACCELERATOR = "AcceleratedHardwareReady"
"""Set by the EKS node monitoring agent, from driver errors of the GPUs and counters of EFA."""


class Kind(StrEnum):
    TAINT = "taint"
    UNCORDON = "uncordon"
    FORGET = "forget"
    CORDON = "cordon"
    RECORD = "record"
    TERMINATE = "terminate"


@dataclass(frozen=True, slots=True)
class Condition:
    status: str
    since: datetime
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    name: str
    instance_id: str
    created: datetime
    unschedulable: bool = False
    repair_started: datetime | None = None
    """From our annotation. It says that we cordoned the node, as long as it is unschedulable."""

    kept: bool = False
    """A human asked that its instance be left alone."""

    out_of_service: bool = False
    conditions: Mapping[str, Condition]

    @property
    def cordoned_by_us(self) -> datetime | None:
        return self.repair_started if self.unschedulable else None


@dataclass(frozen=True, slots=True)
class Instance:
    id: str
    state: str
    group: str | None
    """Auto Scaling group. A terminated instance loses it, with all its tags, after a while."""


@dataclass(frozen=True, slots=True)
class Seen:
    nodes: tuple[Node, ...]
    instances: Mapping[str, Instance]
    """By id: all of the groups, and those of ``started`` and of nodes with our annotation that
    EC2 still knows. Any other one is gone."""

    started: Mapping[str, datetime]
    """The record: when the repair of an instance was started, by its id."""


@dataclass(frozen=True, slots=True)
class Action:
    kind: Kind
    instance_id: str
    node: str | None
    why: str


@dataclass(frozen=True, slots=True)
class Skip:
    node: str
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    actions: tuple[Action, ...]
    """In the order in which to do them; if one fails, those of the same instance must wait."""

    skipped: tuple[Skip, ...]
