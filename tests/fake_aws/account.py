"""The fake account: moto with our fakes in its CloudFormation, and the public parameters of AWS.

Everything is undone when the context ends, so that other tests meet plain moto.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from io import BytesIO
from typing import Any
from unittest.mock import patch
from zipfile import ZipFile

import boto3
from moto.cloudformation import parsing
from moto.ec2.models import ec2_backends
from moto.ssm.models import Parameter, ssm_backends

from tests.fake_aws import ec2, eks, fsx, s3
from tests.fake_aws.custom import CustomResource
from tests.fake_aws.fake import Fake
from tests.fake_aws.repairs import repairs

ACCOUNT = "123456789012"
"""The only one that moto answers for."""

FAKES: tuple[type[Fake], ...] = (
    ec2.PlacementGroup,
    ec2.SecurityGroupEgress,
    eks.AccessEntry,
    eks.Addon,
    eks.Cluster,
    eks.Nodegroup,
    eks.PodIdentityAssociation,
    fsx.DataRepositoryAssociation,
    fsx.FileSystem,
    s3.BucketPolicy,
)

KUBERNETES_VERSIONS = ("1.34", "1.35", "1.36")
IMAGE_PARAMETERS = tuple(
    f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/x86_64/{variant}"
    "/recommended/image_id"
    for version in KUBERNETES_VERSIONS
    for variant in ("standard", "nvidia")
)
BOOTSTRAP_PARAMETER = "/cdk-bootstrap/hnb659fds/version"
BOOTSTRAP_VERSION = "30"


@contextmanager
def fakes_in_moto() -> Iterator[None]:
    """Within it, moto's CloudFormation knows our fakes too, and its own gaps are closed."""
    models = {**parsing.get_model_map(), **{fake.kind: fake for fake in FAKES}}
    Fake.existing.clear()
    with ExitStack() as patches:
        for target, name, value in (
            (parsing, "get_model_map", lambda: models),
            (parsing, "get_model_list", lambda: list(models.values())),
            (parsing, "CustomModel", CustomResource),
            *repairs(),
        ):
            patches.enter_context(patch.object(target, name, value, create=True))
        yield


def publish_parameters(region: str, *, bootstrapped: bool) -> None:
    """What AWS publishes in every region, and (``bootstrapped``) what `cdk bootstrap` leaves.

    Written into the backend, because the API takes no name under /aws from a customer.
    """
    image = ec2_backends[ACCOUNT][region].register_image(name="eks-node", description="")
    values = dict.fromkeys(IMAGE_PARAMETERS, image.id)
    if bootstrapped:
        values[BOOTSTRAP_PARAMETER] = BOOTSTRAP_VERSION
    parameters = ssm_backends[ACCOUNT][region]._parameters
    for name, value in values.items():
        parameters[name] = [_parameter(name, value)]


def publish_assets(region: str, keys: Iterable[str]) -> None:
    """An empty archive under each key of the bucket that `cdk bootstrap` makes."""
    s3 = boto3.client("s3", region)
    bucket = f"cdk-hnb659fds-assets-{ACCOUNT}-{region}"
    elsewhere = {"CreateBucketConfiguration": {"LocationConstraint": region}}
    s3.create_bucket(Bucket=bucket, **({} if region == "us-east-1" else elsewhere))
    archive = BytesIO()
    ZipFile(archive, "w").close()
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=archive.getvalue())


def _parameter(name: str, value: str) -> Any:
    return Parameter(
        account_id=ACCOUNT,
        name=name,
        value=value,
        parameter_type="String",
        description=None,
        allowed_pattern=None,
        keyid=None,
        last_modified_date=datetime(2026, 1, 1, tzinfo=UTC),
        version=1,
        data_type="text",
    )
