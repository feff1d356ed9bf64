"""The bucket that mirrors the file system."""

from dataclasses import replace
from typing import Any

import boto3
import pytest

from infra.doctor.case import Case
from infra.doctor.findings import Level
from infra.doctor.repository import check_repository, judge_mirror
from infra.settings import Storage
from tests.infra.doctor.stand_ins import FILE_SYSTEM_ID, resources, stubbed


def with_bucket(case: Case) -> Case:
    storage = Storage(data_repository="s3://a-bucket/checkpoints/")
    return replace(case, settings=case.settings.model_copy(update={"storage": storage}))


def test_no_data_repository_is_no_finding(moto_case: Case) -> None:
    assert check_repository(moto_case) == []


def test_a_bucket_that_does_not_exist_is_an_error(moto_case: Case) -> None:
    [finding] = check_repository(with_bucket(moto_case))
    assert (finding.level, finding.value) == (Level.ERROR, "a-bucket")


@pytest.mark.parametrize(("region", "level"), [("us-east-1", Level.OK), ("eu-west-1", Level.ERROR)])
def test_a_bucket_must_be_in_the_deployments_region(
    moto_case: Case, region: str, level: Level
) -> None:
    place = {} if region == "us-east-1" else {"LocationConstraint": region}
    configuration = {"CreateBucketConfiguration": place} if place else {}
    boto3.client("s3", region_name=region).create_bucket(Bucket="a-bucket", **configuration)
    [finding] = check_repository(with_bucket(moto_case))
    assert finding.level is level


@pytest.mark.parametrize(
    ("deployed", "level"),
    [
        ("s3://a-bucket/checkpoints", None),
        ("s3://a-bucket/other", Level.ERROR),
        ("s3://another", Level.ERROR),
    ],
)
def test_another_mirror_cannot_be_made_beside_the_one_there_is(
    deployed: str, level: Level | None
) -> None:
    association: dict[str, Any] = {"DataRepositoryPath": deployed, "Lifecycle": "AVAILABLE"}
    found = judge_mirror("s3://a-bucket/checkpoints/", [association])
    assert [finding.level for finding in found] == ([level] if level else [])
    assert judge_mirror("s3://x", [{**association, "Lifecycle": "DELETING"}]) == []


def test_the_deployed_mirror_is_looked_up(moto_case: Case) -> None:
    boto3.client("s3", region_name="us-east-1").create_bucket(Bucket="a-bucket")
    others = stubbed(
        (
            "cloudformation",
            "describe_stack_resources",
            resources(("AWS::FSx::FileSystem", FILE_SYSTEM_ID)),
        ),
        (
            "fsx",
            "describe_data_repository_associations",
            {"Associations": [{"DataRepositoryPath": "s3://another"}]},
        ),
    )
    case = with_bucket(moto_case)

    def clients(service: str) -> Any:
        return (case.clients if service == "s3" else others)(service)

    bucket, mirror = check_repository(replace(case, clients=clients))
    assert (bucket.level, mirror.level) == (Level.OK, Level.ERROR)
    assert mirror.value == "deployed s3://another, file s3://a-bucket/checkpoints/"
