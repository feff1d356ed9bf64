"""Which checks are made, and what becomes of those that cannot be."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoCredentialsError

from deployment import Deployment
from infra.aws import Clients
from infra.doctor.after import check_after
from infra.doctor.before import BEFORE, run_checks
from infra.doctor.case import Case
from infra.doctor.examine import Phase, examine
from infra.doctor.findings import Finding, Level
from infra.kubectl import Kubectl, kubectl_for
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import (
    P5_ALLOCATABLE,
    TRAINING_NODES,
    healthy,
    node,
    stubbed,
    write_kubectl,
)
from tests.infra.doctor.test_file_system import deployed

FORBIDDEN = 'Error from server (Forbidden): {} is forbidden: User "ml" cannot list it'

PutKubectl = Callable[[dict[str, Any]], Kubectl]


@pytest.fixture
def put_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Deployment
) -> PutKubectl:
    """Puts a stand-in with these answers in front of PATH."""

    def put(answers: dict[str, Any]) -> Kubectl:
        monkeypatch.setenv("PATH", str(write_kubectl(tmp_path, answers)), prepend=":")
        return kubectl_for(settings)

    return put


def ignore(check: str) -> None:
    del check


def levels(findings: list[Finding]) -> dict[str, Level]:
    """The worst level of each check."""
    order = [Level.OK, Level.WARNING, Level.ERROR]
    worst: dict[str, Level] = {}
    for finding in findings:
        before = worst.get(finding.check, Level.OK)
        worst[finding.check] = max(before, finding.level, key=order.index)
    return worst


def storage_then_claim() -> Clients:
    return stubbed(
        *deployed(),
        ("eks", "list_addons", {"addons": ["vpc-cni"]}),
        ("eks", "describe_addon", {"addon": {"addonName": "vpc-cni", "status": "ACTIVE"}}),
        ("eks", "describe_cluster", {"cluster": {"version": "1.35"}}),
        *deployed(),
    )


def test_every_check_says_what_it_needs_and_stays_apart_from_the_others() -> None:
    assert len({check.name for check in BEFORE}) == len(BEFORE) == 20
    assert all(":" in action for check in BEFORE for action in check.actions)


def test_a_check_that_is_denied_is_a_warning_and_the_others_go_on(settings: Deployment) -> None:
    clients = stubbed(
        ("ec2", "describe_instance_type_offerings", "UnauthorizedOperation"),
        ("ec2", "describe_vpc_endpoint_services", "UnauthorizedOperation"),
    )
    named = {check.name: check for check in BEFORE}
    both = (named["instance type"], named["interface endpoints"])
    offers, endpoints = run_checks(both, Case(clients, settings, NOW), ignore)
    assert (offers.level, offers.what) == (Level.WARNING, "could not be checked")
    assert offers.value.startswith("not allowed to call DescribeInstanceTypeOfferings")
    assert "ec2:DescribeInstanceTypeOfferings" in offers.remedy
    assert endpoints.level is Level.WARNING
    assert "ec2:DescribeVpcEndpointServices" in endpoints.remedy


def test_a_service_that_is_throttling_or_out_of_reach_is_a_warning(settings: Deployment) -> None:
    def cut_off(service: str) -> Any:
        raise EndpointConnectionError(endpoint_url=f"https://{service}.test")

    throttled = stubbed(("ec2", "describe_regions", "RequestLimitExceeded"))
    for clients, said in ((cut_off, "https://ec2.test"), (throttled, "AWS is throttling")):
        [finding] = run_checks(BEFORE[:1], Case(clients, settings, NOW), ignore)
        assert (finding.level, finding.remedy) == (Level.WARNING, "run the doctor again")
        assert said in finding.value
        assert "\n" not in finding.value


def test_an_answer_that_a_check_does_not_understand_is_a_finding(settings: Deployment) -> None:
    named = {check.name: check for check in BEFORE}
    offer = {"Location": "us-east-1a"}  # of no type
    clients = stubbed(
        ("ec2", "describe_instance_type_offerings", {"InstanceTypeOfferings": [offer]}),
        ("ec2", "describe_vpc_endpoint_services", {"ServiceDetails": []}),
    )
    both = (named["instance type"], named["interface endpoints"])
    offers, endpoints, *_ = run_checks(both, Case(clients, settings, NOW), ignore)
    assert (offers.level, offers.what) == (
        Level.WARNING,
        "could not be checked: unexpected answer",
    )
    assert offers.value.startswith("KeyError 'InstanceType' at capacity.py:")
    assert endpoints.check == "interface endpoints"


def test_an_object_that_a_check_does_not_understand_is_a_finding(
    settings: Deployment, put_kubectl: PutKubectl
) -> None:
    objects = healthy()
    objects["nodes"][0] = node(
        TRAINING_NODES[0], allocatable={**P5_ALLOCATABLE, "nvidia.com/gpu": "eight"}
    )
    kubectl = put_kubectl(dict(objects))
    findings = check_after(Case(storage_then_claim(), settings, NOW), kubectl, ignore)
    [odd] = [finding for finding in findings if finding.level is not Level.OK]
    assert (odd.check, odd.level) == ("devices", Level.WARNING)
    assert odd.value.startswith("ValueError 'eight' is not a whole quantity")


def test_no_check_is_made_without_credentials(settings: Deployment) -> None:
    def no_credentials(service: str) -> Any:
        assert service == "sts"
        raise NoCredentialsError

    case = Case(no_credentials, settings, NOW)
    with pytest.raises(NoCredentialsError):
        examine(case, kubectl_for(settings), Phase.ALL, ignore)


def test_another_account_ends_the_examination(moto_case: Case, p5: Deployment) -> None:
    case = Case(moto_case.clients, p5, NOW)
    [finding] = examine(case, kubectl_for(p5), Phase.ALL, ignore)
    assert (finding.check, finding.level) == ("credentials", Level.ERROR)


def test_before_a_deploy_nobody_asks_the_cluster(moto_case: Case, put_kubectl: PutKubectl) -> None:
    ample = {"Quota": {"Value": 100_000}}
    version = {"versionStatus": "STANDARD_SUPPORT"}
    # What moto does not have.
    others = stubbed(
        *[("service-quotas", "get_service_quota", ample)] * 5,
        ("eks", "describe_cluster", "ResourceNotFoundException"),
        ("eks", "describe_cluster_versions", {"clusterVersions": [version]}),
        *[("eks", "describe_cluster", "ResourceNotFoundException")] * 2,
        ("ssm", "get_parameter", {"Parameter": {"Value": "28"}}),
        ("ssm", "get_parameter", {"Parameter": {"Value": "ami-0123456789abcdef0"}}),
    )

    def clients(service: str) -> Any:
        return (others if service in ("service-quotas", "eks", "ssm") else moto_case.clients)(
            service
        )

    asked: list[str] = []
    kubectl = put_kubectl({"nodes": "must not be asked"})
    findings = examine(Case(clients, moto_case.settings, NOW), kubectl, Phase.ALL, asked.append)
    assert asked == ["credentials", *(check.name for check in BEFORE)]
    assert {check for check, level in levels(findings).items() if level is not Level.OK} == {
        "access",
        "container image",
    }


def test_asking_for_a_cluster_that_is_not_there_is_an_error(
    moto_case: Case, settings: Deployment
) -> None:
    _, finding = examine(moto_case, kubectl_for(settings), Phase.AFTER, ignore)
    assert (finding.level, finding.what) == (Level.ERROR, "there is no cluster")


def test_a_healthy_cluster_has_no_complaint(settings: Deployment, put_kubectl: PutKubectl) -> None:
    kubectl = put_kubectl(dict(healthy()))
    findings = check_after(Case(storage_then_claim(), settings, NOW), kubectl, ignore)
    assert levels(findings) == {
        "file system": Level.OK,
        "add-ons": Level.OK,
        "nodes": Level.OK,
        "devices": Level.OK,
        "node health": Level.OK,
        "kubelets": Level.OK,
        "daemon sets": Level.OK,
        "storage taint": Level.OK,
        "Lustre client": Level.OK,
        "claim": Level.OK,
        "volume": Level.OK,
        "pods": Level.OK,
    }


def test_a_cluster_that_does_not_answer_is_one_error_with_a_remedy(
    settings: Deployment, put_kubectl: PutKubectl
) -> None:
    kubectl = put_kubectl({"nodes": "Unable to connect to the server: dial tcp: i/o timeout"})
    storage, _, finding = check_after(Case(storage_then_claim(), settings, NOW), kubectl, ignore)
    assert storage.level is Level.OK
    assert (finding.level, finding.what) == (Level.ERROR, "the cluster does not answer")
    assert "i/o timeout" in finding.value
    assert "aws eks update-kubeconfig --name steadfast-p5 --region us-east-1" in finding.remedy


def test_what_a_user_may_not_list_is_a_warning_and_not_a_wrong_verdict(
    settings: Deployment, put_kubectl: PutKubectl
) -> None:
    refused = {kind: FORBIDDEN.format(kind) for kind in ("nodes", "persistentvolumes")}
    kubectl = put_kubectl({**healthy(), **refused})
    findings = check_after(Case(storage_then_claim(), settings, NOW), kubectl, ignore)
    assert levels(findings) == {
        "file system": Level.OK,
        "add-ons": Level.OK,
        "nodes": Level.WARNING,
        "persistentvolumes": Level.WARNING,
        "claim": Level.WARNING,
    }
