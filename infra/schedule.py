"""How many nodes a group has, and when: at once, or between the dates of a Capacity Block.

EC2 starts no instance of a block outside of its dates, and ends what still runs 30
minutes before the block does, so a block's group grows and empties by the clock.
No clock is read here: dates that have passed are for whoever asks before a deploy.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from infra.node_groups import CapacityBlock, NodeGroup


@dataclass(frozen=True, slots=True)
class Resize:
    """At one moment, a group gets exactly so many nodes and may have no more."""

    name: str
    at: datetime
    num_nodes: int

    @property
    def timestamp(self) -> str:
        """As CloudFormation and Auto Scaling write a moment: UTC, whole seconds, a Z."""
        return self.at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def nodes_at_creation(nodes: NodeGroup) -> int | None:
    """What the group starts with; None before a block, whose nodes wait for its start."""
    if isinstance(nodes.capacity, CapacityBlock) and nodes.capacity.starts_at:
        return None
    return nodes.all_nodes


def planned_resizes(nodes: NodeGroup) -> tuple[Resize, ...]:
    """What happens by the clock, in order of time."""
    block = nodes.capacity
    if not isinstance(block, CapacityBlock):
        return ()
    # Without room for a node, neither a person nor node repair asks for one in an ended block.
    end = Resize("BlockEnds", block.empty_at, 0)
    if block.starts_at is None:
        return (end,)
    return (Resize("BlockStarts", block.starts_at, nodes.all_nodes), end)
