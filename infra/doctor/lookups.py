"""What several checks ask AWS for: whole lists, deployed stacks, what is the deployment's own."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from botocore.exceptions import ClientError

from infra import names
from infra.aws import Clients, error_code
from infra.settings import InfraSettings
from infra.teardown.plan import MADE_ANEW

ABSENT = frozenset({None, "DELETE_COMPLETE", "REVIEW_IN_PROGRESS", *MADE_ANEW})
"""States of a stack of which a deploy finds nothing: it creates all of it."""


def all_pages(client: Any, operation: str, key: str, **arguments: Any) -> list[Any]:
    """The items under ``key`` on every page of the operation's answer."""
    pages = client.get_paginator(operation).paginate(**arguments)
    return [item for page in pages for item in page.get(key, ())]


def storage_file_system_id(clients: Clients, settings: InfraSettings) -> str | None:
    """The file system that the storage stack has made; None before its first deploy."""
    stack = names.stack_name(settings, names.STORAGE)
    try:
        resources = clients("cloudformation").describe_stack_resources(StackName=stack)
    except ClientError as problem:
        if not _is_absent(problem):
            raise
        return None
    for resource in resources["StackResources"]:
        deleted = resource.get("ResourceStatus") == "DELETE_COMPLETE"
        if resource["ResourceType"] == "AWS::FSx::FileSystem" and not deleted:
            # None while its creation is only just beginning.
            return resource.get("PhysicalResourceId") or None
    return None


def stack_status(clients: Clients, stack: str) -> str | None:
    """Of a stack of CloudFormation, by its name; None if there is none."""
    try:
        stacks = clients("cloudformation").describe_stacks(StackName=stack)["Stacks"]
    except ClientError as problem:
        if not _is_absent(problem):
            raise
        return None
    return str(stacks[0]["StackStatus"]) if stacks else None


def deployed_resources(clients: Clients, stack: str) -> dict[str, list[Mapping[str, Any]]]:
    """Properties by type of resource, of the template that a deploy would change.

    Empty where the stack does not exist, or will be made anew: nothing of it is kept.
    """
    if stack_status(clients, stack) in ABSENT:
        return {}
    body = clients("cloudformation").get_template(StackName=stack)["TemplateBody"]
    template = json.loads(body) if isinstance(body, str) else body
    found: dict[str, list[Mapping[str, Any]]] = {}
    for resource in template["Resources"].values():
        found.setdefault(resource["Type"], []).append(resource.get("Properties", {}))
    return found


def scaling_group(clients: Clients, name: str) -> Mapping[str, Any] | None:
    """An Auto Scaling group by its name; None if there is none."""
    answer = clients("autoscaling").describe_auto_scaling_groups(AutoScalingGroupNames=[name])
    groups: list[Mapping[str, Any]] = answer["AutoScalingGroups"]
    return groups[0] if groups else None


def parameter(clients: Clients, name: str) -> str | None:
    """The value of a parameter of Systems Manager; None if there is none."""
    try:
        value: str = clients("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    except ClientError as problem:
        if error_code(problem) != "ParameterNotFound":
            raise
        return None
    return value


def running_nodes(clients: Clients, settings: InfraSettings, group: str) -> Counter[str]:
    """Instances that the group's Auto Scaling group has now, by the reservation they run in.

    Those that run on demand, in none, are not counted.
    """
    reservations = all_pages(
        clients("ec2"),
        "describe_instances",
        "Reservations",
        Filters=[
            {
                "Name": "tag:aws:autoscaling:groupName",
                "Values": [settings.auto_scaling_group_name(group)],
            },
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
        ],
    )
    instances = [each for reservation in reservations for each in reservation["Instances"]]
    ids = (instance.get("CapacityReservationId") for instance in instances)
    return Counter(reservation_id for reservation_id in ids if reservation_id)


def _is_absent(problem: ClientError) -> bool:
    # CloudFormation has no code of its own for a stack that does not exist.
    return error_code(problem) == "ValidationError" and "does not exist" in str(problem)
