"""What linters find in the templates of every shipped deployment: nothing that is not explained."""

import copy
import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

import aws_cdk as cdk
import pytest
from aws_cdk import aws_iam as iam
from cdk_nag import AwsSolutionsChecks

from deployment import Deployment, load
from infra.stacks import build_stacks
from tests.infra.conftest import Synthesize
from tests.infra.lint import ACCEPTED_RULES, findings, verdict
from tests.infra.templates import NAMES, ROOT, Synthesized


def nag_report(deployment: Deployment, folder: Path, *, planted: bool = False) -> dict[str, Any]:
    """What cdk-nag's pack AwsSolutions finds while the deployment is synthesized."""
    flags = json.loads((ROOT / "cdk.json").read_text())["context"]
    context = {**flags, "aws:cdk:disable-asset-staging": True}
    app = cdk.App(context=context, outdir=str(folder), analytics_reporting=False)
    stacks = build_stacks(app, deployment)
    if planted:
        iam.Role(
            stacks[0],
            "Planted",
            assumed_by=iam.AccountRootPrincipal(),
            managed_policies=[iam.ManagedPolicy.from_aws_managed_policy_name("ReadOnlyAccess")],
        )
    cdk.Validations.of(app).add_plugins(AwsSolutionsChecks(app))
    # Synthesis itself fails on findings; what they are stands in the report.
    with suppress(RuntimeError):
        app.synth()
    [report] = json.loads((folder / "validation-report.json").read_text())["pluginReports"]
    return cast(dict[str, Any], report)


@pytest.mark.parametrize("name", NAMES)
def test_cdk_nag_finds_nothing_that_is_not_accepted(name: str, tmp_path: Path) -> None:
    report = nag_report(load(ROOT / "deployments" / f"{name}.yaml"), tmp_path)
    assert [violation["ruleName"] for violation in report["violations"]] == []
    assert all(accepted["reason"] for accepted in report["suppressedViolations"])


def test_cdk_nag_finds_a_planted_fault(p5: Deployment, tmp_path: Path) -> None:
    [violation] = nag_report(p5, tmp_path, planted=True)["violations"]
    assert violation["ruleName"].endswith("aws:policy/ReadOnlyAccess]")
    [construct] = violation["violatingConstructs"]
    assert construct["constructPath"] == "steadfast-p5-network/Planted/Resource"


@pytest.mark.slow
def test_the_validation_of_cdk_finds_nothing_that_is_not_accepted(tmp_path: Path) -> None:
    """As a user runs it: everywhere else in the tests it is off, for the seconds that it takes."""
    environment = {key: value for key, value in os.environ.items() if key != "CDK_VALIDATION"}
    context = {"deployment": "deployments/p5.yaml", "aws:cdk:disable-asset-staging": True}
    environment |= {"CDK_OUTDIR": str(tmp_path), "CDK_CONTEXT_JSON": json.dumps(context)}
    command = [sys.executable, "app.py"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=100)
    reports = json.loads((tmp_path / "validation-report.json").read_text())["pluginReports"]
    assert [r["pluginName"] for r in reports] == ["CloudFormation Validate"]
    assert [r["violations"] for r in reports] == [[]]


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
