"""One group of training nodes: a launch template, and a group that keeps so many of them running.

Both are L1: the cluster's own helper for self-managed nodes boots Amazon Linux 2.
The group names one subnet, and the template names none: the group's is the only one
there is. Interruptions of spot instances are not covered: no capacity here is spot.
"""

from aws_cdk import CfnAutoScalingScheduledAction, CfnOutput, CfnTag, CfnUpdatePolicy, Fn
from aws_cdk import aws_autoscaling as autoscaling
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_ssm as ssm
from constructs import Construct

from infra import launch_template, names
from infra.accepted import accept_nag
from infra.base import DeploymentStack
from infra.bootstrap import BOOT_SECONDS, ClusterAddress, node_user_data
from infra.cluster import ClusterStack
from infra.images import ami_parameter
from infra.network import NetworkStack
from infra.node_groups import OnDemand, Reservation
from infra.roles import node_role
from infra.schedule import nodes_at_creation, planned_resizes
from infra.settings import InfraSettings

Template = ec2.CfnLaunchTemplate
Group = autoscaling.CfnAutoScalingGroup


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
        self._schedule(group)
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
            metadata_options=launch_template.only_imdsv2(),
            block_device_mappings=[launch_template.root_volume(nodes.root_volume_gib)],
            network_interfaces=launch_template.network_interfaces(nodes, network.efa.id),
            placement=self._placement(),
            instance_market_options=launch_template.market(nodes.capacity),
            capacity_reservation_specification=launch_template.reservation(nodes.capacity),
            tag_specifications=[
                Template.TagSpecificationProperty(resource_type=kind, tags=tags)
                for kind in ("volume", "network-interface")  # instances get the group's
            ],
        )
        return Template(self, "LaunchTemplate", launch_template_data=data)

    def _group(
        self, settings: InfraSettings, network: NetworkStack, template: ec2.CfnLaunchTemplate
    ) -> autoscaling.CfnAutoScalingGroup:
        """Has no rolling update: a deploy never restarts a node under a running job."""
        nodes = self._nodes
        desired = nodes_at_creation(nodes)
        group = Group(
            self,
            "Group",
            auto_scaling_group_name=settings.auto_scaling_group_name(self._name),
            min_size="0",
            max_size=str(nodes.all_nodes),
            desired_capacity=None if desired is None else str(desired),
            vpc_zone_identifier=[network.training_subnet.subnet_id],
            health_check_type="EC2",
            health_check_grace_period=BOOT_SECONDS,
            launch_template=Group.LaunchTemplateSpecificationProperty(
                launch_template_id=template.ref, version=template.attr_latest_version_number
            ),
            tags=[
                Group.TagPropertyProperty(key=key, value=value, propagate_at_launch=True)
                for key, value in self._tags(settings).items()
            ],
        )
        accept_nag(group, ["AS3"], reason="Node repair and the doctor watch the nodes themselves.")
        return group

    def _schedule(self, group: autoscaling.CfnAutoScalingGroup) -> None:
        """A block's group grows at its start and is empty before its end, deployed or not."""
        resizes = planned_resizes(self._nodes)
        for resize in resizes:
            autoscaling.CfnScheduledAction(
                self,
                resize.name,
                auto_scaling_group_name=group.ref,
                start_time=resize.timestamp,
                min_size=0,
                max_size=resize.num_nodes,
                desired_capacity=resize.num_nodes,
            )
        if resizes:
            # Else each update of the stack sets the sizes back to the template's.
            group.cfn_options.update_policy = CfnUpdatePolicy(
                auto_scaling_scheduled_action=CfnAutoScalingScheduledAction(
                    ignore_unmodified_group_size_properties=True
                )
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

    def _placement(self) -> ec2.CfnLaunchTemplate.PlacementProperty | None:
        """On-demand nodes get a placement group that no other node group shares.

        A reservation starts only in the group that it was made in, if in any, and fails
        with InsufficientInstanceCapacity in another, however much of it is free
        (terraform-aws-eks#3730, eksctl#7949). A block packs its instances by itself.
        """
        match self._nodes.capacity:
            case OnDemand(placement_group=True):
                group = ec2.CfnPlacementGroup(self, "PlacementGroup", strategy="cluster")
                return Template.PlacementProperty(group_name=group.attr_group_name)
            case Reservation(placement_group=str(name)):
                return Template.PlacementProperty(group_name=name)
            case _:
                return None
