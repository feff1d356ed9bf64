"""Stacks that CloudFormation cannot change as they are."""

import pytest

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.findings import Finding, Level
from infra.doctor.stacks import check_stacks, judge_stacks
from infra.teardown.plan import FoundStack

NAME = "steadfast-p5-storage"


def judged(settings: Deployment, status: str, *, protected: bool = True) -> Finding:
    stack = FoundStack(NAME, "id", status, ours=True, protected=protected)
    [finding] = judge_stacks((stack,), settings)
    return finding


@pytest.mark.parametrize(
    ("status", "remedy"),
    [
        ("ROLLBACK_COMPLETE", "update-termination-protection --no-enable-termination-protection"),
        ("ROLLBACK_FAILED", "update-termination-protection --no-enable-termination-protection"),
        ("UPDATE_ROLLBACK_FAILED", "continue-update-rollback"),
        ("DELETE_FAILED", "'make down', or: aws cloudformation delete-stack"),
    ],
)
def test_a_stack_that_no_deploy_can_change_comes_with_the_way_out(
    settings: Deployment, status: str, remedy: str
) -> None:
    finding = judged(settings, status)
    assert (finding.check, finding.level, finding.value) == ("stacks", Level.ERROR, status)
    assert f"{remedy} --stack-name {NAME} --region us-east-1" in finding.remedy


@pytest.mark.parametrize(
    "status",
    ["CREATE_IN_PROGRESS", "UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", "DELETE_IN_PROGRESS"],
)
def test_a_stack_that_is_changing_is_to_be_waited_for(settings: Deployment, status: str) -> None:
    finding = judged(settings, status)
    assert (finding.level, finding.remedy) == (Level.ERROR, "wait for its end, then deploy")


@pytest.mark.parametrize("status", ["ROLLBACK_COMPLETE", "ROLLBACK_FAILED"])
def test_a_failed_create_without_protection_is_left_to_cdk(
    settings: Deployment, status: str
) -> None:
    assert judged(settings, status, protected=False).level is Level.OK


@pytest.mark.parametrize(
    "status",
    ["CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "REVIEW_IN_PROGRESS"],
)
def test_a_stack_that_a_deploy_goes_on_from_is_good(settings: Deployment, status: str) -> None:
    assert judged(settings, status).level is Level.OK


def test_the_stack_of_a_removed_node_group_is_looked_at_as_well(moto_case: Case) -> None:
    cloudformation = moto_case.clients("cloudformation")
    for name in ("steadfast-p5-network", "steadfast-p5-nodes-former", "other-network"):
        cloudformation.create_stack(
            StackName=name,
            TemplateBody='{"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}',
            Tags=[{"Key": "deployment", "Value": "steadfast-p5"}],
        )
    [finding] = check_stacks(moto_case)
    assert (finding.level, finding.value) == (Level.OK, "2 stacks")
