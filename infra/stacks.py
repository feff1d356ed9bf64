"""All stacks of one deployment, wired to each other.

Producers come before their consumers, and no stack changes one before it, so
taking them down in reverse always works.
"""

import aws_cdk as cdk

from infra.base import DeploymentStack
from infra.cluster import ClusterStack
from infra.gpu_nodes import GpuNodesStack
from infra.network import NetworkStack
from infra.platform import PlatformStack
from infra.registry import RegistryStack
from infra.settings import InfraSettings
from infra.storage import StorageStack


def build_stacks(app: cdk.App, settings: InfraSettings) -> list[DeploymentStack]:
    network = NetworkStack(app, settings=settings)
    registry = RegistryStack(app, settings=settings)
    storage = StorageStack(app, settings=settings, network=network)
    cluster = ClusterStack(app, settings=settings, network=network)
    gpu_nodes = GpuNodesStack(app, settings=settings, network=network, cluster=cluster)
    stacks = [network, registry, storage, cluster, gpu_nodes]
    if settings.kubectl_provider:
        platform = PlatformStack(app, settings=settings, cluster=cluster, storage=storage)
        # Not for any value of it, but so that the volume is gone before the nodes that mount it.
        platform.add_stack_dependency(gpu_nodes)
        stacks.append(platform)
    cdk.Validations.of(app).acknowledge(
        cdk.Acknowledgment(
            id="CloudFormation-Validate::W3010",
            reason="The zones are named on purpose: capacity, nodes and storage share one.",
        )
    )
    return stacks
