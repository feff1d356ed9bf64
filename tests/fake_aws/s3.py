"""The fake of the one type of S3 that `cdk bootstrap` makes and moto's CloudFormation lacks."""

from moto.s3.models import s3_backends

from tests.fake_aws.fake import Fake


class BucketPolicy(Fake):
    kind = "AWS::S3::BucketPolicy"

    def create(self) -> None:
        bucket = self.properties["Bucket"]
        s3_backends[self.account]["aws"].head_bucket(bucket)  # raises if there is none
        self.physical_resource_id = bucket
