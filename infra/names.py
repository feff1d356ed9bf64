"""What the stacks of a deployment are called, in the order in which they are made.

Taking them down goes through the same list backwards.
"""

from infra.settings import InfraSettings

NETWORK = "network"
REGISTRY = "registry"
STORAGE = "storage"
CLUSTER = "cluster"
PLATFORM = "platform"

BOOTSTRAP_QUALIFIER = "hnb659fds"
"""In the names of all that ``cdk bootstrap`` makes, unless it is told another."""


def stack_name(settings: InfraSettings, purpose: str) -> str:
    return f"{settings.name}-{purpose}"


def nodes(group: str) -> str:
    """Purpose of the stack of one node group."""
    return f"nodes-{group}"


def purposes(settings: InfraSettings) -> list[str]:
    """What each stack of the deployment is for, producers before consumers."""
    groups = [nodes(group) for group in settings.node_groups]
    platform = [PLATFORM] if settings.kubectl_provider else []
    return [NETWORK, REGISTRY, STORAGE, CLUSTER, *groups, *platform]
