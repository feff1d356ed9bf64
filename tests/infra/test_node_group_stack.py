"""The launch template and the group of the training nodes, as EC2 will read them."""

import email

import pytest
import yaml

from deployment import Deployment
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.groups import group, launch_template, with_nodes
from tests.infra.templates import NAMES, Synthesized, as_text


def efa_slots(synthesized: Synthesized) -> list[tuple[int, int]]:
    return [
        (interface["NetworkCardIndex"], interface["DeviceIndex"])
        for interface in launch_template(synthesized)["NetworkInterfaces"]
        if interface["InterfaceType"] in ("efa", "efa-only")
    ]


@pytest.mark.parametrize("name", ["p5", "p5-capacity-block"])
def test_a_p5_is_launched_with_32_efa_devices(synthesized: Synthesize, name: str) -> None:
    assert efa_slots(synthesized(name)) == [(0, 1), *((card, 0) for card in range(1, 32))]


@pytest.mark.parametrize(
    ("name", "slots"),
    [
        ("p5en", [(0, 1), *((card, 0) for card in range(1, 16))]),
        ("p6-b200", [(0, 1), *((card, 0) for card in range(1, 8))]),
        ("p4de", [(0, 1), (1, 0), (2, 0), (3, 0)]),
        ("g5", [(0, 1)]),
        ("rehearsal", []),
    ],
)
def test_other_types_are_launched_with_what_they_take(
    synthesized: Synthesize, name: str, slots: list[tuple[int, int]]
) -> None:
    assert efa_slots(synthesized(name)) == slots


@pytest.mark.parametrize("name", NAMES)
def test_ip_goes_through_the_first_interface_alone(synthesized: Synthesize, name: str) -> None:
    interfaces = launch_template(synthesized(name))["NetworkInterfaces"]
    kinds = [interface["InterfaceType"] for interface in interfaces]
    assert (kinds[0], set(kinds[1:]) - {"efa-only"}) == ("interface", set())


@pytest.mark.parametrize("name", NAMES)
def test_only_interfaces_carry_groups_and_nothing_names_a_subnet(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    data = launch_template(template)
    assert not {"SubnetId", "SecurityGroupIds", "SecurityGroups"} & set(data)
    for interface in data["NetworkInterfaces"]:
        assert set(interface) == {
            "NetworkCardIndex", "DeviceIndex", "InterfaceType", "Groups", "DeleteOnTermination",
        }  # fmt: skip
        assert interface["DeleteOnTermination"] is True
        [security_group] = interface["Groups"]
        owner = template.resource_named_by(security_group, template.nodes)
        assert owner["Properties"]["GroupDescription"] == "Training nodes: EFA and IP"


@pytest.mark.parametrize("name", NAMES)
def test_the_group_has_one_subnet_in_the_training_zone(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    [subnet] = group(template)["VPCZoneIdentifier"]
    properties = template.resource_named_by(subnet, template.nodes)["Properties"]
    assert properties["AvailabilityZone"] == template.deployment.training_zone
    assert properties["MapPublicIpOnLaunch"] is False


@pytest.mark.parametrize("name", NAMES)
def test_metadata_needs_a_token_and_is_out_of_reach_of_pods(
    synthesized: Synthesize, name: str
) -> None:
    options = launch_template(synthesized(name))["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("required", 1)


@pytest.mark.parametrize("name", NAMES)
def test_the_root_volume_is_encrypted(synthesized: Synthesize, name: str) -> None:
    [device] = launch_template(synthesized(name))["BlockDeviceMappings"]
    assert (device["Ebs"]["Encrypted"], device["Ebs"]["VolumeType"]) == (True, "gp3")


@pytest.mark.parametrize(("name", "variant"), [("p5", "nvidia"), ("rehearsal", "standard")])
def test_the_image_follows_the_hardware(synthesized: Synthesize, name: str, variant: str) -> None:
    template = synthesized(name)
    parameter = launch_template(template)["ImageId"]["Ref"]
    assert template.stacks[template.nodes]["Parameters"][parameter] == {
        "Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
        "Default": "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/"
        f"{variant}/recommended/image_id",
    }


def test_a_pinned_image_is_used_as_it_is(p5: Deployment, synthesized_as: SynthesizeChanged) -> None:
    template = synthesized_as(with_nodes(p5, ami_id="ami-0123456789abcdef0"))
    assert launch_template(template)["ImageId"] == "ami-0123456789abcdef0"


@pytest.mark.parametrize("name", NAMES)
def test_user_data_holds_the_addresses_of_this_very_cluster(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    text = as_text(launch_template(template)["UserData"])
    [config] = [
        yaml.safe_load(str(part.get_payload()))
        for part in email.message_from_string(text).walk()
        if part.get_content_type() == "application/node.eks.aws"
    ]
    cluster = config["spec"]["cluster"]
    assert cluster["name"] == template.deployment.name
    assert cluster["cidr"] == template.deployment.network.service_cidr
    assert "Endpoint" in cluster["apiServerEndpoint"]
    assert "CertificateAuthorityData" in cluster["certificateAuthority"]


@pytest.mark.parametrize("name", NAMES)
def test_nodes_may_join_before_the_first_one_starts(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    resources = template.stacks[template.nodes]["Resources"]
    [entry] = [k for k, r in resources.items() if r["Type"] == "AWS::EKS::AccessEntry"]
    [asg] = [r for r in resources.values() if r["Type"] == "AWS::AutoScaling::AutoScalingGroup"]
    assert resources[entry]["Properties"]["Type"] == "EC2_LINUX"
    assert entry in asg["DependsOn"]
    assert not {"AutoScalingRollingUpdate", "AutoScalingReplacingUpdate"} & set(
        asg.get("UpdatePolicy", {})
    )
