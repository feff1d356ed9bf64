"""A comparison with the deployed file system that cannot be made stops a deploy over one."""

import pytest

from deployment import Deployment
from infra.doctor.before import BEFORE, run_checks
from infra.doctor.case import Case
from infra.doctor.findings import Finding, Level
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import Answer, stubbed
from tests.infra.doctor.test_file_system import deployed

STACK = {"StackName": "steadfast-p5-storage", "CreationTime": NOW, "StackStatus": "CREATE_COMPLETE"}
EXISTS: Answer = ("cloudformation", "describe_stacks", {"Stacks": [STACK]})
[CHANGE] = (check for check in BEFORE if check.name == "file system change")


def compared(settings: Deployment, *answers: Answer) -> Finding:
    asked: list[str] = []
    [finding] = run_checks((CHANGE,), Case(stubbed(*answers), settings, NOW), asked.append)
    return finding


@pytest.mark.parametrize("code", ["AccessDenied", "RequestLimitExceeded", "InternalFailure"])
def test_a_file_system_that_fsx_does_not_describe_is_an_error(
    settings: Deployment, code: str
) -> None:
    own, *_ = deployed()
    finding = compared(settings, own, ("fsx", "describe_file_systems", code), EXISTS)
    assert (finding.level, finding.what) == (
        Level.ERROR,
        "could not be compared with what is deployed",
    )


def test_a_file_system_in_an_unknown_form_is_an_error(settings: Deployment) -> None:
    own, *_ = deployed()
    facts: Answer = ("fsx", "describe_file_systems", {"FileSystems": [{"SubnetIds": []}]})
    subnets: Answer = ("ec2", "describe_subnets", {"Subnets": []})
    finding = compared(settings, own, facts, subnets, EXISTS)
    assert finding.level is Level.ERROR
    assert finding.value.startswith("ValueError not enough values to unpack")


def test_a_stack_of_which_nobody_knows_is_an_error_with_the_rights_to_ask_for(
    settings: Deployment,
) -> None:
    resources: Answer = ("cloudformation", "describe_stack_resources", "AccessDenied")
    stacks: Answer = ("cloudformation", "describe_stacks", "AccessDenied")
    finding = compared(settings, resources, stacks)
    assert finding.level is Level.ERROR
    assert "cloudformation:DescribeStackResources, cloudformation:DescribeStacks" in finding.remedy


def test_where_no_stack_exists_there_is_nothing_to_lose(settings: Deployment) -> None:
    resources: Answer = ("cloudformation", "describe_stack_resources", "AccessDenied")
    none: Answer = ("cloudformation", "describe_stacks", {"Stacks": []})
    finding = compared(settings, resources, none)
    assert (finding.level, finding.what) == (Level.WARNING, "could not be checked")
