"""What a launch template says of disks, network, metadata and the capacity to start in.

Each function turns settings into one property. L1, because the L2 launch template
has room for one network interface.
"""

from aws_cdk import aws_ec2 as ec2

from infra.efa import plan_interfaces
from infra.node_groups import Capacity, CapacityBlock, NodeGroup, OnDemand, Reservation

Template = ec2.CfnLaunchTemplate


def only_imdsv2() -> ec2.CfnLaunchTemplate.MetadataOptionsProperty:
    """One hop: the node itself reaches its metadata, a pod with an address of its own does not."""
    return Template.MetadataOptionsProperty(
        http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
    )


def root_volume(size_gib: int) -> ec2.CfnLaunchTemplate.BlockDeviceMappingProperty:
    return Template.BlockDeviceMappingProperty(
        device_name="/dev/xvda",
        ebs=Template.EbsProperty(
            volume_type="gp3", volume_size=size_gib, encrypted=True, delete_on_termination=True
        ),
    )


def network_interfaces(
    nodes: NodeGroup, security_group_id: str
) -> list[ec2.CfnLaunchTemplate.NetworkInterfaceProperty]:
    """Groups go on every interface: EC2 refuses them on the template once interfaces are listed."""
    return [
        Template.NetworkInterfaceProperty(
            network_card_index=interface.card,
            device_index=interface.device,
            interface_type=interface.kind,
            groups=[security_group_id],
            delete_on_termination=True,
        )
        for interface in plan_interfaces(nodes.hardware, nodes.efa_layout)
    ]


def market(capacity: Capacity) -> ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty | None:
    if isinstance(capacity, CapacityBlock):
        return Template.InstanceMarketOptionsProperty(market_type="capacity-block")
    return None


def reservation(
    capacity: Capacity,
) -> ec2.CfnLaunchTemplate.CapacityReservationSpecificationProperty | None:
    """What the instances start in, and for a reservation: in nothing else.

    EC2 takes a preference beside a target only if it is ``capacity-reservations-only``
    (API reference of CapacityReservationSpecification). A block is a market of its own.
    """
    match capacity:
        case OnDemand():
            return None
        case CapacityBlock(reservation_id=block):
            return Template.CapacityReservationSpecificationProperty(
                capacity_reservation_target=Template.CapacityReservationTargetProperty(
                    capacity_reservation_id=block
                )
            )
        case Reservation(reservation_id=single, reservation_group_arn=group):
            return Template.CapacityReservationSpecificationProperty(
                capacity_reservation_preference="capacity-reservations-only",
                capacity_reservation_target=Template.CapacityReservationTargetProperty(
                    capacity_reservation_id=single, capacity_reservation_resource_group_arn=group
                ),
            )
