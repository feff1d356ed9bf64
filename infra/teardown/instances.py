"""Which training nodes EC2 has: what can still mount the file system of a silent cluster."""

from collections.abc import Sequence
from typing import Any

from infra.settings import InfraSettings
from infra.teardown.plan import FoundStack, scaling_groups

NOT_GONE = ("pending", "running", "stopping", "stopped", "shutting-down")
"""One that is shutting down may still write a last checkpoint; a stopped one may start again."""


def training_instances(
    ec2: Any, settings: InfraSettings, stacks: Sequence[FoundStack]
) -> tuple[str, ...]:
    """Their ids, sorted. System nodes are of no group of ours, and do not count."""
    filters = [
        {"Name": f"tag:kubernetes.io/cluster/{settings.name}", "Values": ["owned"]},
        {"Name": "tag:aws:autoscaling:groupName", "Values": scaling_groups(settings, stacks)},
        {"Name": "instance-state-name", "Values": list(NOT_GONE)},
    ]
    pages = ec2.get_paginator("describe_instances").paginate(Filters=filters)
    reservations = (each for page in pages for each in page["Reservations"])
    return tuple(sorted(i["InstanceId"] for each in reservations for i in each["Instances"]))
