"""CloudFormation's answers about a deployed stack, as the stubs give them."""

import json
from typing import Any

from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import Answer
from tests.infra.templates import ROOT


def stack(name: str, status: str = "CREATE_COMPLETE") -> dict[str, Any]:
    return {"StackName": name, "CreationTime": NOW, "StackStatus": status}


def status_of(name: str, status: str | None) -> Answer:
    """DescribeStacks of one; None of a stack that does not exist."""
    stacks = [] if status is None else [stack(name, status)]
    return ("cloudformation", "describe_stacks", {"Stacks": stacks})


def template_of(name: str, *resources: tuple[str, dict[str, Any]]) -> list[Answer]:
    """What is asked for a template that is deployed: types and properties."""
    body = {
        "Resources": {
            f"Resource{index}": {"Type": kind, "Properties": properties}
            for index, (kind, properties) in enumerate(resources)
        }
    }
    template = ("cloudformation", "get_template", {"TemplateBody": json.dumps(body)})
    return [status_of(name, "CREATE_COMPLETE"), template]


def synthesized(deployment: str, purpose: str) -> list[Answer]:
    """The same of a template as it is synthesized from a shipped deployment file."""
    body = (ROOT / "tests/golden/infra" / deployment / f"{purpose}.json").read_text()
    template = ("cloudformation", "get_template", {"TemplateBody": body})
    return [status_of(purpose, "UPDATE_COMPLETE"), template]


def system_nodes(
    version: str = "1.35", num_nodes: int = 2, instance_type: str = "m7i.xlarge"
) -> list[Answer]:
    """Of the cluster stack, in the form of ``infra.system_nodes``."""
    scaling = {"MinSize": 1, "DesiredSize": num_nodes, "MaxSize": num_nodes + 1}
    return template_of(
        "steadfast-p5-cluster",
        ("AWS::EKS::Nodegroup", {"Version": version, "ScalingConfig": scaling}),
        ("AWS::EC2::LaunchTemplate", {"LaunchTemplateData": {"InstanceType": instance_type}}),
    )


def scheduled(*actions: tuple[str, int]) -> list[Answer]:
    """Of the stack of group p5: moments, and the number of nodes from then on."""
    sizes = [
        {"StartTime": at, "MinSize": 0, "MaxSize": nodes, "DesiredCapacity": nodes}
        for at, nodes in actions
    ]
    return template_of(
        "steadfast-p5-nodes-p5", *(("AWS::AutoScaling::ScheduledAction", each) for each in sizes)
    )


def scaling_group(max_size: int | None) -> Answer:
    """None where there is no such Auto Scaling group."""
    facts = {
        "AutoScalingGroupName": "steadfast-p5-p5",
        "MinSize": 0,
        "MaxSize": max_size,
        "DesiredCapacity": max_size,
        "DefaultCooldown": 300,
        "AvailabilityZones": ["us-east-1a"],
        "HealthCheckType": "EC2",
        "CreatedTime": NOW,
    }
    groups = [] if max_size is None else [facts]
    return ("autoscaling", "describe_auto_scaling_groups", {"AutoScalingGroups": groups})
