"""What linters find in the templates of every shipped deployment: nothing that is not explained."""

import copy

import pytest

from tests.infra.conftest import Synthesize
from tests.infra.lint import ACCEPTED_RULES, findings, verdict
from tests.infra.templates import NAMES, Synthesized


@pytest.mark.parametrize("name", NAMES)
def test_cfn_lint_finds_nothing(name: str, synthesized: Synthesize) -> None:
    assert findings(synthesized(name)) == []


def test_cfn_lint_finds_a_planted_fault(synthesized: Synthesize) -> None:
    deployed = synthesized("p5")
    planted = copy.deepcopy(deployed.stacks)
    [template] = [
        resource["Properties"]["LaunchTemplateData"]
        for resource in planted["nodes-p5"]["Resources"].values()
        if resource["Type"] == "AWS::EC2::LaunchTemplate"
    ]
    template["MetadataOptions"]["HttpTokens"] = "requird"
    [finding] = findings(Synthesized(deployed.deployment, planted))
    assert finding == "nodes-p5: E3030 'requird' is not one of ['optional', 'required']"


def test_every_rule_that_is_ignored_would_find_something(synthesized: Synthesize) -> None:
    found = {
        finding.split()[0]
        for template in synthesized("p5").stacks.values()
        for finding in verdict(template, "us-east-1", ignored=())
    }
    assert found == set(ACCEPTED_RULES)
