"""What EC2 refuses, or starts in vain, in the network interfaces of a launch template.

Each of these cost somebody a day; the problem names the report.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from infra.guard.view import Resource, Templates
from infra.hardware import InstanceType

HIGHEST_DEVICE_INDEX = 1
KINDS = ("interface", "efa", "efa-only")


def interface_problems(template: Resource, hardware: InstanceType) -> Iterator[str]:
    """Everything about the interfaces that the launch template itself can show."""
    data = template.properties["LaunchTemplateData"]
    for key in ("SecurityGroupIds", "SecurityGroups"):
        if key in data:
            yield (
                f"{key} stands beside NetworkInterfaces, which EC2 refuses; put groups on every "
                "interface (aws-k8s-tester#531)"
            )
    interfaces = data.get("NetworkInterfaces", [])
    for interface in interfaces:
        for problem in _one(interface):
            yield f"interface {_slot(interface)}: {problem}"
    yield from _together(interfaces, hardware)


def group_problems(template: Resource, templates: Templates) -> Iterator[str]:
    """Whether nodes can talk RDMA to each other, and the cluster to them."""
    ends = {
        direction: list(_ends_of_rules(direction, templates)) for direction in ("Ingress", "Egress")
    }
    for interface in template.properties["LaunchTemplateData"].get("NetworkInterfaces", []):
        groups = [templates.named_by(g, template.stack) for g in interface.get("Groups", [])]
        for direction, pairs in ends.items():
            if not any(own == peer and own in groups for own, peer in pairs):
                yield (
                    f"interface {_slot(interface)}: none of its security groups has an {direction} "
                    "rule for all traffic with itself; EFA is not IP and needs both directions "
                    "(eksctl#8554)"
                )
    yield from _unreachable_by_cluster(template, templates, ends["Ingress"])


def _one(interface: Mapping[str, Any]) -> Iterator[str]:
    if interface.get("DeviceIndex", -1) not in range(HIGHEST_DEVICE_INDEX + 1):
        yield (
            f"DeviceIndex {interface.get('DeviceIndex')} does not exist; a card takes devices "
            "0 and 1 (eksctl#7520)"
        )
    if interface.get("InterfaceType") not in KINDS:
        yield f"InterfaceType {interface.get('InterfaceType')!r} is none of {', '.join(KINDS)}"
    if not interface.get("Groups"):
        yield "has no security group; every interface needs its own (terraform-aws-eks#2654)"
    if interface.get("DeleteOnTermination") is not True:
        yield "would outlive its instance; set DeleteOnTermination (aws-k8s-tester#531)"
    if "AssociatePublicIpAddress" in interface:
        yield "asks for a public address, which EC2 gives to lone interfaces only; remove it"
    if "SubnetId" in interface:
        yield "names a subnet; the Auto Scaling group's only one is to decide"


def _together(interfaces: list[Mapping[str, Any]], hardware: InstanceType) -> Iterator[str]:
    slots = [(i.get("NetworkCardIndex"), i.get("DeviceIndex")) for i in interfaces]
    for slot in sorted({str(slot) for slot in slots if slots.count(slot) > 1}):
        yield f"two interfaces in slot {slot}; a slot takes one (terraform-aws-eks#2654)"
    num_efa = sum(1 for i in interfaces if str(i.get("InterfaceType")).startswith("efa"))
    if num_efa != hardware.num_efa:
        yield f"has {num_efa} EFA devices and a {hardware.name} takes {hardware.num_efa}"
    first = [i for i, slot in zip(interfaces, slots, strict=True) if slot == (0, 0)]
    if not first or first[0].get("InterfaceType") == "efa-only":
        yield "slot (0, 0) carries no IP; the node could not reach its cluster"
    cards = [card for card, _ in slots if isinstance(card, int)]
    if any(card >= hardware.num_network_cards for card in cards):
        yield f"names card {max(cards)}; a {hardware.name} has {hardware.num_network_cards}"


def _ends_of_rules(direction: str, templates: Templates) -> Iterator[tuple[Resource, Resource]]:
    """Group and peer of each rule for all traffic of which both are known."""
    key = "SourceSecurityGroupId" if direction == "Ingress" else "DestinationSecurityGroupId"
    for rule in templates.of_kind(f"AWS::EC2::SecurityGroup{direction}"):
        own = templates.named_by(rule.properties["GroupId"], rule.stack)
        peer = templates.named_by(rule.properties.get(key), rule.stack)
        if own and peer and rule.properties["IpProtocol"] == "-1":
            yield own, peer


def _unreachable_by_cluster(
    template: Resource, templates: Templates, ends: list[tuple[Resource, Resource]]
) -> Iterator[str]:
    interfaces = template.properties["LaunchTemplateData"].get("NetworkInterfaces", [])
    groups = [
        templates.named_by(g, template.stack) for i in interfaces for g in i.get("Groups", [])
    ]
    clusters = list(templates.of_kind("AWS::EKS::Cluster"))
    for inward, said in ((True, "from"), (False, "to")):
        pairs = ends if inward else [(peer, own) for own, peer in ends]
        if not any(own in groups and peer in clusters for own, peer in pairs):
            yield (
                f"no rule lets traffic {said} the cluster's security group through; self-managed "
                "nodes do not get that group (eksctl#8554)"
            )


def _slot(interface: Mapping[str, Any]) -> str:
    return f"({interface.get('NetworkCardIndex')}, {interface.get('DeviceIndex')})"
