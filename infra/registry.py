"""Where the images of this project are pushed. A tag, once pushed, never means another image."""

from aws_cdk import CfnOutput, Duration, RemovalPolicy
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from infra import names
from infra.base import DeploymentStack
from infra.settings import InfraSettings, PinnedImage

IMAGES_KEPT = 30
DAYS_UNTAGGED = 7


class RegistryStack(DeploymentStack):
    """Needs no image: both repositories are made empty, and pushed to afterwards."""

    def __init__(self, scope: Construct, *, settings: InfraSettings) -> None:
        super().__init__(scope, names.REGISTRY, settings=settings)
        self._repository("Repository", settings.image)
        if settings.node_repair:
            self._repository("NodeRepairRepository", settings.node_repair.image)

    def _repository(self, name: str, image: PinnedImage) -> None:
        repository = ecr.Repository(
            self,
            name,
            repository_name=image.repository,
            image_tag_mutability=ecr.TagMutability.IMMUTABLE,
            image_scan_on_push=True,
            encryption=ecr.RepositoryEncryption.KMS,  # with the account's own key for ECR
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
            # ECR refuses to delete a repository that holds images, unless it is told to empty it.
            empty_on_delete=self.removal_policy is RemovalPolicy.DESTROY,
            removal_policy=self.removal_policy,
        )
        CfnOutput(self, f"{name}Uri", value=repository.repository_uri)
