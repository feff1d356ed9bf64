"""Names that a stack would give, and that are taken."""

import pytest

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.findings import Level
from infra.doctor.taken import check_names
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.deployed import scaling_group, status_of
from tests.infra.doctor.stand_ins import Answer, stubbed

LOGS, ECR, EKS = "logs", "ecr", "eks"
FREE: dict[str, Answer] = {
    "flow logs": (LOGS, "describe_log_groups", {"logGroups": []}),
    "trainer": (ECR, "describe_repositories", "RepositoryNotFoundException"),
    "node repair": (ECR, "describe_repositories", "RepositoryNotFoundException"),
    "cluster logs": (LOGS, "describe_log_groups", {"logGroups": []}),
    "cluster": (EKS, "describe_cluster", "ResourceNotFoundException"),
    "nodes": scaling_group(None),
}
TAKEN: dict[str, Answer] = {
    "flow logs": (
        LOGS,
        "describe_log_groups",
        {"logGroups": [{"logGroupName": "/aws/vpc/steadfast-p5/flow-logs"}]},
    ),
    "trainer": (ECR, "describe_repositories", {"repositories": [{}]}),
    "node repair": (ECR, "describe_repositories", {"repositories": [{}]}),
    "cluster logs": (
        LOGS,
        "describe_log_groups",
        {"logGroups": [{"logGroupName": "/aws/eks/steadfast-p5/cluster"}]},
    ),
    "cluster": (EKS, "describe_cluster", {"cluster": {"version": "1.35"}}),
    "nodes": scaling_group(2),
}
STACKS = ("network", "registry", "cluster", "nodes-p5")


def case(settings: Deployment, status: str | None, *answers: Answer) -> Case:
    """Each of the stacks in the same state."""
    stacks = [status_of(f"steadfast-p5-{purpose}", status) for purpose in STACKS]
    return Case(stubbed(*stacks, *answers), settings, NOW)


@pytest.mark.parametrize("status", [None, "ROLLBACK_COMPLETE"])
@pytest.mark.parametrize(
    ("thing", "named", "remedy"),
    [
        ("flow logs", "log group /aws/vpc/steadfast-p5/flow-logs", "logs delete-log-group"),
        ("trainer", "ECR repository steadfast-p5/trainer", "ecr delete-repository"),
        ("node repair", "ECR repository steadfast-p5/node-repair", "ecr delete-repository"),
        ("cluster logs", "log group /aws/eks/steadfast-p5/cluster", "logs delete-log-group"),
        ("cluster", "EKS cluster steadfast-p5", "eks delete-cluster --name steadfast-p5"),
        ("nodes", "Auto Scaling group steadfast-p5-p5", "delete-auto-scaling-group"),
    ],
)
def test_a_name_that_is_taken_is_an_error(
    settings: Deployment, status: str | None, thing: str, named: str, remedy: str
) -> None:
    answers = {**FREE, thing: TAKEN[thing]}
    [finding] = check_names(case(settings, status, *answers.values()))
    assert finding.level is Level.ERROR
    assert finding.what.startswith(f"{named} exists")
    assert remedy in finding.remedy
    assert "cdk import" in finding.remedy


def test_a_log_group_whose_name_only_begins_so_is_another(settings: Deployment) -> None:
    longer = {"logGroups": [{"logGroupName": "/aws/vpc/steadfast-p5/flow-logs-old"}]}
    answers = {**FREE, "flow logs": (LOGS, "describe_log_groups", longer)}
    [finding] = check_names(case(settings, None, *answers.values()))
    assert (finding.level, finding.value) == (Level.OK, "6 to be made")


@pytest.mark.parametrize(
    "status", ["CREATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE", "ROLLBACK_FAILED"]
)
def test_what_a_stack_has_made_itself_is_not_asked_for(settings: Deployment, status: str) -> None:
    [finding] = check_names(case(settings, status))
    assert (finding.level, finding.value) == (Level.OK, "0 to be made")
