"""The fake of CDK's custom resources: records what helm and kubectl would be told, runs neither."""

import json

from moto.awslambda.utils import get_backend

from tests.fake_aws.fake import Fake


class CustomResource(Fake):
    """Its handler must be a Lambda function that exists, and what it is handed must be JSON."""

    kind = "Custom::"

    def create(self) -> None:
        get_backend(self.account, self.region).get_function(self.properties["ServiceToken"])
        for key in ("Manifest", "Values"):
            json.loads(self.properties.get(key, "{}"))
        self.physical_resource_id = self.logical_id
