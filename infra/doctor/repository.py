"""The bucket that mirrors the file system: whether it can, and whether another one does so now.

Not covered: whether whoever deploys may make the service role by which FSx reads and writes it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError

from infra.aws import error_code
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok
from infra.doctor.lookups import storage_file_system_id

BUCKET = "data repository"


def check_repository(case: Case) -> list[Finding]:
    """Nothing where the file has no data repository."""
    if not (path := case.settings.storage.data_repository):
        return []
    bucket = path.removeprefix("s3://").split("/", 1)[0]
    return [
        judge_bucket(bucket, _region_of(case, bucket), case.settings.region),
        *judge_mirror(path, _associations(case)),
    ]


def judge_bucket(bucket: str, region: str | None, wanted: str) -> Finding:
    if region is None:
        remedy = f"make it: aws s3 mb s3://{bucket} --region {wanted}"
        return error(BUCKET, "there is no such bucket", bucket, remedy)
    if region != wanted:
        what = f"the bucket is in {region}, and FSx needs one in {wanted}"
        return error(BUCKET, what, bucket, "name a bucket of the deployment's region")
    return ok(BUCKET, "the bucket exists, in this region", bucket)


def judge_mirror(path: str, associations: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """The root of a file system takes one association, so another cannot be made beside it."""
    return [
        error(
            BUCKET,
            "the file system mirrors another path, and takes only one",
            f"deployed {other}, file {path}",
            "deploy once without storage.data_repository, then with the new one",
        )
        for association in associations
        if (other := association.get("DataRepositoryPath", "")).rstrip("/") != path.rstrip("/")
        and association.get("Lifecycle") != "DELETING"
    ]


def _region_of(case: Case, bucket: str) -> str | None:
    """None if there is no such bucket."""
    try:
        answer = case.clients("s3").head_bucket(Bucket=bucket)
    except ClientError as problem:
        if error_code(problem) not in ("404", "NoSuchBucket"):
            raise
        return None
    return str(answer.get("BucketRegion") or case.settings.region)


def _associations(case: Case) -> list[Mapping[str, Any]]:
    if not (own := storage_file_system_id(case.clients, case.settings)):
        return []
    # One page: a file system has eight of them at the most.
    answer = case.clients("fsx").describe_data_repository_associations(
        Filters=[{"Name": "file-system-id", "Values": [own]}]
    )
    found: list[Mapping[str, Any]] = answer["Associations"]
    return found
