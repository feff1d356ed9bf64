"""Stacks of a first deploy that failed, and stacks that were never made."""

from dataclasses import replace

import pytest

from deployment import Deployment, load
from infra.teardown.plan import Found, FoundStack, why_not
from tests.infra.templates import ROOT

SETTINGS = load(ROOT / "deployments/g5.yaml")
DURABLE = SETTINGS.model_copy(update={"lifetime": "durable"})
STUCK = FoundStack("steadfast-g5-storage", "id", "ROLLBACK_COMPLETE", ours=True, protected=True)
COMMAND = (
    "aws cloudformation update-termination-protection --no-enable-termination-protection "
    f"--stack-name {STUCK.name} --region {SETTINGS.region}"
)


@pytest.mark.parametrize("settings", [SETTINGS, DURABLE])
@pytest.mark.parametrize("status", ["ROLLBACK_COMPLETE", "ROLLBACK_FAILED"])
def test_a_protected_stack_that_no_deploy_can_unprotect_is_unprotected_by_hand(
    settings: Deployment, status: str
) -> None:
    reason = why_not(settings, Found(stacks=(replace(STUCK, status=status),)))
    assert reason is not None
    assert reason.index(COMMAND) < reason.index("set lifetime: ephemeral, deploy, then run again")


@pytest.mark.parametrize("other", [{"status": "UPDATE_COMPLETE"}, {"protected": False}])
def test_a_stack_that_a_deploy_can_change_needs_no_hand(other: dict[str, object]) -> None:
    reason = why_not(DURABLE, Found(stacks=(replace(STUCK, **other),)))  # type: ignore[arg-type]
    assert reason is not None
    assert "update-termination-protection" not in reason


def test_a_stack_that_was_never_made_has_no_tags_yet() -> None:
    reviewed = replace(STUCK, status="REVIEW_IN_PROGRESS", ours=False, protected=False)
    assert why_not(SETTINGS, Found(stacks=(reviewed,))) is None
    foreign = replace(reviewed, status="CREATE_COMPLETE")
    assert "lacks the tag" in (why_not(SETTINGS, Found(stacks=(foreign,))) or "")
