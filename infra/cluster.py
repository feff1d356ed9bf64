"""The control plane, its add-ons, and a few small nodes to run them on.

Order matters: a node is not ready without the CNI, the CNI gets its rights from
the pod identity agent, and what runs as a Deployment needs a node to run on.
"""

import importlib
import json
from collections.abc import Mapping
from typing import cast

from aws_cdk import CfnOutput, CfnResource, RemovalPolicy
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_eks_v2 as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra import names
from infra.base import DeploymentStack
from infra.network import NetworkStack
from infra.roles import node_role, pod_identity_role
from infra.security import ALL_TRAFFIC, LUSTRE_TRAFFIC, Group, allow_in, allow_out
from infra.settings import InfraSettings

PRIVATE_SUBNETS = ec2.SubnetSelection(subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS)


class ClusterStack(DeploymentStack):
    """Publishes the cluster. What runs on it beside its add-ons belongs to later stacks."""

    def __init__(self, scope: Construct, *, settings: InfraSettings, network: NetworkStack) -> None:
        super().__init__(scope, names.CLUSTER, settings=settings)
        self._cluster = self._control_plane(settings, network)
        # Its Python type lacks one member of the interface that it implements.
        self.cluster = cast(eks.ICluster, self._cluster)
        self._let_training_nodes_in(network)
        agent = self._addon("eks-pod-identity-agent")
        cni = self._cni()
        cni.node.add_dependency(agent)
        nodes = self._system_nodes(settings)
        nodes.node.add_dependency(cni, self._addon("kube-proxy"))
        for addon in (self._addon("coredns"), self._fsx_driver()):
            addon.node.add_dependency(nodes)
        self._grant_admins(settings)
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
            removal_policy=RemovalPolicy.DESTROY,
        )
        cluster = eks.Cluster(
            self,
            "Cluster",
            cluster_name=settings.name,
            version=eks.KubernetesVersion.of(settings.kubernetes_version),
            vpc=network.vpc,
            vpc_subnets=[PRIVATE_SUBNETS],
            endpoint_access=_endpoint_access(settings),
            service_ipv4_cidr=settings.network.service_cidr,
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
        _resource(cluster).add_resource_dependency(_resource(log_group))
        return cluster

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

    def _system_nodes(self, settings: InfraSettings) -> eks.Nodegroup:
        system = settings.system_nodes
        return self._cluster.add_nodegroup_capacity(
            "SystemNodes",
            nodegroup_name="system",
            instance_types=[ec2.InstanceType(system.instance_type)],
            ami_type=eks.NodegroupAmiType.AL2023_X86_64_STANDARD,
            node_role=node_role(self, "SystemNodeRole"),
            subnets=PRIVATE_SUBNETS,
            min_size=1,
            desired_size=system.num_nodes,
            max_size=system.num_nodes + 1,
            labels={"role": "system"},
        )

    def _cni(self) -> eks.CfnAddon:
        role = pod_identity_role(self, "CniRole")
        policy = iam.ManagedPolicy.from_aws_managed_policy_name("AmazonEKS_CNI_Policy")
        role.add_managed_policy(policy)
        # Card 0 of a p5 has one IP interface, 49 addresses for pods; prefixes make that 784.
        prefixes = {"env": {"ENABLE_PREFIX_DELEGATION": "true", "WARM_PREFIX_TARGET": "1"}}
        return self._addon("vpc-cni", pod_roles={"aws-node": role}, configuration=prefixes)

    def _fsx_driver(self) -> eks.CfnAddon:
        """Its role may only look: the volume is static, so the driver never makes a file system."""
        role = pod_identity_role(self, "FsxDriverRole")
        role.add_to_policy(
            iam.PolicyStatement(
                actions=["fsx:DescribeFileSystems"],
                resources=[
                    self.format_arn(service="fsx", resource="file-system", resource_name="*")
                ],
            )
        )
        return self._addon("aws-fsx-csi-driver", pod_roles={"fsx-csi-controller-sa": role})

    def _addon(
        self,
        name: str,
        *,
        pod_roles: Mapping[str, iam.Role] | None = None,
        configuration: Mapping[str, object] | None = None,
    ) -> eks.CfnAddon:
        """An L1, because the L2 knows neither pod identity nor how to resolve conflicts."""
        return eks.CfnAddon(
            self,
            f"Addon-{name}",
            cluster_name=self.cluster.cluster_name,
            addon_name=name,
            resolve_conflicts="OVERWRITE",
            preserve_on_delete=False,
            configuration_values=json.dumps(configuration) if configuration else None,
            pod_identity_associations=[
                eks.CfnAddon.PodIdentityAssociationProperty(
                    service_account=account, role_arn=role.role_arn
                )
                for account, role in (pod_roles or {}).items()
            ]
            or None,
        )

    def _grant_admins(self, settings: InfraSettings) -> None:
        policy = eks.AccessPolicy.from_access_policy_name(
            "AmazonEKSClusterAdminPolicy", access_scope_type=eks.AccessScopeType.CLUSTER
        )
        for number, arn in enumerate(settings.admin_arns):
            self._cluster.grant_access(f"Admin{number}", arn, [policy])


def _endpoint_access(settings: InfraSettings) -> eks.EndpointAccess:
    cidrs = settings.network.public_endpoint_cidrs
    if not cidrs:
        return eks.EndpointAccess.PRIVATE
    return eks.EndpointAccess.PUBLIC_AND_PRIVATE.only_from(*cidrs)


def _resource(construct: Construct) -> CfnResource:
    """The one resource itself: a dependency on the construct would reach its every child."""
    resource = construct.node.default_child
    assert isinstance(resource, CfnResource)
    return resource
