"""All stacks of one deployment, wired to each other.

Producers come before their consumers, and no stack changes one before it, so
taking them down in reverse always works.
"""

import aws_cdk as cdk

from infra.base import DeploymentStack
from infra.cluster import ClusterStack
from infra.network import NetworkStack
from infra.node_group_stack import NodeGroupStack
from infra.platform import PlatformStack
from infra.registry import RegistryStack
from infra.settings import InfraSettings
from infra.storage import StorageStack


def build_stacks(app: cdk.App, settings: InfraSettings) -> list[DeploymentStack]:
    network = NetworkStack(app, settings=settings)
    registry = RegistryStack(app, settings=settings)
    storage = StorageStack(app, settings=settings, network=network)
    cluster = ClusterStack(app, settings=settings, network=network)
    groups = [
        NodeGroupStack(app, name, settings=settings, network=network, cluster=cluster)
        for name in settings.node_groups
    ]
    stacks = [network, registry, storage, cluster, *groups]
    if settings.kubectl_provider:
        platform = PlatformStack(app, settings=settings, cluster=cluster, storage=storage)
        # Not for any value of it, but so that the volume is gone before the nodes that mount it.
        for group in groups:
            platform.add_stack_dependency(group)
        stacks.append(platform)
    cdk.Validations.of(app).acknowledge(
        cdk.Acknowledgment(
            id="CloudFormation-Validate::W3010",
            reason="The zones are named on purpose: capacity, nodes and storage share one.",
        )
    )
    return stacks
