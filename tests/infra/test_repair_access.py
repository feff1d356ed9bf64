"""What node repair may do in AWS."""

from typing import Any

import aws_cdk as cdk
import cdk8s
import pytest

from deployment import Deployment
from infra.repair_access import NodeRepairAccess
from infra.repair_chart import RepairChart
from tests.infra.templates import as_text

Resource = dict[str, Any]


@pytest.fixture(scope="module")
def resources(p5: Deployment) -> dict[str, Resource]:
    """By type; there is one of each."""
    app = cdk.App()
    stack = cdk.Stack(app, "test", env=cdk.Environment(account=p5.account, region=p5.region))
    NodeRepairAccess(stack, "NodeRepair", settings=p5, cluster_name=p5.name)
    template = app.synth().get_stack_by_name("test").template["Resources"]
    return {resource["Type"]: resource["Properties"] for resource in template.values()}


def test_it_may_look_at_instances_and_end_those_of_its_groups(
    resources: dict[str, Resource],
) -> None:
    statements = resources["AWS::IAM::Policy"]["PolicyDocument"]["Statement"]
    assert [(s["Effect"], s["Action"], as_text(s["Resource"])) for s in statements] == [
        ("Allow", "ec2:DescribeInstances", "*"),
        (
            "Allow",
            "autoscaling:TerminateInstanceInAutoScalingGroup",
            "arn:<AWS::Partition>:autoscaling:us-east-1:111122223333:autoScalingGroup:*:"
            "autoScalingGroupName/steadfast-p5-p5",
        ),
    ]
    assert "ManagedPolicyArns" not in resources["AWS::IAM::Role"]


def test_only_a_pod_can_take_the_role(resources: dict[str, Resource]) -> None:
    [statement] = resources["AWS::IAM::Role"]["AssumeRolePolicyDocument"]["Statement"]
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]


def test_the_role_goes_to_the_service_account_that_the_chart_makes(
    resources: dict[str, Resource], p5: Deployment
) -> None:
    association = resources["AWS::EKS::PodIdentityAssociation"]
    chart = RepairChart(cdk8s.App(), "chart", settings=p5)
    [account] = [d for d in chart.to_json() if d["kind"] == "ServiceAccount"]
    assert association["ClusterName"] == "steadfast-p5"
    assert association["Namespace"] == account["metadata"]["namespace"]
    assert association["ServiceAccount"] == account["metadata"]["name"]
