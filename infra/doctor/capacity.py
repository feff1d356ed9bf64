"""Whether EC2 can give the nodes: types offered in their zones, and what is reserved.

Not covered: on-demand capacity, of which EC2 says only at launch whether it has any.
"""

from collections.abc import Iterable, Sequence

from botocore.exceptions import ClientError

from infra.aws import Clients, error_code
from infra.doctor.case import Case
from infra.doctor.dates import OVER, is_over
from infra.doctor.findings import Finding, error, ok, softened
from infra.doctor.lookups import all_pages, running_nodes
from infra.doctor.reservations import Facts, judge_block, judge_group, judge_reservation
from infra.node_groups import CapacityBlock, OnDemand, Reservation
from infra.settings import InfraSettings

OFFERINGS = "instance type"


def check_offerings(case: Case) -> list[Finding]:
    settings = case.settings
    types = sorted({group.instance_type for group in settings.node_groups.values()})
    system = settings.system_nodes.instance_type
    offers = all_pages(
        case.clients("ec2"),
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": sorted({*types, system})}],
    )
    zones = [(offer["InstanceType"], offer["Location"]) for offer in offers]
    return [
        *judge_offerings(types, settings, zones),
        judge_system_type(settings, {zone for offered, zone in zones if offered == system}),
    ]


def judge_offerings(
    types: Iterable[str], settings: InfraSettings, offers: Iterable[tuple[str, str]]
) -> list[Finding]:
    """``offers`` are pairs of an instance type and a zone that has it."""
    zones_of: dict[str, list[str]] = {}
    for instance_type, zone in sorted(offers):
        zones_of.setdefault(instance_type, []).append(zone)
    findings = []
    for instance_type in types:
        zones = zones_of.get(instance_type, [])
        if settings.training_zone in zones:
            what = f"{instance_type} is offered in {settings.training_zone}"
            findings.append(ok(OFFERINGS, what, ", ".join(zones)))
            continue
        remedy = (
            f"set training_zone to one of: {', '.join(zones)}"
            if zones
            else "choose another region: none of the zones of this one has it"
        )
        what = f"{instance_type} is not offered in {settings.training_zone}"
        findings.append(error(OFFERINGS, what, ", ".join(zones) or "no zone", remedy))
    return findings


def judge_system_type(settings: InfraSettings, offered_in: set[str]) -> Finding:
    """System nodes are spread over both zones, so both must have their type."""
    system, zones = settings.system_nodes.instance_type, ", ".join(sorted(offered_in)) or "no zone"
    wanted = (settings.training_zone, settings.second_zone)
    if missing := [zone for zone in wanted if zone not in offered_in]:
        what = f"{system} of the system nodes is not offered in {' and '.join(missing)}"
        remedy = "set system_nodes.instance_type to one that both zones have, such as m6i.xlarge"
        return error(OFFERINGS, what, zones, remedy)
    return ok(OFFERINGS, f"{system} of the system nodes is offered in both zones", zones)


def check_reservations(case: Case) -> list[Finding]:
    """Nothing for a group that runs on demand."""
    clients, zone = case.clients, case.settings.training_zone
    findings: list[Finding] = []
    for name, group in case.settings.node_groups.items():
        match group.capacity:
            case OnDemand():
                continue
            case CapacityBlock(reservation_id=reservation_id) as block:
                facts = _described(clients, [reservation_id])
                judged = judge_block(name, group, block, facts, zone=zone, now=case.now)
                findings += softened(judged, OVER) if is_over(case, name) else judged
            case Reservation(reservation_id=str(reservation_id)):
                facts = _described(clients, [reservation_id])
                own = running_nodes(clients, case.settings, name)
                findings += judge_reservation(name, group, facts, zone=zone, own=own)
            case Reservation(reservation_group_arn=str(arn)):
                facts = _described(clients, _members(clients, arn))
                own = running_nodes(clients, case.settings, name)
                findings += judge_group(name, group, facts, zone=zone, own=own, arn=arn)
    return findings


def _members(clients: Clients, arn: str) -> list[str]:
    """Ids of the reservations in a resource group; none where there is no such group."""
    try:
        found = all_pages(
            clients("resource-groups"), "list_group_resources", "ResourceIdentifiers", Group=arn
        )
    except ClientError as problem:
        if error_code(problem) != "NotFoundException":
            raise
        return []
    arns = [member["ResourceArn"] for member in found]
    return [arn.rsplit("/", 1)[-1] for arn in arns if ":capacity-reservation/" in arn]


def _described(clients: Clients, ids: Sequence[str]) -> list[Facts]:
    if not ids:
        return []
    try:
        answer = clients("ec2").describe_capacity_reservations(CapacityReservationIds=list(ids))
    except ClientError as problem:
        if not error_code(problem).startswith("InvalidCapacityReservationId"):
            raise
        return []
    found: list[Facts] = answer["CapacityReservations"]
    return found
