"""What is wrong with a capacity reservation or a Capacity Block, from what EC2 says of it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from infra.doctor.findings import Finding, error, ok, warning
from infra.node_groups import CapacityBlock, NodeGroup, Reservation

RESERVATION = "reservation"
BLOCK = "capacity block"

Facts = Mapping[str, Any]
"""One capacity reservation, as EC2's DescribeCapacityReservations gives it. A block is one too."""


def when(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def judge_reservation(
    name: str, group: NodeGroup, found: Sequence[Facts], *, zone: str, own: Counter[str]
) -> list[Finding]:
    """``own`` are nodes of this group that run already, by the reservation that they take up."""
    if not found:
        return [_absent(RESERVATION, name, getattr(group.capacity, "reservation_id", None))]
    [facts] = found
    if facts.get("ReservationType") == "capacity-block":
        return [
            error(
                RESERVATION,
                f"{name}: the reservation is a Capacity Block",
                facts["CapacityReservationId"],
                f"set node_groups.{name}.capacity.kind to capacity-block, with its dates",
            )
        ]
    wrong = _mismatches(RESERVATION, name, group, facts, zone, states=("active",))
    wrong += _misplaced(name, group, facts)
    return wrong or [_enough(name, group, [facts], own), *_ending(name, facts)]


def judge_group(
    name: str,
    group: NodeGroup,
    members: Sequence[Facts],
    *,
    zone: str,
    own: Counter[str],
    arn: str,
) -> list[Finding]:
    """A resource group of reservations: those that fit must have room together."""
    fitting = [
        facts
        for facts in members
        if not _mismatches(RESERVATION, name, group, facts, zone, states=("active",))
        and not _misplaced(name, group, facts)
    ]
    if not fitting:
        return [
            error(
                RESERVATION,
                f"{name}: no active reservation for {group.instance_type} in {zone} in the group",
                f"{len(members)} reservations in {arn}",
                "add one to the resource group, or correct reservation_group_arn",
            )
        ]
    return [_enough(name, group, fitting, own)]


def judge_block(
    name: str,
    group: NodeGroup,
    block: CapacityBlock,
    found: Sequence[Facts],
    *,
    zone: str,
    now: datetime,
) -> list[Finding]:
    if not found:
        return [_absent(BLOCK, name, block.reservation_id)]
    [facts] = found
    if facts.get("ReservationType") != "capacity-block":
        return [
            error(
                BLOCK,
                f"{name}: the reservation is not a Capacity Block",
                facts["CapacityReservationId"],
                f"set node_groups.{name}.capacity.kind to reservation, without dates",
            )
        ]
    wrong = _mismatches(BLOCK, name, group, facts, zone, states=("active", "scheduled"))
    wrong += _wrong_dates(name, block, facts, now)
    if facts["TotalInstanceCount"] < group.all_nodes:
        wrong.append(_too_few(BLOCK, name, group, facts["TotalInstanceCount"]))
    dates = f"{when(facts['StartDate'])} to {when(facts['EndDate'])}, {facts['State']}"
    return wrong or [ok(BLOCK, f"{name}: holds {group.all_nodes} {group.instance_type}", dates)]


def _wrong_dates(name: str, block: CapacityBlock, facts: Facts, now: datetime) -> list[Finding]:
    """Against the block's own dates. What has passed is judged in ``dates``."""
    key = f"node_groups.{name}.capacity"
    starts, ends = facts["StartDate"], facts["EndDate"]
    findings = []
    if block.ends_at != ends:
        what = f"{name}: ends_at is not when the block ends"
        value = f"file {when(block.ends_at)}, EC2 {when(ends)}"
        findings.append(error(BLOCK, what, value, f'set {key}.ends_at to "{when(ends)}"'))
    if block.starts_at and block.starts_at > now and block.starts_at != starts:
        what = f"{name}: starts_at is not when the block starts"
        value = f"file {when(block.starts_at)}, EC2 {when(starts)}"
        findings.append(error(BLOCK, what, value, f'set {key}.starts_at to "{when(starts)}"'))
    elif block.starts_at is None and starts > now:
        what = f"{name}: the block has not begun, and without starts_at nodes are asked for at once"
        findings.append(
            error(BLOCK, what, when(starts), f'set {key}.starts_at to "{when(starts)}"')
        )
    return findings


def _mismatches(
    check: str, name: str, group: NodeGroup, facts: Facts, zone: str, *, states: tuple[str, ...]
) -> list[Finding]:
    """What does not fit: EC2 starts no instance of another type or in another zone."""
    reservation_id, key = facts["CapacityReservationId"], f"node_groups.{name}.capacity"
    findings = []
    if facts["State"] not in states:
        what = f"{name}: {reservation_id} is not {' or '.join(states)}"
        remedy = f"name another reservation in {key}.reservation_id"
        findings.append(error(check, what, facts["State"], remedy))
    for what, wanted, has in (
        ("instance type", group.instance_type, facts["InstanceType"]),
        ("zone", zone, facts["AvailabilityZone"]),
    ):
        if wanted != has:
            remedy = f"name another reservation, or correct the {what} in the file"
            value = f"file {wanted}, EC2 {has}"
            findings.append(
                error(check, f"{name}: {reservation_id} is for another {what}", value, remedy)
            )
    return findings


def _misplaced(name: str, group: NodeGroup, facts: Facts) -> list[Finding]:
    """A reservation made in a placement group starts instances of that one alone."""
    arn = facts.get("PlacementGroupArn")
    has = arn.rsplit("/", 1)[-1] if arn else None
    wants = group.capacity.placement_group if isinstance(group.capacity, Reservation) else None
    if has == wants:
        return []
    key = f"node_groups.{name}.capacity.placement_group"
    return [
        error(
            RESERVATION,
            f"{name}: {facts['CapacityReservationId']} is in another placement group, so no "
            "node would start",
            f"file {wants or 'none'}, EC2 {has or 'none'}",
            f"set {key} to {has}" if has else f"remove {key}",
        )
    ]


def _enough(name: str, group: NodeGroup, facts: Sequence[Facts], own: Counter[str]) -> Finding:
    running = sum(own[each["CapacityReservationId"]] for each in facts)
    available = sum(each["AvailableInstanceCount"] for each in facts) + running
    if available < group.all_nodes:
        return _too_few(RESERVATION, name, group, available)
    what = f"{name}: room for {group.all_nodes} {group.instance_type}"
    return ok(RESERVATION, what, f"{available} for this group, {running} of them running")


def _too_few(check: str, name: str, group: NodeGroup, has: int) -> Finding:
    return error(
        check,
        f"{name}: needs {group.all_nodes} {group.instance_type}, spares included",
        f"{has} reserved and free",
        f"lower node_groups.{name}.num_nodes or spare_nodes to {has} together, or reserve more",
    )


def _ending(name: str, facts: Facts) -> list[Finding]:
    if not (ends := facts.get("EndDate")):
        return []
    what = f"{name}: the reservation ends, and its nodes then compete for on-demand capacity"
    return [warning(RESERVATION, what, when(ends), "extend it, or have the runs end before")]


def _absent(check: str, name: str, reservation_id: str | None) -> Finding:
    return error(
        check,
        f"{name}: this account has no such reservation in this region",
        reservation_id,
        f"correct node_groups.{name}.capacity.reservation_id",
    )
