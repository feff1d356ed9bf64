"""Nodes and instances as tests need them: well unless told otherwise, at noon."""

from datetime import UTC, datetime, timedelta

from node_repair.model import ACCELERATOR, READY, Condition, Instance, Node
from node_repair.settings import RepairSettings

NOON = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
GROUP = "train-p5"

SETTINGS = RepairSettings(
    cluster="train",
    region="us-east-1",
    auto_scaling_groups=(GROUP, "train-p4de"),
    mode="act",
    accelerator_seconds=120,
    not_ready_seconds=300,
    boot_seconds=900,
    max_at_once=1,
    max_per_hour=3,
)


def ago(seconds: float) -> datetime:
    return NOON - timedelta(seconds=seconds)


def node(
    number: int,
    *,
    ready: str = "True",
    ready_for: float = 7200,
    accelerator: str = "True",
    accelerator_for: float = 7200,
    age: float = 7200,
    unschedulable: bool = False,
    repair_started: datetime | None = None,
    kept: bool = False,
    out_of_service: bool = False,
) -> Node:
    return Node(
        name=f"node-{number}",
        instance_id=f"i-{number:017x}",
        created=ago(age),
        unschedulable=unschedulable,
        repair_started=repair_started,
        kept=kept,
        out_of_service=out_of_service,
        conditions={
            READY: Condition(ready, ago(ready_for)),
            ACCELERATOR: Condition(accelerator, ago(accelerator_for), "NvidiaXID79Error"),
        },
    )


def instances(
    *nodes: Node, state: str = "running", group: str | None = GROUP
) -> dict[str, Instance]:
    return {n.instance_id: Instance(n.instance_id, state, group) for n in nodes}
