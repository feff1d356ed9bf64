"""Who is let into the cluster, and whether IAM knows them."""

from dataclasses import replace
from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.access import check_access, judge_openness
from infra.doctor.case import Case
from infra.doctor.findings import Finding, Level
from infra.network_settings import NetworkSettings
from infra.settings import InfraSettings
from tests.infra.doctor.conftest import MOTO_ACCOUNT, NOW
from tests.infra.doctor.stand_ins import stubbed

OPEN = NetworkSettings(public_endpoint_cidrs=("203.0.113.0/24",))
ROLE = f"arn:aws:iam::{MOTO_ACCOUNT}:role/teams/platform"
USER = f"arn:aws:iam::{MOTO_ACCOUNT}:user/ml"


def with_access(settings: InfraSettings, **changes: Any) -> InfraSettings:
    """Open to one network, with nobody let in but who is given."""
    nobody = {"admin_arns": (), "submitter_arns": (), "network": OPEN}
    return settings.model_copy(update={**nobody, **changes})


def checked(case: Case, **changes: Any) -> list[Finding]:
    return check_access(replace(case, settings=with_access(case.settings, **changes)))


@pytest.fixture
def iam_case(moto_case: Case) -> Case:
    """IAM knows the role and the user."""
    iam = moto_case.clients("iam")
    policy = '{"Statement": []}'
    iam.create_role(RoleName="platform", Path="/teams/", AssumeRolePolicyDocument=policy)
    iam.create_user(UserName="ml")
    return moto_case


def test_a_private_endpoint_alone_is_a_warning(settings: Deployment) -> None:
    private = with_access(settings, admin_arns=(ROLE,), network=NetworkSettings())
    [finding] = judge_openness(private)
    assert finding.level is Level.WARNING
    assert finding.what.startswith("kubectl works only from inside the VPC")
    assert judge_openness(with_access(settings, admin_arns=(ROLE,))) == []


def test_roles_and_users_that_exist_are_good(iam_case: Case) -> None:
    findings = checked(iam_case, admin_arns=(ROLE,), submitter_arns=(USER,))
    assert [(each.level, each.value) for each in findings] == [
        (Level.OK, ROLE),
        (Level.OK, USER),
    ]


@pytest.mark.parametrize("key", ["admin_arns", "submitter_arns"])
@pytest.mark.parametrize("kind", ["role", "user"])
def test_a_principal_that_iam_does_not_have_is_an_error(
    iam_case: Case, key: str, kind: str
) -> None:
    arn = f"arn:aws:iam::{MOTO_ACCOUNT}:{kind}/mistyped"
    found = [each for each in checked(iam_case, **{key: (arn,)}) if each.value == arn]
    assert [each.level for each in found] == [Level.ERROR]
    assert found[0].what == f"{key}: IAM has no such principal, and EKS refuses an entry for it"
    assert key in found[0].remedy


def test_a_role_without_its_path_comes_with_the_right_arn(iam_case: Case) -> None:
    arn = f"arn:aws:iam::{MOTO_ACCOUNT}:role/platform"
    [finding] = checked(iam_case, admin_arns=(arn,))
    assert (finding.level, finding.remedy) == (Level.ERROR, f"write {ROLE}")


def test_a_principal_of_another_account_is_not_asked_for(settings: Deployment) -> None:
    arn = "arn:aws:iam::999999999999:role/platform"
    [finding] = checked(Case(stubbed(), settings, NOW), admin_arns=(arn,))
    assert finding.level is Level.OK
    assert "another account" in finding.what


def test_what_may_not_be_asked_for_leaves_the_other_principals(settings: Deployment) -> None:
    user = {"UserName": "ml", "Arn": USER, "UserId": "A" * 16, "Path": "/", "CreateDate": NOW}
    clients = stubbed(("iam", "get_role", "AccessDenied"), ("iam", "get_user", {"User": user}))
    denied, good = checked(Case(clients, settings, NOW), admin_arns=(ROLE, USER))
    assert (denied.level, denied.what) == (Level.WARNING, "admin_arns: could not be checked")
    assert denied.remedy == "have iam:GetRole allowed to whom you are logged in as"
    assert good.level is Level.OK
