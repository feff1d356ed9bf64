"""Interface endpoints: which there are, and who may use them."""

from typing import Any

import pytest

from deployment import Deployment
from infra.network_settings import NetworkSettings
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized

SERVICES = {
    "ecr.api",
    "ecr.dkr",
    "ec2",
    "sts",
    "eks",
    "eks-auth",
    "logs",
    "fsx",
    "autoscaling",
    "ssm",
    "ssmmessages",
    "ec2messages",
}
WITHOUT = ["g5", "rehearsal"]
WITH = [name for name in NAMES if name not in WITHOUT]


def interface_endpoints(synthesized: Synthesized) -> list[dict[str, Any]]:
    endpoints = synthesized.resources("network", "AWS::EC2::VPCEndpoint")
    return [e for e in endpoints if e["VpcEndpointType"] == "Interface"]


@pytest.mark.parametrize("name", WITH)
def test_every_service_that_a_node_calls_has_one_endpoint(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    prefix = f"com.amazonaws.{template.deployment.region}."
    names = [e["ServiceName"].removeprefix(prefix) for e in interface_endpoints(template)]
    assert sorted(names) == sorted(SERVICES)


@pytest.mark.parametrize("name", WITHOUT)
def test_a_deployment_that_does_not_ask_pays_for_no_endpoint(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    assert interface_endpoints(template) == []
    assert len(template.resources("network", "AWS::EC2::SecurityGroup")) == 2


@pytest.mark.parametrize("name", WITH)
def test_endpoints_answer_under_the_public_name_in_both_private_subnets(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    vpc = template.only("network", "AWS::EC2::VPC")
    assert (vpc["EnableDnsSupport"], vpc["EnableDnsHostnames"]) == (True, True)
    zones = [template.deployment.training_zone, template.deployment.second_zone]
    for endpoint in interface_endpoints(template):
        assert endpoint["PrivateDnsEnabled"] is True
        subnets = [
            template.resource_named_by(subnet, "network")["Properties"]
            for subnet in endpoint["SubnetIds"]
        ]
        assert [subnet["AvailabilityZone"] for subnet in subnets] == zones
        assert [subnet["CidrBlock"].split("/")[1] for subnet in subnets] == ["18", "18"]


def test_endpoints_admit_https_from_the_vpc_and_call_nobody(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    network = NetworkSettings(vpc_cidr="10.4.0.0/17", interface_endpoints=True)
    template = synthesized_as(p5.model_copy(update={"network": network}))
    groups = {str(e["SecurityGroupIds"]) for e in interface_endpoints(template)}
    assert len(groups) == 1
    [group] = interface_endpoints(template)[0]["SecurityGroupIds"]
    owner = template.resource_named_by(group, "network")["Properties"]
    assert owner["GroupDescription"] == "Interface endpoints of AWS services"
    assert [rule["CidrIp"] for rule in owner["SecurityGroupEgress"]] == ["255.255.255.255/32"]
    admitted = [
        (rule["IpProtocol"], rule["FromPort"], rule["ToPort"], rule.get("CidrIp"))
        for stack in template.stacks
        for rule in template.resources(stack, "AWS::EC2::SecurityGroupIngress")
        if rule["GroupId"] == group
    ]
    assert admitted == [("tcp", 443, 443, "10.4.0.0/17")]
