"""The cluster: its control plane, and what makes it usable before any training node is there.

Add-ons, system nodes and access are constructs of their own; here they are put
in an order that works. What runs on the cluster beside its add-ons belongs to
later stacks.
"""

import importlib
from typing import cast

from aws_cdk import CfnOutput, CfnResource, Duration, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import names
from infra.accepted import accept_checkov, accept_nag, managed_policies
from infra.access import Access
from infra.addons import Addons
from infra.base import DeploymentStack
from infra.kubectl_provider import tame_provider
from infra.network import NetworkStack
from infra.repair_access import NodeRepairAccess
from infra.security import ALL_TRAFFIC, LUSTRE_TRAFFIC, Group, allow_in, allow_out
from infra.settings import InfraSettings
from infra.system_nodes import SystemNodeGroup

PRIVATE_SUBNETS = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS)

KEY_DELETION_DAYS = 7
"""The shortest that KMS allows: a key costs money until then, and its cluster is gone."""


class ClusterStack(DeploymentStack):
    """Publishes ``cluster``."""

    def __init__(self, scope: Construct, *, settings: InfraSettings, network: NetworkStack) -> None:
        super().__init__(scope, names.CLUSTER, settings=settings)
        cluster = self._control_plane(settings, network)
        # Its Python type lacks one member of the interface that it implements.
        self.cluster = cast(eks.ICluster, cluster)
        self._let_training_nodes_in(network)
        Access(self, "Access", settings=settings, cluster=self.cluster)
        addons = Addons(self, "Addons", cluster_name=self.cluster.cluster_name)
        nodes = SystemNodeGroup(
            self, "SystemNodes", settings=settings, cluster=self.cluster, subnets=PRIVATE_SUBNETS
        )
        nodes.group.node.add_dependency(*addons.before_nodes)
        addons.follow(nodes.group)
        if settings.node_repair:
            repair = NodeRepairAccess(
                self, "NodeRepair", settings=settings, cluster_name=self.cluster.cluster_name
            )
            repair.association.add_resource_dependency(addons.pod_identity_agent)
        CfnOutput(self, "ClusterName", value=self.cluster.cluster_name)
        CfnOutput(
            self,
            "KubeconfigCommand",
            value=f"aws eks update-kubeconfig --name {settings.name} --region {settings.region}",
        )

    def _control_plane(self, settings: InfraSettings, network: NetworkStack) -> eks.Cluster:
        # EKS would make this group itself, never to expire, and leave it behind.
        log_group = logs.LogGroup(
            self,
            "ControlPlaneLogs",
            log_group_name=f"/aws/eks/{settings.name}/cluster",
            retention=logs.RetentionDays.ONE_MONTH,
            removal_policy=self.removal_policy,
        )
        accept_checkov(log_group, ["CKV_AWS_158"], reason="Encrypted by CloudWatch itself.")
        cluster = eks.Cluster(
            self,
            "Cluster",
            cluster_name=settings.name,
            version=eks.KubernetesVersion.of(settings.kubernetes_version),
            vpc=network.vpc,
            vpc_subnets=[PRIVATE_SUBNETS],
            endpoint_access=_endpoint_access(settings),
            service_ipv4_cidr=settings.network.service_cidr,
            secrets_encryption_key=self._key(settings),
            # Without these two, EKS runs in Auto Mode, which cannot attach EFA devices as we do.
            default_capacity_type=eks.DefaultCapacityType.NODEGROUP,
            default_capacity=0,
            bootstrap_self_managed_addons=False,
            bootstrap_cluster_creator_admin_permissions=False,
            cluster_logging=list(eks.ClusterLoggingTypes),
            kubectl_provider_options=self._kubectl_provider(settings),
            output_config_command=False,
            removal_policy=RemovalPolicy.DESTROY,
        )
        accept_nag(
            cluster.role,
            managed_policies("AmazonEKSClusterPolicy"),
            reason="What EKS documents for a cluster; AWS keeps it in step with the service.",
        )
        if settings.kubectl_provider:
            tame_provider(cluster)
        resource = cluster.node.default_child
        assert isinstance(resource, eks.CfnCluster)
        # Said either way: a property that is left out would not lift the protection again.
        resource.deletion_protection = settings.lifetime == "durable"
        # On the resource itself: a dependency of the construct would reach its every child.
        resource.add_resource_dependency(cast(CfnResource, log_group.node.default_child))
        return cluster

    def _key(self, settings: InfraSettings) -> kms.Key:
        """Of the Kubernetes Secrets. Whoever loses it loses them, so it may outlive the cluster."""
        return kms.Key(
            self,
            "SecretsKey",
            alias=f"alias/{settings.name}-eks",
            description=f"Kubernetes Secrets of {settings.name}",
            enable_key_rotation=True,
            removal_policy=self.removal_policy,
            pending_window=(
                Duration.days(KEY_DELETION_DAYS) if settings.lifetime == "ephemeral" else None
            ),
        )

    def _kubectl_provider(self, settings: InfraSettings) -> eks.KubectlProviderOptions | None:
        if not settings.kubectl_provider:
            return None
        # Imported by name because each of these packages takes a second to load.
        minor = settings.kubernetes_version.removeprefix("1.")
        module = importlib.import_module(f"aws_cdk.lambda_layer_kubectl_v{minor}")
        layer: lambda_.ILayerVersion = getattr(module, f"KubectlV{minor}Layer")(self, "Kubectl")
        return eks.KubectlProviderOptions(kubectl_layer=layer, removal_policy=RemovalPolicy.DESTROY)

    def _let_training_nodes_in(self, network: NetworkStack) -> None:
        """Training nodes carry only the ``efa`` group, so it must be let through both ways."""
        cluster = Group("cluster", self.cluster.cluster_security_group_id)
        allow_in(self, network.efa, cluster, ALL_TRAFFIC)
        allow_in(self, cluster, network.efa, ALL_TRAFFIC)
        # System nodes mount the file system too, to prepare a dataset.
        allow_in(self, network.lustre, cluster, LUSTRE_TRAFFIC)
        allow_out(self, network.lustre, cluster, LUSTRE_TRAFFIC)
        allow_in(self, cluster, network.lustre, LUSTRE_TRAFFIC)


def _endpoint_access(settings: InfraSettings) -> eks.EndpointAccess:
    cidrs = settings.network.public_endpoint_cidrs
    if not cidrs:
        return eks.EndpointAccess.PRIVATE
    return eks.EndpointAccess.PUBLIC_AND_PRIVATE.only_from(*cidrs)
