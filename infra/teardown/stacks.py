"""The deployment's stacks in CloudFormation: which there are, and how one is deleted."""

import logging
from typing import Any

from infra import names
from infra.aws import ERRORS, one_line
from infra.settings import InfraSettings
from infra.teardown.plan import FoundStack, belongs
from infra.teardown.waiting import Pace, StepFailed, wait_until_gone

logger = logging.getLogger(__name__)

DEPLOYMENT_TAG = "deployment"


def find_stacks(client: Any, settings: InfraSettings) -> tuple[FoundStack, ...]:
    """Those of the file, also where somebody else has made them, and tagged ones it no longer has.

    Such as the stack of a removed node group, or the platform without ``kubectl_provider``.
    """
    in_file = {names.stack_name(settings, purpose) for purpose in names.purposes(settings)}
    wanted = {DEPLOYMENT_TAG: settings.name}
    found = []
    for page in client.get_paginator("describe_stacks").paginate():
        for stack in page["Stacks"]:
            name = stack["StackName"]
            tags = {tag["Key"]: tag["Value"] for tag in stack.get("Tags", [])}
            ours = wanted.items() <= tags.items()
            if stack["StackStatus"] == "DELETE_COMPLETE" or not belongs(settings, name):
                continue
            if not ours and name not in in_file:
                continue
            found.append(
                FoundStack(
                    name=name,
                    stack_id=stack["StackId"],
                    status=stack["StackStatus"],
                    ours=ours,
                    protected=bool(stack.get("EnableTerminationProtection")),
                )
            )
    return tuple(found)


def delete_stack(client: Any, stack: FoundStack, pace: Pace) -> None:
    """Returns when it is gone. A deletion that fails is tried again, a few times.

    The first may fail through no fault: EKS and Lambda give network interfaces
    back minutes after they are gone themselves.

    Raises:
        StepFailed: it could not be deleted; says which resource stands in the way.
    """
    for attempt in range(1, pace.stack_attempts + 1):
        try:
            client.delete_stack(StackName=stack.stack_id)
            wait_until_gone(
                pace,
                pace.stack_seconds,
                lambda: _in_progress(client, stack),
                remedy="CloudFormation goes on by itself; run again to wait on",
            )
            status = _status(client, stack)
            if status == "DELETE_COMPLETE":
                return
            reason = why_failed(client, stack.stack_id) or "CloudFormation gives no reason"
        except ERRORS as error:
            raise StepFailed(f"stack {stack.name}: {one_line(error)}") from error
        if attempt < pace.stack_attempts:
            logger.warning(
                "Stack %s is %s: %s; trying again in %.0f s",
                stack.name,
                status,
                reason,
                pace.retry_seconds,
            )
            pace.sleep(pace.retry_seconds)
    raise StepFailed(
        f"stack {stack.name} is {status} after {pace.stack_attempts} attempts: {reason}; "
        "remove what holds it, then run again"
    )


def why_failed(client: Any, stack_id: str) -> str:
    """The resources that the newest deletion could not delete, in one line; empty if none."""
    resources, stack = [], ""
    pages = client.get_paginator("describe_stack_events").paginate(StackName=stack_id)
    for event in (event for page in pages for event in page["StackEvents"]):  # newest first
        status, of_stack = event["ResourceStatus"], event["PhysicalResourceId"] == stack_id
        if of_stack and status == "DELETE_IN_PROGRESS":
            break
        said = " ".join(event.get("ResourceStatusReason", "").split())
        if of_stack:
            stack = stack or said
        elif status == "DELETE_FAILED":
            resources.append(f"{event['LogicalResourceId']}: {said}")
    # The stack's own event only counts its resources, unless an export of it is in use.
    return "; ".join(reversed(resources)) or stack


def _in_progress(client: Any, stack: FoundStack) -> str | None:
    status = _status(client, stack)
    return f"stack {stack.name} is {status}" if status == "DELETE_IN_PROGRESS" else None


def _status(client: Any, stack: FoundStack) -> str:
    """By id, under which a deleted stack is known for 90 days."""
    stacks = client.describe_stacks(StackName=stack.stack_id)["Stacks"]
    return str(stacks[0]["StackStatus"])
