"""A platform stack that is deployed, and no longer in the file."""

from dataclasses import replace

import pytest

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.findings import Level
from infra.doctor.platform import check_platform, judge_platform, made_anew
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import stubbed


def without(case: Case) -> Case:
    return replace(case, settings=case.settings.model_copy(update={"kubectl_provider": False}))


def test_a_file_with_the_stack_asks_nobody(settings: Deployment) -> None:
    assert check_platform(Case(stubbed(), settings, NOW)) == []


def test_a_stack_that_was_never_deployed_is_in_nobodys_way(moto_case: Case) -> None:
    [finding] = check_platform(without(moto_case))
    assert finding.level is Level.OK


def test_a_deployed_stack_that_the_file_drops_is_an_error(moto_case: Case) -> None:
    template = '{"Resources": {"Topic": {"Type": "AWS::SNS::Topic"}}}'
    moto_case.clients("cloudformation").create_stack(
        StackName="steadfast-p5-platform", TemplateBody=template
    )
    [finding] = check_platform(without(moto_case))
    assert finding.level is Level.ERROR
    assert finding.value == "CREATE_COMPLETE, file kubectl_provider: false"
    steps = ("end the jobs", "pvc fsx", "pv training-fsx", "delete-stack", "then deploy")
    at = [finding.remedy.index(step) for step in steps]
    assert at == sorted(at)


@pytest.mark.parametrize(
    ("status", "level"),
    [
        ("DELETE_FAILED", Level.ERROR),
        ("UPDATE_ROLLBACK_COMPLETE", Level.ERROR),
        ("DELETE_COMPLETE", Level.OK),
        ("REVIEW_IN_PROGRESS", Level.OK),
    ],
)
def test_only_a_stack_that_may_import_is_in_the_way(
    settings: Deployment, status: str, level: Level
) -> None:
    assert judge_platform(status, settings).level is level


def test_a_protected_stack_is_unprotected_before_it_is_deleted(settings: Deployment) -> None:
    durable = settings.model_copy(update={"lifetime": "durable"})
    remedy = made_anew(durable)
    assert remedy.index("update-termination-protection") < remedy.index("delete-stack")
    brief = settings.model_copy(update={"lifetime": "ephemeral"})
    assert "protection" not in made_anew(brief)
