"""The two kinds of IAM role here: one that a node assumes, one that a pod does."""

from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.accepted import accept_nag, managed_policies


def node_role(scope: Construct, construct_id: str) -> iam.Role:
    """Join, pull images, be reached by Session Manager. Network and storage rights are pods' own.

    Whatever a node may do, every pod that reaches its metadata service may do too.
    """
    names = (
        "AmazonEKSWorkerNodePolicy",
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonSSMManagedInstanceCore",
    )
    role = iam.Role(
        scope,
        construct_id,
        assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(n) for n in names],
    )
    accept_nag(
        role,
        managed_policies(*names),
        reason="What EKS documents for nodes; AWS keeps them in step with the node's software.",
    )
    return role


def pod_identity_role(scope: Construct, construct_id: str) -> iam.Role:
    """A role without rights yet, for the service account that an association names."""
    pods = iam.ServicePrincipal("pods.eks.amazonaws.com")
    return iam.Role(scope, construct_id, assumed_by=iam.SessionTagsPrincipal(pods))
