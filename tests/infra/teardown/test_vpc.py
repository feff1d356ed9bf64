"""A network stack that will not go says what is still in its VPC."""

from typing import Any

import boto3
import pytest
from moto import mock_aws

from deployment import load
from infra.aws import clients_of
from infra.kubectl import kubectl_for
from infra.teardown import steps
from infra.teardown.plan import Found, FoundStack, Kind, Step
from infra.teardown.vpc import what_is_in_the_vpc
from infra.teardown.waiting import Pace, StepFailed
from tests.infra.doctor.stand_ins import resources, stubbed
from tests.infra.templates import ROOT

SETTINGS = load(ROOT / "deployments/g5.yaml")


def asked(ec2: Any, vpc: str) -> str:
    stack = stubbed(
        ("cloudformation", "describe_stack_resources", resources(("AWS::EC2::VPC", vpc)))
    )
    return what_is_in_the_vpc(stack("cloudformation"), ec2, "arn:network")


@pytest.fixture
def ec2(monkeypatch: pytest.MonkeyPatch) -> Any:
    """moto, an imitation of EC2 inside this process."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        yield clients_of(boto3.Session(region_name="us-east-1"))("ec2")


def test_interfaces_groups_and_endpoints_of_the_vpc_alone_are_named(ec2: Any) -> None:
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/18")["Subnet"]["SubnetId"]
    leaked = ec2.create_network_interface(SubnetId=subnet, Description="aws-K8S-i-0123")
    eni = leaked["NetworkInterface"]["NetworkInterfaceId"]
    name = "eks-cluster-sg-steadfast-g5-1"
    group = ec2.create_security_group(GroupName=name, Description="EKS", VpcId=vpc)["GroupId"]
    service = "com.amazonaws.us-east-1.s3"
    endpoint = ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=service)["VpcEndpoint"]
    other = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    ec2.create_security_group(GroupName="of-another", Description="other", VpcId=other)
    assert asked(ec2, vpc) == (
        f"still in {vpc}: 1 network interfaces: {eni} (aws-K8S-i-0123, available), and "
        f"1 security groups: {group} ({name}), and "
        f"1 endpoints: {endpoint['VpcEndpointId']} ({service})"
    )
    assert asked(ec2, other).count("sg-") == 1


def test_many_interfaces_are_counted_and_some_named(ec2: Any) -> None:
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/18")["Subnet"]["SubnetId"]
    for _ in range(40):
        ec2.create_network_interface(SubnetId=subnet, Description="leaked")
    said = asked(ec2, vpc)
    assert "40 network interfaces: eni-" in said
    assert said.count("eni-") == 4
    assert said.endswith("and 36 more")


def test_a_group_that_no_stack_made_comes_before_the_stacks_own() -> None:
    own = {"Key": "aws:cloudformation:stack-id", "Value": "arn:network"}
    groups = [
        {"GroupId": "sg-1", "GroupName": "efa", "Tags": [own]},
        {"GroupId": "sg-2", "GroupName": "default"},
        {"GroupId": "sg-3", "GroupName": "eks-cluster-sg-a-1"},
    ]
    answers = stubbed(
        ("ec2", "describe_network_interfaces", {"NetworkInterfaces": []}),
        ("ec2", "describe_security_groups", {"SecurityGroups": groups}),
        ("ec2", "describe_vpc_endpoints", {"VpcEndpoints": []}),
    )
    said = asked(answers("ec2"), "vpc-1")
    assert said == "still in vpc-1: 2 security groups: sg-3 (eks-cluster-sg-a-1), sg-1 (efa)"


def test_what_may_not_be_asked_for_hides_no_failure() -> None:
    denied = stubbed(("ec2", "describe_network_interfaces", "UnauthorizedOperation"))
    assert "not allowed to call DescribeNetworkInterfaces" in asked(denied("ec2"), "vpc-1")


@pytest.mark.parametrize(("purpose", "says"), [("network", True), ("storage", False)])
def test_only_the_failure_of_the_network_stack_says_it(
    ec2: Any, monkeypatch: pytest.MonkeyPatch, purpose: str, says: bool
) -> None:
    def fails(*_: object) -> None:
        raise StepFailed("stack is DELETE_FAILED")

    monkeypatch.setattr(steps, "delete_stack", fails)
    template = '{"Resources": {"Vpc": {"Type": "AWS::EC2::VPC", "Properties": %s}}}'
    session = boto3.Session(region_name="us-east-1")
    name = f"{SETTINGS.name}-{purpose}"
    made = session.client("cloudformation").create_stack(
        StackName=name, TemplateBody=template % '{"CidrBlock": "10.0.0.0/16"}'
    )
    stack = FoundStack(name, made["StackId"], "DELETE_FAILED", ours=True, protected=False)
    teardown = steps.Teardown(SETTINGS, clients_of(session), kubectl_for(SETTINGS), Pace())
    outcome = teardown.carry_out([Step(Kind.STACK, (name,))], Found(stacks=(stack,)))
    assert outcome.reason.startswith("stack is DELETE_FAILED")
    assert ("; still in vpc-" in outcome.reason) is says
    del ec2
