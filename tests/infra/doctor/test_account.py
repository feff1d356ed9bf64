"""Credentials, region and zones."""

import pytest

from deployment import Deployment
from infra.doctor.account import (
    check_bootstrap,
    check_credentials,
    check_region,
    judge_bootstrap,
    judge_region,
)
from infra.doctor.case import Case
from infra.doctor.findings import Level
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import stubbed


def test_credentials_of_the_deployments_account_are_good(moto_case: Case) -> None:
    assert check_credentials(moto_case.clients, moto_case.settings).level is Level.OK


def test_credentials_of_another_account_are_an_error(moto_case: Case, p5: Deployment) -> None:
    finding = check_credentials(moto_case.clients, p5)
    assert finding.level is Level.ERROR
    assert "belong to account 123456789012, the deployment to 111122223333" in finding.what
    assert "AWS_PROFILE" in finding.remedy


def test_a_region_with_both_zones_is_good(moto_case: Case) -> None:
    [finding] = check_region(moto_case)
    assert finding.level is Level.OK


def test_a_zone_that_the_account_does_not_have_is_named(settings: Deployment) -> None:
    zones = [
        {"ZoneName": "us-east-1a", "State": "available"},
        {"ZoneName": "us-east-1b", "State": "impaired"},
    ]
    [finding] = judge_region(settings, [{"OptInStatus": "opt-in-not-required"}], zones)
    assert (finding.level, finding.what) == (Level.ERROR, "this account has no zone us-east-1b")


@pytest.mark.parametrize("zone_id", ["use1-az3", "usw1-az2", "cac1-az3"])
@pytest.mark.parametrize(
    ("key", "zone"), [("training_zone", "us-east-1a"), ("second_zone", "us-east-1b")]
)
def test_a_zone_without_eks_is_known_by_its_id(
    settings: Deployment, key: str, zone: str, zone_id: str
) -> None:
    ids = {"us-east-1a": "use1-az6", "us-east-1b": "use1-az1", zone: zone_id}
    zones = [{"ZoneName": each, "ZoneId": ids[each], "State": "available"} for each in ids]
    [finding] = judge_region(settings, [{"OptInStatus": "opt-in-not-required"}], zones)
    assert finding.level is Level.ERROR
    assert finding.what == f"EKS takes no control plane in {zone}"
    assert (finding.value, finding.remedy) == (f"{key} is zone {zone_id}", f"choose another {key}")


def test_ec2_itself_says_which_zone_that_is(moto_case: Case) -> None:
    settings = moto_case.settings.model_copy(update={"second_zone": "us-east-1e"})
    [finding] = check_region(Case(moto_case.clients, settings, NOW))
    assert (finding.level, finding.value) == (Level.ERROR, "second_zone is zone use1-az3")


def test_a_region_that_is_not_enabled_is_an_error(settings: Deployment) -> None:
    clients = stubbed(
        ("ec2", "describe_regions", {"Regions": [{"OptInStatus": "not-opted-in"}]}),
        ("ec2", "describe_availability_zones", {"AvailabilityZones": []}),
    )
    [finding] = check_region(Case(clients, settings, NOW))
    assert finding.level is Level.ERROR
    assert finding.remedy == "run 'aws account enable-region --region-name us-east-1'"


def test_ec2_refusing_good_credentials_means_the_region_is_not_enabled(
    settings: Deployment,
) -> None:
    case = Case(stubbed(("ec2", "describe_regions", "AuthFailure")), settings, NOW)
    assert [finding.level for finding in check_region(case)] == [Level.ERROR]


def test_an_account_that_cdk_never_saw_comes_with_the_bootstrap(moto_case: Case) -> None:
    [finding] = check_bootstrap(moto_case)
    assert (finding.level, finding.what) == (
        Level.ERROR,
        "'cdk bootstrap' has never been run here",
    )
    assert finding.remedy.endswith("cdk bootstrap aws://123456789012/us-east-1'")


def test_a_bootstrap_is_found_by_its_version(moto_case: Case) -> None:
    name = "/cdk-bootstrap/hnb659fds/version"
    moto_case.clients("ssm").put_parameter(Name=name, Value="28", Type="String")
    [finding] = check_bootstrap(moto_case)
    assert (finding.level, finding.value) == (Level.OK, "version 28")


@pytest.mark.parametrize(("version", "level"), [("5", Level.ERROR), ("6", Level.OK)])
def test_templates_refuse_a_bootstrap_before_version_6(
    settings: Deployment, version: str, level: Level
) -> None:
    assert judge_bootstrap(version, settings).level is level
