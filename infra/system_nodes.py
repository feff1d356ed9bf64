"""A few managed nodes for what is not training: DNS, the storage driver, datasets, node repair.

EKS writes user data, subnet, instance profile and, since the template names no
security group, the cluster's own group into its copy of the launch template. It
refuses a template that names one of the first three.
"""

from aws_cdk import CfnTag
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from infra import launch_template
from infra.bootstrap import SYSTEM_LABELS
from infra.roles import node_role
from infra.settings import InfraSettings

ROOT_VOLUME_GIB = 100
"""Room for the trainer's image, which the dataset job runs here; the default of 20 has none."""

Template = ec2.CfnLaunchTemplate


class SystemNodeGroup(Construct):
    """Publishes ``group``. Another instance type is rolled out in it, node by node."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: InfraSettings,
        cluster: eks.ICluster,
        subnets: ec2.SubnetSelection,
    ) -> None:
        super().__init__(scope, construct_id)
        num_nodes = settings.system_nodes.num_nodes
        template = self._launch_template(settings)
        self.group = eks.Nodegroup(
            self,
            "Group",
            cluster=cluster,
            nodegroup_name="system",
            ami_type=eks.NodegroupAmiType.AL2023_X86_64_STANDARD,
            launch_template_spec=eks.LaunchTemplateSpec(
                id=template.ref, version=template.attr_latest_version_number
            ),
            node_role=node_role(self, "Role"),
            subnets=subnets,
            min_size=1,
            desired_size=num_nodes,
            max_size=num_nodes + 1,
            labels=SYSTEM_LABELS,
            # EKS replaces a broken managed node by itself. Training nodes it leaves alone.
            enable_node_auto_repair=True,
        )
        resource = self.group.node.default_child
        assert isinstance(resource, eks.CfnNodegroup)
        # The L2 leaves it to EKS, which then never upgrades these nodes with their cluster.
        resource.version = settings.kubernetes_version

    def _launch_template(self, settings: InfraSettings) -> ec2.CfnLaunchTemplate:
        tags = [
            CfnTag(key="Name", value=f"{settings.name}-system"),
            # A stack's tags reach the group, not what the group starts.
            CfnTag(key="deployment", value=settings.name),
        ]
        data = Template.LaunchTemplateDataProperty(
            # Here and not on the group, where another type means another group of the same name.
            instance_type=settings.system_nodes.instance_type,
            metadata_options=launch_template.only_imdsv2(),
            block_device_mappings=[launch_template.root_volume(ROOT_VOLUME_GIB)],
            tag_specifications=[
                Template.TagSpecificationProperty(resource_type=kind, tags=tags)
                for kind in ("instance", "volume", "network-interface")
            ],
        )
        return Template(self, "LaunchTemplate", launch_template_data=data)
