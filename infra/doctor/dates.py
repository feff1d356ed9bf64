"""Dates of Capacity Blocks against the clock, whatever EC2 says of the blocks.

Auto Scaling refuses a date in the past, and CloudFormation sends a date again with
whatever else changes of its action. So a date that has passed is harmless only where
the deployed template has the very same action, which no deploy then sends.
"""

from collections.abc import Sequence

from infra import names
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok, warning
from infra.doctor.lookups import deployed_resources
from infra.doctor.reservations import when
from infra.node_groups import CapacityBlock
from infra.schedule import Resize, planned_resizes

DATES = "block dates"

OVER = "over: the group stays empty"


def check_dates(case: Case) -> list[Finding]:
    """Nothing for a group that is of no block."""
    return [
        judge_dates(case, name, group.capacity, sent_too_late(case, name))
        for name, group in case.settings.node_groups.items()
        if isinstance(group.capacity, CapacityBlock)
    ]


def judge_dates(case: Case, name: str, block: CapacityBlock, too_late: Sequence[Resize]) -> Finding:
    """``too_late`` are the actions in the past that a deploy would send."""
    key = f"node_groups.{name}.capacity"
    if block.empty_at <= case.now:
        value = f"ends_at {when(block.ends_at)}, nodes must leave by {when(block.empty_at)}"
        buy = f"buy another block and name it in {key}"
        if not too_late:
            return warning(DATES, f"{name}: {OVER}", value, f"to go on {buy}")
        what = f"{name}: the block is over, or about to be, and a deploy would send its dates"
        remedy = f"{buy}; or, if the group exists, set its dates and number of nodes back"
        return error(DATES, what, value, remedy)
    if block.starts_at and too_late:
        what = f"{name}: starts_at is in the past, and Auto Scaling refuses such a date"
        remedy = f"remove {key}.starts_at: without it the nodes start at once"
        return error(DATES, what, when(block.starts_at), remedy)
    return ok(DATES, f"{name}: the block is still to be used", f"until {when(block.empty_at)}")


def is_over(case: Case, name: str) -> bool:
    """Whether the group's block has ended, and a deploy leaves the group as it is: empty."""
    block = case.settings.node_groups[name].capacity
    if not isinstance(block, CapacityBlock) or block.empty_at > case.now:
        return False
    return not sent_too_late(case, name)


def sent_too_late(case: Case, name: str) -> list[Resize]:
    """Actions of the past that a deploy would send, since none such is deployed."""
    past = [
        each for each in planned_resizes(case.settings.node_groups[name]) if each.at <= case.now
    ]
    if not past:
        return []
    stack = names.stack_name(case.settings, names.nodes(name))
    actions = deployed_resources(case.clients, stack).get("AWS::AutoScaling::ScheduledAction", ())
    deployed = {(each.get("StartTime"), int(each.get("MaxSize", -1))) for each in actions}
    return [each for each in past if (each.timestamp, each.num_nodes) not in deployed]
