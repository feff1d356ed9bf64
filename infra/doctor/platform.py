"""Whether the platform stack may leave the file: one that is deployed still holds the others.

It imports values of the stacks storage and cluster. Without it in the file these would
no longer export them, and CloudFormation refuses to drop an export that is in use.
"""

from infra import names
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok
from infra.doctor.lookups import stack_status
from infra.settings import InfraSettings
from infra.teardown.plan import unprotect

PLATFORM = "platform stack"
BY_HAND = "run 'python -m workloads synth --deployment FILE --outputs cdk-outputs.json'"

_HOLDS_NOTHING = frozenset({"DELETE_COMPLETE", "REVIEW_IN_PROGRESS"})


def made_anew(settings: InfraSettings) -> str:
    """How what the platform stack installs comes back once somebody has deleted it.

    A deploy alone does not bring it: CDK skips a stack whose template has not changed.
    """
    if not settings.kubectl_provider:
        return f"end the jobs, then {BY_HAND} and the kubectl and helm commands that it prints"
    return (
        f"end the jobs, then: {delete_stack(settings, names.PLATFORM)}; once it is gone, "
        "'make deploy' makes it anew"
    )


def delete_stack(settings: InfraSettings, purpose: str) -> str:
    """The commands for one stack, whatever protects it."""
    stack, region = names.stack_name(settings, purpose), settings.region
    first = f"{unprotect(stack, region)}; " if settings.lifetime == "durable" else ""
    return f"{first}aws cloudformation delete-stack --stack-name {stack} --region {region}"


def check_platform(case: Case) -> list[Finding]:
    """Nothing where the file has the stack."""
    if case.settings.kubectl_provider:
        return []
    stack = names.stack_name(case.settings, names.PLATFORM)
    return [judge_platform(stack_status(case.clients, stack), case.settings)]


def judge_platform(status: str | None, settings: InfraSettings) -> Finding:
    """``status`` is the deployed stack's, None without one."""
    if status is None or status in _HOLDS_NOTHING:
        return ok(PLATFORM, "none is deployed, as the file says", "kubectl_provider: false")
    stack = names.stack_name(settings, names.PLATFORM)
    namespace, claim = settings.namespace, settings.storage.claim
    return error(
        PLATFORM,
        f"{stack} is deployed, and CloudFormation refuses to drop the exports that it imports",
        f"{status}, file kubectl_provider: false",
        f"end the jobs, then: kubectl -n {namespace} delete pvc {claim}; kubectl delete pv "
        f"{namespace}-{claim}; aws cloudformation delete-stack --stack-name {stack} "
        f"--region {settings.region}; then deploy. Or set kubectl_provider back to true",
    )
