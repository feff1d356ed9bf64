"""Who will be let into the cluster: from where, and that IAM knows them.

EKS makes an access entry only for a principal that exists, so a misspelt one fails
the deploy of the cluster.
"""

from botocore.exceptions import ClientError

from infra.aws import Clients, error_code, is_denied, one_line
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok, warning
from infra.settings import InfraSettings

ACCESS = "access"


def check_access(case: Case) -> list[Finding]:
    findings = judge_openness(case.settings)
    for key in ("admin_arns", "submitter_arns"):
        findings += [_check_principal(case, key, arn) for arn in getattr(case.settings, key)]
    return findings


def judge_openness(settings: InfraSettings) -> list[Finding]:
    """What the file alone says: from where the cluster can be reached."""
    if settings.network.public_endpoint_cidrs:
        return []
    what = "kubectl works only from inside the VPC, or a network connected to it"
    remedy = "run it there, or add your network to network.public_endpoint_cidrs"
    return [warning(ACCESS, what, "network.public_endpoint_cidrs is empty", remedy)]


def _check_principal(case: Case, key: str, arn: str) -> Finding:
    account, path = arn.split(":")[4:6]
    if account != case.settings.account:
        return ok(ACCESS, f"{key}: of another account, whose IAM cannot be asked", arn)
    kind, name = path.split("/", 1)[0], path.rsplit("/", 1)[1]
    try:
        return judge_principal(key, arn, _arn_in_iam(case.clients, kind, name))
    except ClientError as problem:
        if not is_denied(problem):
            raise
        remedy = f"have iam:Get{kind.title()} allowed to whom you are logged in as"
        said = f"{arn}: {one_line(problem)}"
        return warning(ACCESS, f"{key}: could not be checked", said, remedy)


def judge_principal(key: str, arn: str, in_iam: str | None) -> Finding:
    """``in_iam`` is the ARN of the role or user of that name; None if there is none."""
    if in_iam is None:
        what = f"{key}: IAM has no such principal, and EKS refuses an entry for it"
        return error(ACCESS, what, arn, f"correct it in {key}, or make it in IAM first")
    if in_iam != arn:
        what = f"{key}: the principal of this name has another path, and EKS refuses this one"
        return error(ACCESS, what, arn, f"write {in_iam}")
    return ok(ACCESS, f"{key}: known to IAM", arn)


def _arn_in_iam(clients: Clients, kind: str, name: str) -> str | None:
    iam = clients("iam")
    try:
        if kind == "role":
            return str(iam.get_role(RoleName=name)["Role"]["Arn"])
        return str(iam.get_user(UserName=name)["User"]["Arn"])
    except ClientError as problem:
        if error_code(problem) != "NoSuchEntity":
            raise
        return None
