"""Every shipped deployment, created and deleted as CloudFormation would, in a fake account.

tests/fake_aws says which resource types are faked, and what that leaves unproven.
"""

import base64
import email
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.fake_aws.deploy import FakeAccount, account_for, synthesized_here
from tests.fake_aws.fake import Fake
from tests.infra.templates import NAMES

EFA_INTERFACES = {
    "g5": 1,
    "p4de": 4,
    "p5": 32,
    "p5-capacity-block": 32,
    "p5en": 16,
    "p6-b200": 8,
    "rehearsal": 0,
}
NODES = {name: 0 if name == "p5-capacity-block" else 2 for name in NAMES}


@pytest.fixture(scope="module", params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def account(name: str) -> Iterator[FakeAccount]:
    """Holds all stacks of one deployment file. Read it only."""
    with account_for(synthesized_here(name)) as account:
        account.create_stacks()
        yield account


def launch_template_data(account: FakeAccount) -> dict[str, Any]:
    ec2 = account.client("ec2")
    template = auto_scaling_group(account)["LaunchTemplate"]["LaunchTemplateId"]
    [version] = ec2.describe_launch_template_versions(LaunchTemplateId=template)[
        "LaunchTemplateVersions"
    ]
    data: dict[str, Any] = version["LaunchTemplateData"]
    return data


def auto_scaling_group(account: FakeAccount) -> dict[str, Any]:
    groups: list[dict[str, Any]] = account.client("autoscaling").describe_auto_scaling_groups()[
        "AutoScalingGroups"
    ]
    [group] = groups
    return group


def security_groups(account: FakeAccount) -> dict[str, dict[str, Any]]:
    """Those of the deployment's VPC, by id."""
    cidr = account.synthesized.deployment.network.vpc_cidr
    ec2 = account.client("ec2")
    [vpc] = [v for v in ec2.describe_vpcs()["Vpcs"] if v["CidrBlock"] == cidr]
    groups = ec2.describe_security_groups(Filters=[{"Name": "vpc-id", "Values": [vpc["VpcId"]]}])
    return {group["GroupId"]: group for group in groups["SecurityGroups"]}


def test_every_stack_is_created_and_every_reference_resolves(account: FakeAccount) -> None:
    assert account.statuses() == dict.fromkeys(account.synthesized.stacks, "CREATE_COMPLETE")
    assert account.unresolved() == []


def test_ec2_stores_every_efa_interface(account: FakeAccount, name: str) -> None:
    interfaces = launch_template_data(account)["NetworkInterfaces"]
    efa = [i for i in interfaces if i["InterfaceType"] in ("efa", "efa-only")]
    assert len(efa) == EFA_INTERFACES[name]
    assert len({i["NetworkCardIndex"] for i in efa}) == EFA_INTERFACES[name]


def test_each_interface_has_groups_that_exist_in_the_vpc(account: FakeAccount) -> None:
    existing = set(security_groups(account))
    for interface in launch_template_data(account)["NetworkInterfaces"]:
        assert interface["Groups"]
        assert set(interface["Groups"]) <= existing


def test_user_data_is_a_finished_node_config(account: FakeAccount) -> None:
    text = base64.b64decode(launch_template_data(account)["UserData"]).decode()
    assert "Fn::" not in text
    assert "${" not in text
    parts = list(email.message_from_string(text).walk())
    [part] = [part for part in parts if part.get_content_type() == "application/node.eks.aws"]
    config = yaml.safe_load(str(part.get_payload()))
    cluster = config["spec"]["cluster"]
    [made] = [f for f in Fake.existing if f.kind == "AWS::EKS::Cluster"]
    assert cluster["name"] == account.synthesized.deployment.name
    assert cluster["apiServerEndpoint"] == made.attributes["Endpoint"]
    assert cluster["certificateAuthority"] == made.attributes["CertificateAuthorityData"]
    assert cluster["cidr"] == made.properties["KubernetesNetworkConfig"]["ServiceIpv4Cidr"]


def test_nodes_and_cluster_admit_each_other(account: FakeAccount) -> None:
    [made] = [f for f in Fake.existing if f.kind == "AWS::EKS::Cluster"]
    cluster = made.attributes["ClusterSecurityGroupId"]
    on_nodes = set(launch_template_data(account)["NetworkInterfaces"][0]["Groups"])
    if cluster in on_nodes:
        return
    groups = security_groups(account)
    assert on_nodes & admitted_by(groups[cluster])
    assert all(cluster in admitted_by(groups[group]) for group in on_nodes)


def admitted_by(group: dict[str, Any]) -> set[str]:
    return {
        pair["GroupId"]
        for rule in group["IpPermissions"]
        if rule["IpProtocol"] == "-1"
        for pair in rule["UserIdGroupPairs"]
    }


def test_file_system_is_in_the_one_subnet_of_the_nodes(account: FakeAccount) -> None:
    [file_system] = account.client("fsx").describe_file_systems()["FileSystems"]
    subnet = auto_scaling_group(account)["VPCZoneIdentifier"]
    assert file_system["SubnetIds"] == [subnet]
    [found] = account.client("ec2").describe_subnets(SubnetIds=[subnet])["Subnets"]
    assert found["AvailabilityZone"] == account.synthesized.deployment.training_zone


def test_auto_scaling_starts_the_nodes(account: FakeAccount, name: str) -> None:
    group = auto_scaling_group(account)
    instances = [i["LifecycleState"] for i in group["Instances"]]
    assert instances == ["InService"] * NODES[name]


def test_the_nodes_may_join(account: FakeAccount) -> None:
    entries = [f.properties for f in Fake.existing if f.kind == "AWS::EKS::AccessEntry"]
    [entry] = [e for e in entries if e.get("Type") == "EC2_LINUX"]
    profile = launch_template_data(account)["IamInstanceProfile"]["Arn"]
    profiles = account.client("iam").list_instance_profiles()["InstanceProfiles"]
    [roles] = [p["Roles"] for p in profiles if p["Arn"] == profile]
    assert [role["Arn"] for role in roles] == [entry["PrincipalArn"]]


def test_the_volume_is_the_file_system(account: FakeAccount) -> None:
    [file_system] = account.client("fsx").describe_file_systems()["FileSystems"]
    manifests = [
        manifest
        for fake in Fake.existing
        if "Manifest" in fake.properties
        for manifest in json.loads(fake.properties["Manifest"])
    ]
    [volume] = [m for m in manifests if m["kind"] == "PersistentVolume"]
    assert volume["spec"]["csi"]["volumeHandle"] == file_system["FileSystemId"]
    assert volume["spec"]["csi"]["volumeAttributes"] == {
        "dnsname": file_system["DNSName"],
        "mountname": "abcdefgh",
    }
