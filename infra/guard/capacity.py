"""Whether a group's template asks EC2 for what its deployment file says it has."""

from collections.abc import Iterator

from infra.guard.view import Resource, Templates
from infra.node_groups import CapacityBlock, NodeGroup, OnDemand, Reservation


def capacity_problems(template: Resource, group: NodeGroup, templates: Templates) -> Iterator[str]:
    """Another type, the wrong market, a placement group that a reservation was not made in."""
    data = template.properties["LaunchTemplateData"]
    if data.get("InstanceType") != group.instance_type:
        yield f"starts {data.get('InstanceType')}, not the {group.instance_type} of the file"
    yield from _placement(template, group)
    market = data.get("InstanceMarketOptions", {}).get("MarketType")
    target = data.get("CapacityReservationSpecification", {}).get("CapacityReservationTarget")
    if isinstance(group.capacity, CapacityBlock):
        if market != "capacity-block":
            yield "does not say MarketType capacity-block, without which EC2 starts nothing"
        ends = templates.of_kind("AWS::AutoScaling::ScheduledAction")
        if not any(a.stack == template.stack and a.properties.get("MaxSize") == 0 for a in ends):
            yield "nothing empties the group before EC2 ends its block under the jobs"
    if not isinstance(group.capacity, OnDemand) and not target:
        yield "names no reservation, so it would be billed beside the reserved capacity"


def _placement(template: Resource, group: NodeGroup) -> Iterator[str]:
    placement = template.properties["LaunchTemplateData"].get("Placement")
    if isinstance(group.capacity, OnDemand):
        return
    own = group.capacity.placement_group if isinstance(group.capacity, Reservation) else None
    if placement is None:
        if own is not None:
            yield f"lacks the placement group {own!r}, which its reservation was made in"
    elif own is None or placement != {"GroupName": own}:
        yield (
            "has a placement group in which its reservation was not made, so no instance would "
            "ever start; remove it (terraform-aws-eks#3730)"
        )
