"""The stack that every other one is: named after the deployment, bound to its account and region.

Account and region are explicit, so synthesis asks nobody for them.
"""

from aws_cdk import Environment, Stack, Tags
from constructs import Construct

from infra.names import stack_name
from infra.settings import InfraSettings


class DeploymentStack(Stack):
    def __init__(self, scope: Construct, purpose: str, *, settings: InfraSettings) -> None:
        super().__init__(
            scope,
            stack_name(settings, purpose),
            env=Environment(account=settings.account, region=settings.region),
        )
        Tags.of(self).add("deployment", settings.name)
