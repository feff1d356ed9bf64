"""One group of training nodes: a launch template, and a group that keeps so many of them running.

Both are L1. The L2 launch template has room for one network interface, and the
cluster's own helper for self-managed nodes boots Amazon Linux 2. The group names
one subnet, and the template names none: the group's is the only one there is.
"""

from aws_cdk import CfnOutput, CfnTag, Fn
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra import names
from infra.base import DeploymentStack
from infra.bootstrap import ClusterAddress, node_user_data
from infra.cluster import ClusterStack
from infra.efa import plan_interfaces
from infra.hardware import InstanceType
from infra.network import NetworkStack
from infra.node_groups import Capacity, CapacityBlock, NodeGroup, OnDemand, Reservation
from infra.roles import node_role
from infra.settings import InfraSettings

Template = ec2.CfnLaunchTemplate
Group = autoscaling.CfnAutoScalingGroup

BOOT_GRACE_SECONDS = 900


class NodeGroupStack(DeploymentStack):
    def __init__(
        self,
        scope: Construct,
        name: str,
        *,
        settings: InfraSettings,
        network: NetworkStack,
        cluster: ClusterStack,
    ) -> None:
        super().__init__(scope, names.nodes(name), settings=settings)
        self._name = name
        self._nodes = settings.node_groups[name]
        role = node_role(self, "NodeRole")
        # EKS fills in the rights of this entry type itself and takes no policies beside them.
        access = eks.AccessEntry(
            self,
            "NodeAccess",
            cluster=cluster.cluster,
            principal=role.role_arn,
            access_entry_type=eks.AccessEntryType.EC2_LINUX,
            access_policies=[],
        )
        template = self._launch_template(settings, network, cluster.cluster, role)
        group = self._group(settings, network, template)
        # A node that boots before its entry exists is refused by the cluster.
        group.node.add_dependency(access)
        CfnOutput(self, "AutoScalingGroupName", value=group.ref)

    def _launch_template(
        self,
        settings: InfraSettings,
        network: NetworkStack,
        cluster: eks.ICluster,
        role: iam.Role,
    ) -> ec2.CfnLaunchTemplate:
        nodes = self._nodes
        profile = iam.CfnInstanceProfile(self, "InstanceProfile", roles=[role.role_name])
        address = ClusterAddress(
            name=settings.name,
            endpoint=cluster.cluster_endpoint,
            certificate_authority=cluster.cluster_certificate_authority_data,
            service_cidr=settings.network.service_cidr,
        )
        tags = [CfnTag(key=key, value=value) for key, value in self._tags(settings).items()]
        data = Template.LaunchTemplateDataProperty(
            instance_type=nodes.instance_type,
            image_id=self._image_id(settings),
            iam_instance_profile=Template.IamInstanceProfileProperty(arn=profile.attr_arn),
            user_data=Fn.base64(node_user_data(address, group=self._name, hardware=nodes.hardware)),
            metadata_options=_only_imdsv2(),
            block_device_mappings=[_root_volume(nodes.root_volume_gib)],
            network_interfaces=_network_interfaces(nodes, network.efa.id),
            placement=self._placement(nodes.capacity),
            instance_market_options=_market(nodes.capacity),
            capacity_reservation_specification=_reservation(nodes.capacity),
            tag_specifications=[
                Template.TagSpecificationProperty(resource_type=kind, tags=tags)
                for kind in ("volume", "network-interface")  # instances get the group's
            ],
        )
        return Template(self, "LaunchTemplate", launch_template_data=data)

    def _group(
        self, settings: InfraSettings, network: NetworkStack, template: ec2.CfnLaunchTemplate
    ) -> autoscaling.CfnAutoScalingGroup:
        """Has no update policy: a deploy never restarts a node under a running job."""
        nodes = self._nodes
        # A block has dates, and asking for nodes outside of them fails. Left out, the group starts
        # with none and keeps what a human or a schedule sets; a 0 would end them at each deploy.
        in_block = isinstance(nodes.capacity, CapacityBlock)
        return Group(
            self,
            "Group",
            auto_scaling_group_name=settings.auto_scaling_group_name(self._name),
            min_size="0",
            max_size=str(nodes.all_nodes),
            desired_capacity=None if in_block else str(nodes.all_nodes),
            vpc_zone_identifier=[network.training_subnet.subnet_id],
            health_check_type="EC2",
            health_check_grace_period=BOOT_GRACE_SECONDS,
            launch_template=Group.LaunchTemplateSpecificationProperty(
                launch_template_id=template.ref, version=template.attr_latest_version_number
            ),
            tags=[
                Group.TagPropertyProperty(key=key, value=value, propagate_at_launch=True)
                for key, value in self._tags(settings).items()
            ],
        )

    def _image_id(self, settings: InfraSettings) -> str:
        """The pinned image, or the newest recommended one as CloudFormation sees it at deploy."""
        if self._nodes.ami_id:
            return self._nodes.ami_id
        name = ami_parameter(settings.kubernetes_version, self._nodes.hardware)
        return ssm.StringParameter.value_for_typed_string_parameter_v2(
            self, name, ssm.ParameterValueType.AWS_EC2_IMAGE_ID
        )

    def _tags(self, settings: InfraSettings) -> dict[str, str]:
        return {
            "Name": settings.auto_scaling_group_name(self._name),
            f"kubernetes.io/cluster/{settings.name}": "owned",
        }

    def _placement(self, capacity: Capacity) -> ec2.CfnLaunchTemplate.PlacementProperty | None:
        match capacity:
            case OnDemand(placement_group=True) | Reservation(placement_group=True):
                group = ec2.CfnPlacementGroup(self, "PlacementGroup", strategy="cluster")
                return Template.PlacementProperty(group_name=group.attr_group_name)
            case _:
                return None


def ami_parameter(kubernetes_version: str, hardware: InstanceType) -> str:
    """The public parameter that holds the id of the EKS image for this hardware."""
    variant = "nvidia" if hardware.num_gpus else "standard"
    return (
        f"/aws/service/eks/optimized-ami/{kubernetes_version}/amazon-linux-2023/x86_64/"
        f"{variant}/recommended/image_id"
    )


def _only_imdsv2() -> ec2.CfnLaunchTemplate.MetadataOptionsProperty:
    """One hop: the node itself reaches its metadata, a pod with an address of its own does not."""
    return Template.MetadataOptionsProperty(
        http_endpoint="enabled", http_tokens="required", http_put_response_hop_limit=1
    )


def _root_volume(size_gib: int) -> ec2.CfnLaunchTemplate.BlockDeviceMappingProperty:
    return Template.BlockDeviceMappingProperty(
        device_name="/dev/xvda",
        ebs=Template.EbsProperty(
            volume_type="gp3", volume_size=size_gib, encrypted=True, delete_on_termination=True
        ),
    )


def _network_interfaces(
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


def _market(capacity: Capacity) -> ec2.CfnLaunchTemplate.InstanceMarketOptionsProperty | None:
    if isinstance(capacity, CapacityBlock):
        return Template.InstanceMarketOptionsProperty(market_type="capacity-block")
    return None


def _reservation(
    capacity: Capacity,
) -> ec2.CfnLaunchTemplate.CapacityReservationSpecificationProperty | None:
    if isinstance(capacity, OnDemand):
        return None
    target = Template.CapacityReservationTargetProperty(
        capacity_reservation_id=capacity.reservation_id
    )
    return Template.CapacityReservationSpecificationProperty(capacity_reservation_target=target)
