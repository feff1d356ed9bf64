"""What is still in the VPC of a network stack that will not go, in words.

A VPC or subnet that CloudFormation cannot delete holds something that no stack
made: an interface that EKS or the CNI leaked, or the security group that EKS made.
"""

from collections.abc import Mapping
from typing import Any

from infra.aws import ERRORS, one_line
from infra.wording import some_of

Facts = Mapping[str, Any]

_STACK_TAG = "aws:cloudformation:stack-id"


def what_is_in_the_vpc(cloudformation: Any, ec2: Any, stack_id: str) -> str:
    """In one line, a few of each kind. What could not be asked for is said, never raised."""
    try:
        if not (vpc_id := _vpc_of(cloudformation, stack_id)):
            return "its VPC is gone"
        where = {"Filters": [{"Name": "vpc-id", "Values": [vpc_id]}]}
        found = {
            "network interfaces": [_interface(each) for each in _interfaces(ec2, where)],
            "security groups": [_group(each) for each in _security_groups(ec2, where)],
            "endpoints": [_endpoint(each) for each in _endpoints(ec2, where)],
        }
    except ERRORS as error:
        return f"what is still in its VPC could not be asked for: {one_line(error)}"
    lists = [f"{len(each)} {kind}: {some_of(each)}" for kind, each in found.items() if each]
    return (
        f"still in {vpc_id}: {', and '.join(lists) or 'nothing that holds it, so wait and retry'}"
    )


def _vpc_of(cloudformation: Any, stack_id: str) -> str | None:
    answer = cloudformation.describe_stack_resources(StackName=stack_id)
    for resource in answer["StackResources"]:
        deleted = resource["ResourceStatus"] == "DELETE_COMPLETE"
        if resource["ResourceType"] == "AWS::EC2::VPC" and not deleted:
            return resource.get("PhysicalResourceId") or None
    return None


def _interfaces(ec2: Any, where: dict[str, Any]) -> list[Facts]:
    pages = ec2.get_paginator("describe_network_interfaces").paginate(**where)
    return [each for page in pages for each in page["NetworkInterfaces"]]


def _security_groups(ec2: Any, where: dict[str, Any]) -> list[Facts]:
    """Those of nobody's stack first: the VPC's own default group goes with it."""
    pages = ec2.get_paginator("describe_security_groups").paginate(**where)
    groups = [each for page in pages for each in page["SecurityGroups"]]
    others = [group for group in groups if group["GroupName"] != "default"]
    return sorted(others, key=_is_of_a_stack)


def _endpoints(ec2: Any, where: dict[str, Any]) -> list[Facts]:
    pages = ec2.get_paginator("describe_vpc_endpoints").paginate(**where)
    endpoints = [each for page in pages for each in page["VpcEndpoints"]]
    return [each for each in endpoints if each.get("State", "").lower() != "deleted"]


def _is_of_a_stack(facts: Facts) -> bool:
    return any(tag["Key"] == _STACK_TAG for tag in facts.get("Tags", ()))


def _interface(facts: Facts) -> str:
    said = facts.get("Description") or facts.get("InterfaceType", "no description")
    return f"{facts['NetworkInterfaceId']} ({said}, {facts.get('Status', 'unknown')})"


def _group(facts: Facts) -> str:
    return f"{facts['GroupId']} ({facts['GroupName']})"


def _endpoint(facts: Facts) -> str:
    return f"{facts['VpcEndpointId']} ({facts['ServiceName']})"
