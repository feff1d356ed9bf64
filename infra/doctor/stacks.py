"""Whether CloudFormation can change each stack of the deployment as it is now."""

from collections.abc import Sequence

from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok
from infra.settings import InfraSettings
from infra.teardown.plan import MADE_ANEW, FoundStack, unprotect
from infra.teardown.stacks import find_stacks

STACKS = "stacks"


def check_stacks(case: Case) -> list[Finding]:
    """Also those of node groups that the file no longer has."""
    found = find_stacks(case.clients("cloudformation"), case.settings)
    return judge_stacks(found, case.settings)


def judge_stacks(stacks: Sequence[FoundStack], settings: InfraSettings) -> list[Finding]:
    findings = [finding for stack in stacks if (finding := _judge(stack, settings.region))]
    return findings or [ok(STACKS, "none is in the way of a deploy", f"{len(stacks)} stacks")]


def _judge(stack: FoundStack, region: str) -> Finding | None:
    name, where = stack.name, f"--stack-name {stack.name} --region {region}"
    match stack.status:
        case status if status in MADE_ANEW:
            if not stack.protected:
                return None
            what = f"the first deploy of {name} failed, and protected it cannot be made anew"
            return error(STACKS, what, status, f"{unprotect(name, region)}; then deploy again")
        case "UPDATE_ROLLBACK_FAILED":
            what = f"{name} is stuck between two templates"
            remedy = f"mend the cause, then: aws cloudformation continue-update-rollback {where}"
        case "DELETE_FAILED":
            what = f"{name} is half deleted"
            remedy = f"run 'make down', or: aws cloudformation delete-stack {where}"
        case status if status.endswith("_IN_PROGRESS") and status != "REVIEW_IN_PROGRESS":
            what, remedy = f"{name} is changing", "wait for its end, then deploy"
        case _:
            return None
    return error(STACKS, what, stack.status, remedy)
