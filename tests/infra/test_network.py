"""The VPC, and every rule of every security group."""

from typing import Any

import pytest

from deployment import Deployment
from infra.network_settings import NetworkSettings
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized, as_text

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
    """Every rule between two groups; the endpoints' one names a network instead."""
    found = []
    for direction, kind, peer in (
        ("from", "AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("to", "AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ):
        for stack in synthesized.stacks:
            for rule in synthesized.resources(stack, kind):
                if "CidrIp" in rule:
                    continue
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
            assert "CidrIpv6" not in rule
            assert "SourcePrefixListId" not in rule
            assert ("SourceSecurityGroupId" in rule) != (rule.get("CidrIp") == "10.0.0.0/16")


@pytest.mark.parametrize("name", NAMES)
def test_only_training_nodes_may_call_anywhere(synthesized: Synthesize, name: str) -> None:
    egress = {
        group["GroupDescription"]: [rule["CidrIp"] for rule in group["SecurityGroupEgress"]]
        for group in synthesized(name).resources("network", "AWS::EC2::SecurityGroup")
    }
    assert egress.pop("Training nodes: EFA and IP") == ["0.0.0.0/0"]
    # What CDK writes for "nothing": EC2 opens a group that has no rule at all.
    assert set(map(tuple, egress.values())) == {("255.255.255.255/32",)}
    assert "FSx for Lustre file system" in egress


@pytest.mark.parametrize("name", NAMES)
def test_every_rule_that_fsx_checks_exists_before_the_file_system(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    assert not template.resources("storage", "AWS::EC2::SecurityGroupIngress")
    assert not template.resources("storage", "AWS::EC2::SecurityGroupEgress")
    network = {"network": template.stacks["network"]}
    made_first = [
        rule
        for rule in rules(Synthesized(template.deployment, network))
        if rule[0] == "lustre" and rule[2] in ("lustre", "efa")
    ]
    assert len(made_first) == 8


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


@pytest.mark.parametrize("name", NAMES)
def test_training_nodes_leave_the_vpc_through_nat_and_nothing_else(
    synthesized: Synthesize, name: str
) -> None:
    # A node with several interfaces gets no public address: in a public subnet it never joins.
    template = synthesized(name)
    nodes = template.only(template.nodes, "AWS::AutoScaling::AutoScalingGroup")
    [subnet] = nodes["VPCZoneIdentifier"]
    _, subnet_id = template.follow(subnet, template.nodes)
    [association] = [
        association
        for association in template.resources("network", "AWS::EC2::SubnetRouteTableAssociation")
        if association["SubnetId"] == {"Ref": subnet_id}
    ]
    [route] = [
        route
        for route in template.resources("network", "AWS::EC2::Route")
        if route["RouteTableId"] == association["RouteTableId"]
    ]
    assert route["DestinationCidrBlock"] == "0.0.0.0/0"
    assert "NatGatewayId" in route
    assert "GatewayId" not in route


@pytest.mark.parametrize("name", NAMES)
def test_s3_is_reached_without_the_nat_gateway_from_every_subnet(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    endpoints = template.resources("network", "AWS::EC2::VPCEndpoint")
    [gateway] = [e for e in endpoints if e["VpcEndpointType"] == "Gateway"]
    assert as_text(gateway["ServiceName"]).endswith(".s3")
    tables = template.stacks["network"]["Resources"]
    names = {key for key, value in tables.items() if value["Type"] == "AWS::EC2::RouteTable"}
    assert {table["Ref"] for table in gateway["RouteTableIds"]} == names
    assert len(names) == 4


@pytest.mark.parametrize("name", NAMES)
def test_flow_logs_record_all_traffic_and_are_kept_for_a_month(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    flow_log = template.only("network", "AWS::EC2::FlowLog")
    assert flow_log["TrafficType"] == "ALL"
    owner = template.resource_named_by(flow_log["LogGroupName"], "network")
    assert owner["Properties"]["RetentionInDays"] == 30
    name_of_group = f"/aws/vpc/{template.deployment.name}/flow-logs"
    assert owner["Properties"]["LogGroupName"] == name_of_group


@pytest.mark.parametrize("name", NAMES)
def test_flow_logs_cannot_make_their_log_group_again_once_it_is_deleted(
    synthesized: Synthesize, name: str
) -> None:
    policy = synthesized(name).only("network", "AWS::IAM::Policy")
    actions: set[str] = set()
    for statement in policy["PolicyDocument"]["Statement"]:
        assert statement["Resource"] != "*"
        listed = statement["Action"]
        actions |= {listed} if isinstance(listed, str) else set(listed)
    assert "logs:PutLogEvents" in actions
    assert "logs:CreateLogGroup" not in actions


@pytest.mark.parametrize("name", NAMES)
def test_the_network_is_made_without_any_code_that_runs(synthesized: Synthesize, name: str) -> None:
    kinds = {r["Type"] for r in synthesized(name).stacks["network"]["Resources"].values()}
    assert [kind for kind in kinds if "Lambda" in kind or kind.startswith("Custom::")] == []


def test_a_smaller_vpc_gives_each_private_subnet_a_quarter(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    network = NetworkSettings(vpc_cidr="10.4.0.0/18")
    template = synthesized_as(p5.model_copy(update={"network": network}))
    subnets = template.resources("network", "AWS::EC2::Subnet")
    assert [subnet["CidrBlock"].split("/")[1] for subnet in subnets] == ["26", "26", "20", "20"]
