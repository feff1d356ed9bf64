"""Which rank on another node stands for the pod that receives a rank's shard.

Pure. Nodes in the order of their ranks form a ring, and each one's shards go to the next, so
that the loss of any one node takes no shard's last copy along.

Not covered: the loss of two neighbours in the ring at once, which the durable tier covers.
"""

from collections.abc import Sequence


def ring(nodes: Sequence[str]) -> tuple[int, ...]:
    """By rank, the rank whose pod receives its shard; empty where there is no other node.

    The ranks of a node are spread evenly over those of the next.

    Args:
        nodes: The node of each rank.
    """
    ranks_of: dict[str, list[int]] = {}
    for rank, node in enumerate(nodes):
        ranks_of.setdefault(node, []).append(rank)
    if len(ranks_of) < 2:
        return ()
    groups = list(ranks_of.values())
    target = [0] * len(nodes)
    for senders, receivers in zip(groups, [*groups[1:], groups[0]], strict=True):
        for place, rank in enumerate(senders):
            target[rank] = receivers[place % len(receivers)]
    return tuple(target)


def received_on(node: str, nodes: Sequence[str]) -> tuple[int, ...]:
    """The coordinates whose shards the pod on ``node`` receives, in order."""
    return tuple(rank for rank, target in enumerate(ring(nodes)) if nodes[target] == node)
