"""The whole examination: who is calling, then the checks of the phases that apply."""

from enum import StrEnum

from infra.aws import ERRORS
from infra.doctor.account import CREDENTIALS, check_credentials
from infra.doctor.after import check_after
from infra.doctor.before import BEFORE, Progress, run_checks
from infra.doctor.case import Case
from infra.doctor.cluster import UPGRADE, describe_cluster
from infra.doctor.findings import Finding, Level, error
from infra.kubectl import Kubectl


class Phase(StrEnum):
    ALL = "all"
    """Before, and after as well if there is a cluster."""

    BEFORE = "before"
    AFTER = "after"


def examine(case: Case, kubectl: Kubectl, phase: Phase, progress: Progress) -> list[Finding]:
    """All findings, in the order in which the checks were made.

    Raises:
        BotoCoreError, ClientError: AWS does not know who is calling, so nothing can be asked.
    """
    progress(CREDENTIALS)
    identity = check_credentials(case.clients, case.settings)
    findings = [identity]
    if identity.level is Level.ERROR:
        # The rest would be true of another account.
        return findings
    if phase is not Phase.AFTER:
        findings += run_checks(BEFORE, case, progress)
    if phase is Phase.AFTER or (phase is Phase.ALL and _has_cluster(case)):
        findings += _after(case, kubectl, progress)
    return findings


def _after(case: Case, kubectl: Kubectl, progress: Progress) -> list[Finding]:
    if not _has_cluster(case):
        remedy = "deploy, then run this again; --phase before tells whether a deploy can work"
        return [error(UPGRADE, "there is no cluster", case.settings.name, remedy)]
    return check_after(case, kubectl, progress)


def _has_cluster(case: Case) -> bool:
    try:
        return describe_cluster(case.clients, case.settings) is not None
    except ERRORS:
        # Whoever may not ask EKS may still be let in by the cluster.
        return True
