"""The file system: where it is, what it is made of, and its mirror in S3."""

import pytest

from deployment import Deployment
from infra.settings import Storage
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized

ASSOCIATION = "AWS::FSx::DataRepositoryAssociation"


@pytest.mark.parametrize("name", NAMES)
def test_the_file_system_is_in_the_very_subnet_of_every_node_group(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    file_system = template.only("storage", "AWS::FSx::FileSystem")
    for group in template.deployment.node_groups:
        nodes = template.only(f"nodes-{group}", "AWS::AutoScaling::AutoScalingGroup")
        assert nodes["VPCZoneIdentifier"] == file_system["SubnetIds"]


@pytest.mark.parametrize("name", NAMES)
def test_the_file_system_is_in_the_training_zone(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    [subnet] = template.only("storage", "AWS::FSx::FileSystem")["SubnetIds"]
    properties = template.resource_named_by(subnet, "storage")["Properties"]
    assert properties["AvailabilityZone"] == template.deployment.training_zone


@pytest.mark.parametrize("name", NAMES)
def test_the_file_system_is_scratch_2_of_a_version_that_the_nodes_can_mount(
    synthesized: Synthesize, name: str
) -> None:
    file_system = synthesized(name).only("storage", "AWS::FSx::FileSystem")
    assert file_system["LustreConfiguration"] == {
        "DeploymentType": "SCRATCH_2",
        "DataCompressionType": "LZ4",
    }
    assert file_system["FileSystemType"] == "LUSTRE"
    assert file_system["FileSystemTypeVersion"] == "2.15"
    assert file_system["StorageType"] == "SSD"
    assert file_system["StorageCapacity"] == 1200


@pytest.mark.parametrize("name", NAMES)
def test_the_file_system_carries_the_lustre_group_and_no_other(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    [group] = template.only("storage", "AWS::FSx::FileSystem")["SecurityGroupIds"]
    owner = template.resource_named_by(group, "storage")
    assert owner["Properties"]["GroupDescription"] == "FSx for Lustre file system"


def test_a_persistent_file_system_has_the_throughput_that_was_asked_for(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    storage = Storage(deployment_type="PERSISTENT_2", size_gib=4800, throughput_mbps_per_tib=500)
    template = synthesized_as(p5.model_copy(update={"storage": storage}))
    file_system = template.only("storage", "AWS::FSx::FileSystem")
    assert file_system["StorageCapacity"] == 4800
    assert file_system["FileSystemTypeVersion"] == "2.15"
    assert file_system["LustreConfiguration"] == {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": 500,
        "DataCompressionType": "LZ4",
    }


@pytest.mark.parametrize("name", NAMES)
def test_outputs_say_what_a_volume_is_made_of(synthesized: Synthesize, name: str) -> None:
    outputs = set(synthesized(name).stacks["storage"]["Outputs"])
    assert {"FileSystemId", "FileSystemDnsName", "FileSystemMountName"} <= outputs


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_mirrored_unless_a_bucket_is_named(synthesized: Synthesize, name: str) -> None:
    assert synthesized(name).resources("storage", ASSOCIATION) == []


def mirrored(
    p5: Deployment, synthesized_as: SynthesizeChanged, *, lifetime: str = "ephemeral"
) -> Synthesized:
    storage = Storage(data_repository="s3://example-runs/p5/checkpoints")
    return synthesized_as(p5.model_copy(update={"storage": storage, "lifetime": lifetime}))


def test_a_bucket_mirrors_the_whole_file_system_both_ways(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    template = mirrored(p5, synthesized_as)
    association = template.only("storage", ASSOCIATION)
    [file_system] = [
        logical_id
        for logical_id, resource in template.stacks["storage"]["Resources"].items()
        if resource["Type"] == "AWS::FSx::FileSystem"
    ]
    assert template.follow(association["FileSystemId"], "storage") == ("storage", file_system)
    assert association["FileSystemPath"] == "/"
    assert association["DataRepositoryPath"] == "s3://example-runs/p5/checkpoints"
    assert association["BatchImportMetaDataOnCreate"] is True
    assert association["S3"] == {
        "AutoImportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]},
        "AutoExportPolicy": {"Events": ["NEW", "CHANGED", "DELETED"]},
    }


def test_a_mirror_does_not_use_the_paths_that_forbid_an_association(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    file_system = mirrored(p5, synthesized_as).only("storage", "AWS::FSx::FileSystem")
    assert not {"ImportPath", "ExportPath"} & set(file_system["LustreConfiguration"])


@pytest.mark.parametrize(
    ("lifetime", "deletion"), [("ephemeral", "Delete"), ("durable", "RetainExceptOnCreate")]
)
def test_a_mirror_lives_as_long_as_its_file_system(
    lifetime: str, deletion: str, p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    template = mirrored(p5, synthesized_as, lifetime=lifetime)
    policies = {
        resource["DeletionPolicy"] for resource in template.stacks["storage"]["Resources"].values()
    }
    assert policies == {deletion}


def test_another_bucket_takes_the_place_of_the_first(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    # Kept, the old association would hold the root of the file system against the new one.
    resources = mirrored(p5, synthesized_as, lifetime="durable").stacks["storage"]["Resources"]
    [association] = [r for r in resources.values() if r["Type"] == ASSOCIATION]
    assert association["UpdateReplacePolicy"] == "Delete"
