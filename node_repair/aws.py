"""EC2 and Auto Scaling, as much of them as a pass needs; one line for whatever goes wrong.

Membership of a group is read from the tag that Auto Scaling puts on its
instances, so one right to look is enough.
"""

from collections.abc import Iterable, Mapping

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from node_repair.errors import CallError
from node_repair.model import Instance
from node_repair.settings import RepairSettings

GROUP_TAG = "aws:autoscaling:groupName"

# A pass must end within the deadline that its Job has.
_LIMITS = Config(
    connect_timeout=5, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 2}
)


class Fleet:
    def __init__(self, settings: RepairSettings) -> None:
        self._settings = settings
        try:
            session = boto3.Session(region_name=settings.region)
            self._ec2 = session.client("ec2", config=_LIMITS)
            self._autoscaling = session.client("autoscaling", config=_LIMITS)
        except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is no URL
            raise _explained("AWS", error) from error

    def instances(self) -> dict[str, Instance]:
        """The instances of the deployment's groups that belong to its cluster, by id.

        Raises:
            CallError: EC2 could not be asked.
        """
        owned = {
            f"tag:{GROUP_TAG}": self._settings.auto_scaling_groups,
            f"tag:kubernetes.io/cluster/{self._settings.cluster}": ("owned",),
        }
        return self._describe(owned)

    def known(self, ids: Iterable[str]) -> dict[str, Instance]:
        """Those of ``ids`` that EC2 still knows, whatever tags they have lost.

        Raises:
            CallError: EC2 could not be asked.
        """
        wanted = sorted(ids)
        # As a filter, because an unknown id would be an error as an argument.
        return self._describe({"instance-id": wanted}) if wanted else {}

    def terminate(self, id: str) -> None:
        """Let its group end the instance and start another one in its place.

        Raises:
            CallError: it was refused.
        """
        try:
            self._autoscaling.terminate_instance_in_auto_scaling_group(
                InstanceId=id, ShouldDecrementDesiredCapacity=False
            )
        except (BotoCoreError, ClientError) as error:
            raise _explained(f"cannot terminate {id}", error) from error

    def _describe(self, filters: Mapping[str, Iterable[str]]) -> dict[str, Instance]:
        wanted = [{"Name": name, "Values": list(values)} for name, values in filters.items()]
        pages = self._ec2.get_paginator("describe_instances").paginate(Filters=wanted)
        try:
            found = [i for page in pages for r in page["Reservations"] for i in r["Instances"]]
        except (BotoCoreError, ClientError) as error:
            raise _explained("cannot list instances", error) from error
        return {
            instance["InstanceId"]: Instance(
                instance["InstanceId"], instance["State"]["Name"], _group_of(instance)
            )
            for instance in found
        }


def _group_of(instance: Mapping[str, list[dict[str, str]]]) -> str | None:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags", [])}
    return tags.get(GROUP_TAG)


def _explained(what: str, error: Exception) -> CallError:
    said = " ".join(str(error).split())
    remedy = "look at the role of the pod, the region and AWS_ENDPOINT_URL"
    return CallError(f"{what}: {said}; {remedy}")
