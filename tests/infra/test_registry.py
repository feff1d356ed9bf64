"""The repositories that images are pushed to."""

import json
from typing import Any

import pytest

from deployment import Deployment
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized


def repositories(synthesized: Synthesized) -> dict[str, dict[str, Any]]:
    found = synthesized.resources("registry", "AWS::ECR::Repository")
    return {repository["RepositoryName"]: repository for repository in found}


@pytest.mark.parametrize("name", NAMES)
def test_every_image_that_a_pod_pulls_has_its_repository(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    expected = {template.deployment.image.repository}
    if template.deployment.node_repair:
        expected.add(template.deployment.node_repair.image.repository)
    assert set(repositories(template)) == expected


def test_without_node_repair_there_is_one_repository(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    template = synthesized_as(p5.model_copy(update={"node_repair": None}))
    assert list(repositories(template)) == ["steadfast-p5/trainer"]
    assert set(template.stacks["registry"]["Outputs"]) == {"RepositoryUri"}


@pytest.mark.parametrize("name", NAMES)
def test_a_pushed_tag_never_means_another_image(synthesized: Synthesize, name: str) -> None:
    for repository in repositories(synthesized(name)).values():
        assert repository["ImageTagMutability"] == "IMMUTABLE"
        assert "ImageTagMutabilityExclusionFilters" not in repository


@pytest.mark.parametrize("name", NAMES)
def test_images_are_scanned_and_encrypted_with_the_key_of_aws(
    synthesized: Synthesize, name: str
) -> None:
    for repository in repositories(synthesized(name)).values():
        assert repository["ImageScanningConfiguration"] == {"ScanOnPush": True}
        assert repository["EncryptionConfiguration"] == {"EncryptionType": "KMS"}


@pytest.mark.parametrize("name", NAMES)
def test_old_images_expire_by_number_and_half_pushed_ones_by_age(
    synthesized: Synthesize, name: str
) -> None:
    for repository in repositories(synthesized(name)).values():
        policy = json.loads(repository["LifecyclePolicy"]["LifecyclePolicyText"])
        chosen = [rule["selection"] for rule in policy["rules"]]
        limits = [(rule["tagStatus"], rule["countType"], rule["countNumber"]) for rule in chosen]
        assert limits == [
            ("untagged", "sinceImagePushed", 7),
            ("any", "imageCountMoreThan", 30),
        ]


def test_outputs_say_where_to_push_each_image(synthesized: Synthesize) -> None:
    template = synthesized("p5")
    outputs = template.stacks["registry"]["Outputs"]
    named = {
        output: template.resource_named_by(_repository_of(outputs[output]["Value"]), "registry")
        for output in ("RepositoryUri", "NodeRepairRepositoryUri")
    }
    assert {output: r["Properties"]["RepositoryName"] for output, r in named.items()} == {
        "RepositoryUri": "steadfast-p5/trainer",
        "NodeRepairRepositoryUri": "steadfast-p5/node-repair",
    }


def _repository_of(uri: dict[str, Any]) -> dict[str, Any]:
    """The reference at the end of account, region, suffix and repository joined."""
    _, parts = uri["Fn::Join"]
    reference: dict[str, Any] = parts[-1]
    return reference
