"""The two kinds of IAM role here: one that a node assumes, one that a pod does."""

from aws_cdk import aws_iam as iam
from constructs import Construct


def node_role(scope: Construct, construct_id: str) -> iam.Role:
    """Join, pull images, be reached by Session Manager. Network and storage rights are pods' own.

    Whatever a node may do, every pod that reaches its metadata service may do too.
    """
    names = (
        "AmazonEKSWorkerNodePolicy",
        "AmazonEC2ContainerRegistryPullOnly",
        "AmazonSSMManagedInstanceCore",
    )
    return iam.Role(
        scope,
        construct_id,
        assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"),
        managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name(n) for n in names],
    )


def pod_identity_role(scope: Construct, construct_id: str) -> iam.Role:
    """A role without rights yet, for the service account that an association names."""
    pods = iam.ServicePrincipal("pods.eks.amazonaws.com")
    return iam.Role(scope, construct_id, assumed_by=iam.SessionTagsPrincipal(pods))
