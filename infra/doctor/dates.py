"""Dates of Capacity Blocks against the clock, whatever EC2 says of the blocks."""

from datetime import datetime

from infra.aws import Clients
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok
from infra.doctor.reservations import when
from infra.node_groups import CapacityBlock

DATES = "block dates"


def check_dates(case: Case) -> list[Finding]:
    """Nothing for a group that is of no block."""
    findings = []
    for name, group in case.settings.node_groups.items():
        block = group.capacity
        if not isinstance(block, CapacityBlock):
            continue
        # Only a start in the past makes a difference to a group that exists.
        past = block.starts_at is not None and block.starts_at <= case.now
        scaling_group = case.settings.auto_scaling_group_name(name)
        exists = past and _exists(case.clients, scaling_group)
        findings.append(judge_dates(name, block, case.now, group_exists=exists))
    return findings


def judge_dates(name: str, block: CapacityBlock, now: datetime, *, group_exists: bool) -> Finding:
    """A group that exists keeps its schedule as it is: no deploy sends the start again."""
    key = f"node_groups.{name}.capacity"
    if block.empty_at <= now:
        what = f"{name}: the block is over, or about to be"
        value = f"ends_at {when(block.ends_at)}, nodes must leave by {when(block.empty_at)}"
        return error(DATES, what, value, f"buy another block and name it in {key}")
    if block.starts_at and block.starts_at <= now and not group_exists:
        what = f"{name}: starts_at is in the past, and Auto Scaling refuses such a date"
        remedy = f"remove {key}.starts_at: without it the nodes start at once"
        return error(DATES, what, when(block.starts_at), remedy)
    return ok(DATES, f"{name}: the block is still to be used", f"until {when(block.empty_at)}")


def _exists(clients: Clients, scaling_group: str) -> bool:
    answer = clients("autoscaling").describe_auto_scaling_groups(
        AutoScalingGroupNames=[scaling_group]
    )
    return bool(answer["AutoScalingGroups"])
