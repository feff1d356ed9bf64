"""Machine images, the Kubernetes version and container images."""

from datetime import UTC, datetime
from typing import Any

import pytest

from deployment import Deployment
from infra.doctor.case import Case
from infra.doctor.findings import Level
from infra.doctor.software import (
    check_amis,
    check_images,
    check_version,
    judge_ami,
    judge_parameter,
    judge_version,
)
from infra.node_groups import NodeGroup
from tests.infra.doctor.conftest import NOW
from tests.infra.doctor.stand_ins import stubbed

PARAMETER = (
    "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/recommended/image_id"
)
AMI = "ami-0123456789abcdef0"


def pinned(settings: Deployment) -> NodeGroup:
    return settings.node_groups["p5"].model_copy(update={"ami_id": AMI})


def test_the_recommended_image_is_looked_up(settings: Deployment) -> None:
    answer = {"Parameter": {"Name": PARAMETER, "Value": AMI}}
    case = Case(stubbed(("ssm", "get_parameter", answer)), settings, NOW)
    [finding] = check_amis(case)
    assert (finding.level, finding.value) == (Level.OK, AMI)


def test_a_version_without_a_recommended_image_is_an_error(moto_case: Case) -> None:
    # moto holds none of EKS's parameters.
    [finding] = check_amis(moto_case)
    assert (finding.level, finding.value) == (Level.ERROR, PARAMETER)


def test_a_pinned_image_that_does_not_exist_is_an_error(moto_case: Case) -> None:
    groups = {"p5": pinned(moto_case.settings)}  # type: ignore[arg-type]
    settings = moto_case.settings.model_copy(update={"node_groups": groups})
    [finding] = check_amis(Case(moto_case.clients, settings, NOW))
    assert (finding.level, finding.value) == (Level.ERROR, AMI)


@pytest.mark.parametrize(
    ("name", "state", "level"),
    [
        ("amazon-eks-node-al2023-x86_64-nvidia-1.35-v20261101", "available", Level.OK),
        ("our-own-image", "available", Level.OK),
        ("amazon-eks-node-al2023-x86_64-standard-1.35-v20261101", "available", Level.ERROR),
        ("amazon-eks-node-al2023-x86_64-nvidia-1.35-v20261101", "deregistered", Level.ERROR),
    ],
)
def test_a_pinned_image_must_be_usable_and_have_the_driver(
    settings: Deployment, name: str, state: str, level: Level
) -> None:
    assert judge_ami("p5", pinned(settings), {"Name": name, "State": state}).level is level


def test_a_missing_parameter_says_how_to_go_on() -> None:
    assert judge_parameter("p5", PARAMETER, None).remedy.endswith("pin node_groups.p5.ami_id")


def version(**facts: Any) -> dict[str, Any]:
    return {"clusterVersions": [{"clusterVersion": "1.35", **facts}]}


def test_a_version_in_standard_support_is_good(settings: Deployment) -> None:
    ends = datetime(2027, 3, 27, tzinfo=UTC)
    answer = version(versionStatus="STANDARD_SUPPORT", endOfStandardSupportDate=ends)
    [finding] = check_version(
        Case(stubbed(("eks", "describe_cluster_versions", answer)), settings, NOW)
    )
    assert (finding.level, finding.value) == (Level.OK, "until 2027-03-27")


def test_support_that_ends_within_60_days_is_a_warning() -> None:
    facts = {"versionStatus": "STANDARD_SUPPORT"}
    sixty = datetime(2027, 1, 28, 18, 0, tzinfo=UTC)
    finding = judge_version("1.35", {**facts, "endOfStandardSupportDate": sixty}, NOW)
    assert (finding.level, finding.what) == (
        Level.WARNING,
        "1.35 leaves standard support in 60 days",
    )
    later = {**facts, "endOfStandardSupportDate": sixty.replace(minute=1)}
    assert judge_version("1.35", later, NOW).level is Level.OK


@pytest.mark.parametrize("facts", [{"status": "extended-support"}, {}])
def test_a_version_out_of_standard_support_is_an_error(facts: dict[str, Any]) -> None:
    assert judge_version("1.34", facts, NOW).level is Level.ERROR


@pytest.mark.parametrize(
    ("has", "level"),
    [
        ("1.34", Level.WARNING),
        ("1.35", Level.WARNING),
        ("1.36", Level.ERROR),
        (None, Level.ERROR),
    ],
)
def test_a_version_out_of_support_forbids_no_step_of_a_cluster_on_its_way_up(
    settings: Deployment, has: str | None, level: Level
) -> None:
    gone = "ResourceNotFoundException"
    clients = stubbed(
        ("eks", "describe_cluster_versions", version(versionStatus="EXTENDED_SUPPORT")),
        ("eks", "describe_cluster", {"cluster": {"version": has}} if has else gone),
    )
    [finding] = check_version(Case(clients, settings, NOW))
    assert (finding.level, "extended support" in finding.value) == (level, True)


def test_a_version_that_eks_does_not_know_is_an_error(settings: Deployment) -> None:
    clients = stubbed(
        ("eks", "describe_cluster_versions", "InvalidParameterException"),
        ("eks", "describe_cluster", "ResourceNotFoundException"),
    )
    [finding] = check_version(Case(clients, settings, NOW))
    assert (finding.level, finding.value) == (Level.ERROR, "unknown")


def test_images_are_missing_until_their_repositories_exist(moto_case: Case) -> None:
    trainer, repair = check_images(moto_case)
    assert (trainer.level, repair.level) == (Level.WARNING, Level.WARNING)
    assert trainer.what == "the repository does not exist yet; the registry stack makes it"
    assert repair.value == "steadfast-p5/node-repair"


def test_a_tag_that_was_never_pushed_comes_with_the_push(moto_case: Case) -> None:
    ecr = moto_case.clients("ecr")
    for repository in ("steadfast-p5/trainer", "steadfast-p5/node-repair"):
        ecr.create_repository(repositoryName=repository)
    manifest = '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json"}'
    ecr.put_image(
        repositoryName="steadfast-p5/node-repair", imageTag="0.1.0", imageManifest=manifest
    )
    trainer, repair = check_images(moto_case)
    assert (trainer.level, repair.level) == (Level.WARNING, Level.OK)
    uri = "123456789012.dkr.ecr.us-east-1.amazonaws.com/steadfast-p5/trainer:0.1.0"
    assert trainer.remedy == f"docker push {uri}"
