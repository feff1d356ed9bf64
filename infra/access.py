"""Who may use the cluster: administrators everywhere, submitters of runs in one namespace.

An entry is known to CloudFormation by its principal, and by nothing that may
change around it. EKS takes one entry for each principal, so one that got another
name (by its place in a list, or by the right it has) would be made a second time
before the first is deleted, and refused.
"""

import hashlib

from aws_cdk import aws_eks_v2 as eks
from constructs import Construct

from infra.settings import InfraSettings


class Access(Construct):
    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        settings: InfraSettings,
        cluster: eks.ICluster,
    ) -> None:
        super().__init__(scope, construct_id)
        everything = eks.AccessPolicy.from_access_policy_name(
            "AmazonEKSClusterAdminPolicy", access_scope_type=eks.AccessScopeType.CLUSTER
        )
        # To edit is to create and delete Jobs, Services and ConfigMaps, and to read pods' logs.
        runs = eks.AccessPolicy.from_access_policy_name(
            "AmazonEKSEditPolicy",
            access_scope_type=eks.AccessScopeType.NAMESPACE,
            namespaces=[settings.namespace],
        )
        rights = dict.fromkeys(settings.admin_arns, everything)
        rights |= dict.fromkeys(settings.submitter_arns, runs)
        for arn, policy in rights.items():
            eks.AccessEntry(
                self, entry_id(arn), cluster=cluster, principal=arn, access_policies=[policy]
            )


def entry_id(principal_arn: str) -> str:
    """The principal's name for the reader, and a digest for names that differ in path alone."""
    digest = hashlib.sha256(principal_arn.encode()).hexdigest()[:8]
    return f"{principal_arn.rsplit('/', 1)[-1]}-{digest}"
