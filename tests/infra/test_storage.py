"""File system and image registry."""

import pytest

from tests.infra.conftest import Synthesize
from tests.infra.templates import NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_file_system_is_in_the_very_subnet_of_the_nodes(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    file_system = template.only("storage", "AWS::FSx::FileSystem")
    nodes = template.only(template.nodes, "AWS::AutoScaling::AutoScalingGroup")
    assert file_system["SubnetIds"] == nodes["VPCZoneIdentifier"]


@pytest.mark.parametrize("name", NAMES)
def test_the_file_system_is_scratch_2_of_a_version_that_the_nodes_can_mount(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    file_system = template.only("storage", "AWS::FSx::FileSystem")
    assert file_system["LustreConfiguration"] == {"DeploymentType": "SCRATCH_2"}
    assert file_system["FileSystemTypeVersion"] == "2.15"
    assert file_system["StorageCapacity"] == 1200
    [security_group] = file_system["SecurityGroupIds"]
    owner = template.resource_named_by(security_group, "storage")
    assert owner["Properties"]["GroupDescription"] == "FSx for Lustre file system"


def test_a_change_that_replaces_the_file_system_keeps_the_old_one(synthesized: Synthesize) -> None:
    [resource] = synthesized("p5").stacks["storage"]["Resources"].values()
    assert (resource["UpdateReplacePolicy"], resource["DeletionPolicy"]) == ("Retain", "Delete")


def test_outputs_say_what_a_volume_is_made_of(synthesized: Synthesize) -> None:
    outputs = set(synthesized("p5").stacks["storage"]["Outputs"])
    assert {"FileSystemId", "FileSystemDnsName", "FileSystemMountName"} <= outputs


@pytest.mark.parametrize("name", NAMES)
def test_a_pushed_tag_never_means_another_image(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    repository = template.only("registry", "AWS::ECR::Repository")
    assert repository["RepositoryName"] == template.deployment.image.repository
    assert repository["ImageTagMutability"] == "IMMUTABLE"
    assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
    assert "imageCountMoreThan" in repository["LifecyclePolicy"]["LifecyclePolicyText"]
    assert "RepositoryUri" in template.stacks["registry"]["Outputs"]
