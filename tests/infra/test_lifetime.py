"""What ``lifetime`` protects, keeps and deletes, over all stacks."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from deployment import Deployment
from infra.names import purposes
from infra.settings import Storage
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized, synthesize

HOLDS_DATA = {
    "AWS::ECR::Repository",
    "AWS::FSx::DataRepositoryAssociation",
    "AWS::FSx::FileSystem",
    "AWS::KMS::Key",
    "AWS::Logs::LogGroup",
}


@pytest.fixture(scope="module")
def mirrored(p5: Deployment) -> Deployment:
    """p5 with a bucket that mirrors its file system: a resource of each type that holds data."""
    return p5.model_copy(update={"storage": Storage(data_repository="s3://our-datasets/tokens")})


@pytest.fixture(scope="module")
def durable(
    mirrored: Deployment, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Synthesized, Path]:
    folder = tmp_path_factory.mktemp("durable")
    return synthesize(mirrored.model_copy(update={"lifetime": "durable"}), folder), folder


def protected_stacks(folder: Path) -> dict[str, bool]:
    """By stack name. The command line of CDK reads this; a template does not say it."""
    artifacts = json.loads((folder / "manifest.json").read_text())["artifacts"]
    return {
        name: artifact["properties"].get("terminationProtection", False)
        for name, artifact in artifacts.items()
        if artifact["type"] == "aws:cloudformation:stack"
    }


def policies(synthesized: Synthesized, policy: str) -> dict[str, set[str]]:
    """Values of ``policy`` by the type of the resources that have it."""
    found = defaultdict(set)
    for template in synthesized.stacks.values():
        for resource in template["Resources"].values():
            if policy in resource:
                found[resource["Type"]].add(resource[policy])
    return found


def resources(synthesized: Synthesized, kind: str) -> list[dict[str, Any]]:
    return [r for stack in synthesized.stacks for r in synthesized.resources(stack, kind)]


def is_log_of_a_lambda(resource: dict[str, Any]) -> bool:
    """Of those that apply charts: their name holds a generated one, and nobody asks for them."""
    return not isinstance(resource["Properties"].get("LogGroupName", ""), str)


def test_no_stack_of_a_durable_deployment_can_be_deleted(
    durable: tuple[Synthesized, Path],
) -> None:
    synthesized, folder = durable
    names = {f"steadfast-p5-{purpose}" for purpose in purposes(synthesized.deployment)}
    assert protected_stacks(folder) == dict.fromkeys(names, True)


def test_every_stack_of_an_ephemeral_deployment_can_be_deleted(
    p5: Deployment, tmp_path: Path
) -> None:
    synthesize(p5, tmp_path)
    assert len(protected_stacks(tmp_path)) == len(purposes(p5))
    assert not any(protected_stacks(tmp_path).values())


def test_data_of_a_durable_deployment_outlives_its_stacks(
    durable: tuple[Synthesized, Path],
) -> None:
    kept = defaultdict(list)
    for template in durable[0].stacks.values():
        for resource in template["Resources"].values():
            if resource["Type"] in HOLDS_DATA and not is_log_of_a_lambda(resource):
                kept[resource["Type"]].append(resource["DeletionPolicy"])
    # Not plain Retain: a first deploy that fails must not leave its file system behind.
    assert kept == {
        "AWS::ECR::Repository": ["RetainExceptOnCreate"] * 2,
        "AWS::FSx::DataRepositoryAssociation": ["RetainExceptOnCreate"],
        "AWS::FSx::FileSystem": ["RetainExceptOnCreate"],
        "AWS::KMS::Key": ["RetainExceptOnCreate"],
        "AWS::Logs::LogGroup": ["RetainExceptOnCreate"] * 2,
    }


def test_images_of_a_durable_deployment_are_never_emptied_out(
    durable: tuple[Synthesized, Path],
) -> None:
    repositories = resources(durable[0], "AWS::ECR::Repository")
    assert [r.get("EmptyOnDelete", False) for r in repositories] == [False, False]


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_an_ephemeral_deployment_outlives_its_stacks(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    kept = {
        kind: found - {"Delete"}
        for kind, found in policies(template, "DeletionPolicy").items()
        if found - {"Delete"}
    }
    assert kept == {}
    for repository in resources(template, "AWS::ECR::Repository"):
        assert repository["EmptyOnDelete"] is True


def test_another_lifetime_is_a_change_of_every_resource_that_it_keeps_or_lets_go(
    mirrored: Deployment, synthesized_as: SynthesizeChanged, durable: tuple[Synthesized, Path]
) -> None:
    # With the policies alone, CloudFormation would find nothing to update.
    seen = 0
    for stack, template in synthesized_as(mirrored).stacks.items():
        for logical_id, before in template["Resources"].items():
            after = durable[0].stacks[stack]["Resources"][logical_id]
            if before.get("DeletionPolicy") != after.get("DeletionPolicy"):
                assert {"Key": "lifetime", "Value": "ephemeral"} in before["Properties"]["Tags"]
                assert {"Key": "lifetime", "Value": "durable"} in after["Properties"]["Tags"]
                seen += 1
    assert seen == 7


@pytest.mark.parametrize("name", NAMES)
def test_data_says_what_becomes_of_it(synthesized: Synthesize, name: str) -> None:
    # CloudFormation snapshots some resources that do not say.
    template = synthesized(name)
    for stack in template.stacks.values():
        for logical_id, resource in stack["Resources"].items():
            if resource["Type"] in HOLDS_DATA:
                assert "DeletionPolicy" in resource, logical_id


@pytest.mark.parametrize("name", NAMES)
def test_a_replaced_file_system_is_kept_whatever_the_lifetime(
    synthesized: Synthesize, durable: tuple[Synthesized, Path], name: str
) -> None:
    for template in (synthesized(name), durable[0]):
        replaced = policies(template, "UpdateReplacePolicy")
        assert replaced["AWS::FSx::FileSystem"] == {"Retain"}


@pytest.mark.parametrize("name", NAMES)
def test_every_log_group_forgets_after_a_month(synthesized: Synthesize, name: str) -> None:
    groups = resources(synthesized(name), "AWS::Logs::LogGroup")
    assert {group.get("RetentionInDays") for group in groups} == {30}
