"""Where the trainer's image is pushed. A tag, once pushed, never means another image."""

from aws_cdk import CfnOutput, Duration, RemovalPolicy
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from infra import names
from infra.base import DeploymentStack
from infra.settings import InfraSettings

IMAGES_KEPT = 30
DAYS_UNTAGGED = 7


class RegistryStack(DeploymentStack):
    def __init__(self, scope: Construct, *, settings: InfraSettings) -> None:
        super().__init__(scope, names.REGISTRY, settings=settings)
        repository = ecr.Repository(
            self,
            "Repository",
            repository_name=settings.image.repository,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            image_scan_on_push=True,
            lifecycle_rules=[
                ecr.LifecycleRule(
                    rule_priority=1,
                    description="Layers of interrupted pushes",
                    tag_status=ecr.TagStatus.UNTAGGED,
                    max_image_age=Duration.days(DAYS_UNTAGGED),
                ),
                ecr.LifecycleRule(
                    rule_priority=2,
                    description="The newest images",
                    tag_status=ecr.TagStatus.ANY,
                    max_image_count=IMAGES_KEPT,
                ),
            ],
            empty_on_delete=True,
            removal_policy=RemovalPolicy.DESTROY,
        )
        CfnOutput(self, "RepositoryUri", value=repository.repository_uri)
