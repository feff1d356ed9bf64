"""Claims about every template at once: names that a human types, and versions."""

import re
from typing import Any

import pytest

from deployment import Deployment
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES


def strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for inner in value.values() for text in strings(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner)]
    return [value] if isinstance(value, str) else []


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_of_the_latest_version(synthesized: Synthesize, name: str) -> None:
    for template in synthesized(name).stacks.values():
        found = [text for text in strings(template["Resources"]) if re.search(r"(?i)latest", text)]
        # An attribute of the launch template: its newest version, which this deploy made.
        assert set(found) <= {"LatestVersionNumber"}


@pytest.mark.parametrize("name", NAMES)
def test_each_name_that_a_human_types_comes_from_the_deployment_file(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    deployment = template.deployment
    named = {
        "cluster": template.only("cluster", "AWS::EKS::Cluster")["Name"],
        "node group": template.only("cluster", "AWS::EKS::Nodegroup")["NodegroupName"],
        "repositories": [
            repository["RepositoryName"]
            for repository in template.resources("registry", "AWS::ECR::Repository")
        ],
        "logs": [
            group["LogGroupName"]
            for group in template.resources("cluster", "AWS::Logs::LogGroup")
            if isinstance(group["LogGroupName"], str)  # those of Lambdas are named after them
        ],
    }
    repair = deployment.node_repair
    images = [deployment.image, *([repair.image] if repair else [])]
    assert named == {
        "cluster": deployment.name,
        "node group": "system",
        "repositories": [image.repository for image in images],
        "logs": [f"/aws/eks/{deployment.name}/cluster"],
    }


def test_the_same_file_gives_the_same_templates(
    p5: Deployment, synthesized: Synthesize, synthesized_as: SynthesizeChanged
) -> None:
    assert synthesized_as(p5).stacks == synthesized("p5").stacks
