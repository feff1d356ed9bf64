"""Instances of an Auto Scaling group in moto, as those of the deployment's node group are."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from infra.aws import Clients
from tests.infra.teardown.conftest import NAME


@contextmanager
def training_nodes(
    client: Clients, num_nodes: int, *, group: str = f"{NAME}-g5", cluster: str = NAME
) -> Iterator[list[str]]:
    """Gives their ids; at the end the group is gone, and they are terminated."""
    ec2, autoscaling = client("ec2"), client("autoscaling")
    template: dict[str, Any] = {"ImageId": "ami-12c6146b", "InstanceType": "g5.8xlarge"}
    ec2.create_launch_template(LaunchTemplateName=group, LaunchTemplateData=template)
    tag = {"Key": f"kubernetes.io/cluster/{cluster}", "Value": "owned", "PropagateAtLaunch": True}
    autoscaling.create_auto_scaling_group(
        AutoScalingGroupName=group,
        LaunchTemplate={"LaunchTemplateName": group, "Version": "$Latest"},
        MinSize=0,
        MaxSize=num_nodes,
        DesiredCapacity=num_nodes,
        AvailabilityZones=["us-east-1a"],
        Tags=[tag],
    )
    try:
        described = autoscaling.describe_auto_scaling_groups(AutoScalingGroupNames=[group])
        [found] = described["AutoScalingGroups"]
        yield sorted(instance["InstanceId"] for instance in found["Instances"])
    finally:
        autoscaling.delete_auto_scaling_group(AutoScalingGroupName=group, ForceDelete=True)
        ec2.delete_launch_template(LaunchTemplateName=group)
