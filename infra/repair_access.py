"""What the node repair controller may do in AWS: look at instances, and end training nodes.

EKS hands the role to the pod through the pod identity agent, by namespace and
service account. No rights on a group that is not a node group of the deployment.
"""

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.accepted import accept_nag
from infra.roles import pod_identity_role
from infra.settings import InfraSettings
from node_repair.settings import NAMESPACE, SERVICE_ACCOUNT


class NodeRepairAccess(Construct):
    """Publishes ``association``, which needs the pod identity agent before it."""

    def __init__(
        self, scope: Construct, id: str, *, settings: InfraSettings, cluster_name: str
    ) -> None:
        super().__init__(scope, id)
        role = pod_identity_role(self, "Role")
        # EC2 knows no narrower resource for it: Describe actions are allowed on all or none.
        role.add_to_policy(iam.PolicyStatement(actions=["ec2:DescribeInstances"], resources=["*"]))
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["autoscaling:TerminateInstanceInAutoScalingGroup"],
                resources=[self._group_arn(settings, group) for group in settings.node_groups],
            )
        )
        self._accept_stars(settings, role)
        self.association = eks.CfnPodIdentityAssociation(
            self,
            "Association",
            cluster_name=cluster_name,
            namespace=NAMESPACE,
            service_account=SERVICE_ACCOUNT,
            role_arn=role.role_arn,
        )

    def _accept_stars(self, settings: InfraSettings, role: iam.Role) -> None:
        where = f"autoscaling:{settings.region}:{settings.account}:autoScalingGroup"
        names = [settings.auto_scaling_group_name(group) for group in settings.node_groups]
        groups = [f"arn:<AWS::Partition>:{where}:*:autoScalingGroupName/{name}" for name in names]
        accept_nag(
            role,
            [f"IAM5[Resource::{resource}]" for resource in ("*", *groups)],
            reason="Describe actions have no resource type; a group's own id is not known before.",
        )

    def _group_arn(self, settings: InfraSettings, group: str) -> str:
        # The star is an id that AWS gives each group; the name behind it is ours alone.
        name = settings.auto_scaling_group_name(group)
        return Stack.of(self).format_arn(
            service="autoscaling",
            resource="autoScalingGroup",
            resource_name=f"*:autoScalingGroupName/{name}",
            arn_format=ArnFormat.COLON_RESOURCE_NAME,
        )
