"""The add-ons of the cluster: which ones, with what rights and settings, and in what order.

A node is not ready without the CNI, and the CNI gets its rights from the pod
identity agent: both come before any node. The rest follows the nodes, since a
Deployment is not healthy before it has one to run on.

Every DaemonSet here must run on a training node too, past its taint
``nvidia.com/gpu:NoSchedule`` and past ``fsx.csi.aws.com/agent-not-ready:NoExecute``,
which the storage driver itself takes away. All tolerate any taint by default but
one, the DCGM server. No Deployment here tolerates the former, so none takes room
from training on GPU nodes. EKS refuses a setting that an add-on's own schema does
not have (``aws eks describe-addon-configuration``), so few are made.
"""

import json
from collections.abc import Mapping

from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.accepted import accept_nag, managed_policies
from infra.bootstrap import SYSTEM_LABELS
from infra.roles import pod_identity_role

CNI_SETTINGS = {
    # Card 0 of a p5 has one IP interface, 49 addresses for pods; prefixes make that 784.
    "env": {"ENABLE_PREFIX_DELEGATION": "true", "WARM_PREFIX_TARGET": "1"}
}

# Where training nodes have no GPU they have no taint either, and DNS would move in with a job.
COREDNS_SETTINGS = {"nodeSelector": SYSTEM_LABELS}

MONITORING_SETTINGS = {
    # The agent tolerates every taint, the DCGM server it asks about GPUs none. Unable to reach it
    # the agent reports AcceleratedHardwareReady=False, on which node repair replaces the node.
    # github.com/aws/containers-roadmap/issues/2567 and 2555
    "dcgmAgent": {"tolerations": [{"operator": "Exists"}]}
}


class Addons(Construct):
    """Publishes the two that others wait for: ``pod_identity_agent``, and ``before_nodes``."""

    def __init__(self, scope: Construct, construct_id: str, *, cluster_name: str) -> None:
        super().__init__(scope, construct_id)
        self._cluster_name = cluster_name
        self.pod_identity_agent = self._addon("eks-pod-identity-agent")
        cni = self._addon("vpc-cni", CNI_SETTINGS, pod_roles={"aws-node": self._cni_role()})
        cni.node.add_dependency(self.pod_identity_agent)
        self.before_nodes = (self.pod_identity_agent, cni, self._addon("kube-proxy"))

    def follow(self, nodes: eks.Nodegroup) -> None:
        """Make the others, once ``nodes`` are there."""
        driver_roles = {"fsx-csi-controller-sa": self._storage_role()}
        for addon in (
            self._addon("coredns", COREDNS_SETTINGS),
            self._addon("aws-fsx-csi-driver", pod_roles=driver_roles),
            self._addon("eks-node-monitoring-agent", MONITORING_SETTINGS),
            self._addon("metrics-server"),
        ):
            addon.node.add_dependency(nodes)

    def _addon(
        self,
        name: str,
        settings: Mapping[str, object] | None = None,
        *,
        pod_roles: Mapping[str, iam.Role] | None = None,
    ) -> eks.CfnAddon:
        """An L1, because the L2 knows neither pod identity nor how to resolve conflicts."""
        return eks.CfnAddon(
            self,
            name,
            cluster_name=self._cluster_name,
            addon_name=name,
            resolve_conflicts="OVERWRITE",
            preserve_on_delete=False,
            configuration_values=json.dumps(settings) if settings else None,
            pod_identity_associations=[
                eks.CfnAddon.PodIdentityAssociationProperty(
                    service_account=account, role_arn=role.role_arn
                )
                for account, role in (pod_roles or {}).items()
            ]
            or None,
        )

    def _cni_role(self) -> iam.Role:
        role = pod_identity_role(self, "CniRole")
        policy = iam.ManagedPolicy.from_aws_managed_policy_name("AmazonEKS_CNI_Policy")
        role.add_managed_policy(policy)
        accept_nag(
            role,
            managed_policies("AmazonEKS_CNI_Policy"),
            reason="What EKS documents for the add-on; AWS keeps the two in step.",
        )
        return role

    def _storage_role(self) -> iam.Role:
        """It may only look: the volume is static, so the driver never makes a file system.

        No ARN can narrow that. By the Service Authorization Reference of FSx,
        ``DescribeFileSystems`` has no resource type: a statement that names file
        systems matches no request, and the driver is denied.
        """
        role = pod_identity_role(self, "StorageDriverRole")
        role.add_to_policy(
            iam.PolicyStatement(actions=["fsx:DescribeFileSystems"], resources=["*"])
        )
        accept_nag(role, ["IAM5[Resource::*]"], reason="The one action has no resource type.")
        return role
