"""The managed nodes for everything but training, and the launch template that they come from."""

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from pydantic import ValidationError

from deployment import Deployment
from infra.node_groups import SYSTEM_TYPE, SystemNodes
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized

KINDS = [f"{generation}{maker}" for generation in range(1, 10) for maker in ("", *"adgin")]


def group_of(template: Synthesized) -> dict[str, Any]:
    return template.only("cluster", "AWS::EKS::Nodegroup")


def template_data(template: Synthesized) -> dict[str, Any]:
    named = template.resource_named_by(group_of(template)["LaunchTemplate"]["Id"], "cluster")
    data: dict[str, Any] = named["Properties"]["LaunchTemplateData"]
    return data


@pytest.mark.parametrize("name", NAMES)
def test_the_group_runs_the_plain_image_and_lives_with_one_node(
    synthesized: Synthesize, name: str
) -> None:
    group = group_of(synthesized(name))
    assert group["AmiType"] == "AL2023_x86_64_STANDARD"
    assert group["ScalingConfig"] == {"MinSize": 1, "DesiredSize": 2, "MaxSize": 3}
    assert group["NodeRepairConfig"] == {"Enabled": True}
    assert "RemoteAccess" not in group


@pytest.mark.parametrize("name", NAMES)
def test_system_nodes_are_upgraded_with_their_cluster(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    version = template.only("cluster", "AWS::EKS::Cluster")["Version"]
    assert template.only("cluster", "AWS::EKS::Nodegroup")["Version"] == version


@pytest.mark.parametrize("name", NAMES)
def test_the_root_volume_is_encrypted_and_holds_the_image_of_the_trainer(
    synthesized: Synthesize, name: str
) -> None:
    [device] = template_data(synthesized(name))["BlockDeviceMappings"]
    assert device == {
        "DeviceName": "/dev/xvda",
        "Ebs": {
            "VolumeType": "gp3",
            "VolumeSize": 100,
            "Encrypted": True,
            "DeleteOnTermination": True,
        },
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_pod_cannot_take_the_rights_of_its_node(synthesized: Synthesize, name: str) -> None:
    assert template_data(synthesized(name))["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpTokens": "required",
        "HttpPutResponseHopLimit": 1,
    }


@pytest.mark.parametrize("name", NAMES)
def test_the_template_leaves_to_eks_what_is_its_own(synthesized: Synthesize, name: str) -> None:
    assert set(template_data(synthesized(name))) == {
        "InstanceType", "MetadataOptions", "BlockDeviceMappings", "TagSpecifications",
    }  # fmt: skip


def test_nodes_volumes_and_interfaces_carry_the_name_of_the_deployment(
    synthesized: Synthesize,
) -> None:
    tags = {
        specification["ResourceType"]: {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
        for specification in template_data(synthesized("p5"))["TagSpecifications"]
    }
    expected = {"Name": "steadfast-p5-system", "deployment": "steadfast-p5"}
    assert tags == dict.fromkeys(("instance", "volume", "network-interface"), expected)


def test_another_instance_type_changes_the_template_and_not_the_group(
    p5: Deployment, synthesized: Synthesize, synthesized_as: SynthesizeChanged
) -> None:
    larger = SystemNodes(instance_type="m7i.2xlarge")
    changed = synthesized_as(p5.model_copy(update={"system_nodes": larger}))
    assert template_data(changed)["InstanceType"] == "m7i.2xlarge"
    # A group of this name exists: CloudFormation could not make the new one beside it.
    assert group_of(changed) == group_of(synthesized("p5"))
    assert "InstanceTypes" not in group_of(changed)


@pytest.mark.parametrize(
    "wrong",
    ["zz9.huge", "m7g.xlarge", "c7gn.large", "t4g.large", "t3.large", "c5.8xlarge", "m7i.16xlarge",
     "m7i.metal-24xl", "m4.large", "p5.48xlarge", "m7i", "m7i.xlarge\n"],
)  # fmt: skip
def test_a_type_that_system_nodes_cannot_be_is_refused(wrong: str) -> None:
    with pytest.raises(ValidationError, match=r"is none for system nodes; take an x86 one") as told:
        SystemNodes(instance_type=wrong)
    assert told.value.errors()[0]["loc"] == ("instance_type",)


def test_every_type_that_system_nodes_may_be_exists() -> None:
    sizes = ("large", "xlarge", "2xlarge", "4xlarge", "8xlarge")
    families = [f"{letter}{kind}" for letter in "mcrtxi" for kind in KINDS]
    allowed = {f"{f}.{s}" for f in families for s in sizes if re.fullmatch(SYSTEM_TYPE, f"{f}.{s}")}
    assert len(allowed) == 115
    table = files("cfnlint.data.schemas.extensions.aws_ec2_instance")
    regions = json.loads((table / "instancetype_enum.json").read_text())
    known = {t for region in regions.values() if "enum" in region for t in region["enum"]}
    assert allowed <= known


@pytest.mark.parametrize("name", NAMES)
def test_nodes_leave_network_and_storage_rights_to_pods(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    stacks = ["cluster", *(f"nodes-{group}" for group in template.deployment.node_groups)]
    for stack in stacks:
        [role] = [
            role
            for role in template.resources(stack, "AWS::IAM::Role")
            if "ec2.amazonaws.com" in json.dumps(role["AssumeRolePolicyDocument"])
        ]
        granted = json.dumps(role["ManagedPolicyArns"])
        assert "AmazonEKSWorkerNodePolicy" in granted
        assert "AmazonEKS_CNI_Policy" not in granted
        assert "FSx" not in granted
