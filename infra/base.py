"""The stack that every other one is: named after the deployment, bound to its account and region.

Account and region are explicit, so synthesis asks nobody for them. What the
deployment's ``lifetime`` means for a stack and for what is in it is decided here.
"""

from aws_cdk import Environment, RemovalPolicy, Stack, Tags
from constructs import Construct

from infra.names import stack_name
from infra.settings import InfraSettings

HOLD_DATA = [
    "AWS::ECR::Repository",
    "AWS::FSx::DataRepositoryAssociation",
    "AWS::FSx::FileSystem",
    "AWS::KMS::Key",
    "AWS::Logs::LogGroup",
]
"""Types of what may outlive its stack. All take new tags without being replaced."""


class DeploymentStack(Stack):
    """Publishes ``removal_policy``: what becomes of a resource that holds somebody's data."""

    def __init__(self, scope: Construct, purpose: str, *, settings: InfraSettings) -> None:
        durable = settings.lifetime == "durable"
        super().__init__(
            scope,
            stack_name(settings, purpose),
            env=Environment(account=settings.account, region=settings.region),
            termination_protection=durable,
        )
        # Kept, except when its first deploy fails: a plain RETAIN would leave a bill behind, and a
        # name that the next attempt finds taken.
        self.removal_policy = (
            RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE if durable else RemovalPolicy.DESTROY
        )
        Tags.of(self).add("deployment", settings.name)
        # CloudFormation takes a template that differs in deletion policies alone for unchanged, so
        # another lifetime must change the resources themselves as well.
        Tags.of(self).add("lifetime", settings.lifetime, include_resource_types=HOLD_DATA)
