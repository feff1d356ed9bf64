"""The VPC, and every rule of every security group."""

from typing import Any

import pytest

from deployment import Deployment
from infra.settings import NetworkSettings
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized

ALL = ("-1", None, None)
LUSTRE = [("tcp", 988, 988), ("tcp", 1018, 1023)]
NAMES_OF_GROUPS = {
    "Training nodes: EFA and IP": "efa",
    "FSx for Lustre file system": "lustre",
}

# (group, direction, peer, protocol and ports)
EXPECTED_RULES = {
    ("efa", "from", "efa", ALL),
    ("efa", "to", "efa", ALL),
    ("efa", "from", "cluster", ALL),
    ("cluster", "from", "efa", ALL),
    *(("efa", "from", "lustre", ports) for ports in LUSTRE),
    *(("cluster", "from", "lustre", ports) for ports in LUSTRE),
    *(
        ("lustre", direction, peer, ports)
        for direction in ("from", "to")
        for peer in ("lustre", "efa", "cluster")
        for ports in LUSTRE
    ),
}


def group_name(synthesized: Synthesized, reference: Any, stack: str) -> str:
    resource = synthesized.resource_named_by(reference, stack)
    if resource["Type"] == "AWS::EKS::Cluster":
        return "cluster"
    return NAMES_OF_GROUPS[resource["Properties"]["GroupDescription"]]


def rules(synthesized: Synthesized) -> list[tuple[str, str, str, Any]]:
    found = []
    for direction, kind, peer in (
        ("from", "AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("to", "AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ):
        for stack in synthesized.stacks:
            for rule in synthesized.resources(stack, kind):
                found.append(
                    (
                        group_name(synthesized, rule["GroupId"], stack),
                        direction,
                        group_name(synthesized, rule[peer], stack),
                        (rule["IpProtocol"], rule.get("FromPort"), rule.get("ToPort")),
                    )
                )
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_groups_have_these_rules_and_no_other(synthesized: Synthesize, name: str) -> None:
    found = rules(synthesized(name))
    assert set(found) == EXPECTED_RULES
    assert len(found) == len(EXPECTED_RULES)


@pytest.mark.parametrize("name", NAMES)
def test_no_group_lets_the_internet_in(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    for stack in template.stacks:
        for group in template.resources(stack, "AWS::EC2::SecurityGroup"):
            assert "SecurityGroupIngress" not in group
        for rule in template.resources(stack, "AWS::EC2::SecurityGroupIngress"):
            assert "SourceSecurityGroupId" in rule
            assert "CidrIp" not in rule


def test_only_nodes_may_call_anywhere_and_the_file_system_may_not(synthesized: Synthesize) -> None:
    egress = {
        group["GroupDescription"]: group["SecurityGroupEgress"][0]["CidrIp"]
        for group in synthesized("p5").resources("network", "AWS::EC2::SecurityGroup")
    }
    assert egress == {
        "Training nodes: EFA and IP": "0.0.0.0/0",
        # What CDK writes for "nothing": EC2 opens a group that has no rule at all.
        "FSx for Lustre file system": "255.255.255.255/32",
    }


def test_every_rule_of_the_file_system_exists_before_it_does(synthesized: Synthesize) -> None:
    assert not synthesized("p5").resources("storage", "AWS::EC2::SecurityGroupIngress")
    own = [rule for rule in rules(synthesized("p5")) if rule[0] == "lustre" and rule[2] == "lustre"]
    assert len(own) == 4


@pytest.mark.parametrize("name", NAMES)
def test_the_vpc_spans_both_zones_and_no_subnet_gives_public_addresses(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    subnets = template.resources("network", "AWS::EC2::Subnet")
    zones = [template.deployment.training_zone, template.deployment.second_zone]
    assert [subnet["AvailabilityZone"] for subnet in subnets] == [*zones, *zones]
    assert not any(subnet["MapPublicIpOnLaunch"] for subnet in subnets)
    assert [subnet["CidrBlock"].split("/")[1] for subnet in subnets] == ["24", "24", "18", "18"]


def test_the_nat_gateway_is_in_the_training_zone(synthesized: Synthesize) -> None:
    template = synthesized("p5")
    gateway = template.only("network", "AWS::EC2::NatGateway")
    subnet = template.resource_named_by(gateway["SubnetId"], "network")
    assert subnet["Properties"]["AvailabilityZone"] == "us-east-1a"


def test_s3_is_reached_without_the_nat_gateway_from_private_subnets(
    synthesized: Synthesize,
) -> None:
    endpoint = synthesized("p5").only("network", "AWS::EC2::VPCEndpoint")
    assert endpoint["VpcEndpointType"] == "Gateway"
    assert len(endpoint["RouteTableIds"]) == 4


def test_flow_logs_are_kept_for_a_month(synthesized: Synthesize) -> None:
    assert synthesized("p5").only("network", "AWS::EC2::FlowLog")["TrafficType"] == "ALL"
    assert synthesized("p5").only("network", "AWS::Logs::LogGroup") == {
        "LogGroupName": "/aws/vpc/steadfast-p5/flow-logs",
        "RetentionInDays": 30,
        "Tags": [{"Key": "deployment", "Value": "steadfast-p5"}],
    }


def test_a_smaller_vpc_gives_each_private_subnet_a_quarter(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    network = NetworkSettings(vpc_cidr="10.4.0.0/18")
    template = synthesized_as(p5.model_copy(update={"network": network}))
    subnets = template.resources("network", "AWS::EC2::Subnet")
    assert [subnet["CidrBlock"].split("/")[1] for subnet in subnets] == ["26", "26", "20", "20"]
