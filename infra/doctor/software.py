"""Whether what the nodes run exists: machine images, Kubernetes version, container images."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import ClientError

from infra.aws import Clients, error_code
from infra.doctor.case import Case
from infra.doctor.cluster import describe_cluster, minor_of
from infra.doctor.findings import Finding, Level, error, ok, softened, warning
from infra.doctor.lookups import parameter
from infra.images import ami_parameter
from infra.node_groups import NodeGroup
from infra.settings import PinnedImage

AMI = "machine image"
KUBERNETES = "Kubernetes version"
IMAGE = "container image"

SUPPORT_NOTICE = timedelta(days=60)
"""Time enough to plan an upgrade; after it EKS charges six times as much for the cluster."""


def check_amis(case: Case) -> list[Finding]:
    findings = []
    for name, group in case.settings.node_groups.items():
        if group.ami_id:
            findings.append(judge_ami(name, group, _image(case.clients, group.ami_id)))
        else:
            key = ami_parameter(case.settings.kubernetes_version, group.hardware)
            findings.append(judge_parameter(name, key, parameter(case.clients, key)))
    return findings


def judge_ami(name: str, group: NodeGroup, image: Mapping[str, Any] | None) -> Finding:
    """A pinned image, as EC2's DescribeImages gives it."""
    remedy = f"correct node_groups.{name}.ami_id, or remove it for the recommended image"
    if image is None:
        what = f"{name}: no such image in this region, or it is not shared with this account"
        return error(AMI, what, group.ami_id, remedy)
    called, state = image.get("Name", ""), image.get("State", "")
    if state != "available":
        return error(AMI, f"{name}: the pinned image cannot be launched", f"state {state}", remedy)
    if group.hardware.num_gpus and called.startswith("amazon-eks-node-") and "nvidia" not in called:
        return error(AMI, f"{name}: the pinned image has no NVIDIA driver", called, remedy)
    return ok(AMI, f"{name}: the pinned image exists", f"{group.ami_id} {called}")


def judge_parameter(name: str, key: str, ami_id: str | None) -> Finding:
    if ami_id is None:
        return error(
            AMI,
            f"{name}: no image is recommended for this version in this region",
            key,
            f"choose another kubernetes_version, or pin node_groups.{name}.ami_id",
        )
    return ok(AMI, f"{name}: the recommended image", ami_id)


def check_version(case: Case) -> list[Finding]:
    version = case.settings.kubernetes_version
    findings = [_judged_version(case, version)]
    if findings[0].level is not Level.ERROR:
        return findings
    has = (describe_cluster(case.clients, case.settings) or {}).get("version")
    if has and minor_of(version) >= minor_of(has):
        # There is no other way up, and staying changes nothing.
        return softened(findings, f"the cluster has {has} already")
    return findings


def _judged_version(case: Case, version: str) -> Finding:
    try:
        answer = case.clients("eks").describe_cluster_versions(clusterVersions=[version])
    except ClientError as problem:
        # EKS's answer to a version that it does not know.
        if error_code(problem) != "InvalidParameterException":
            raise
        return judge_version(version, {}, case.now)
    versions = answer["clusterVersions"]
    return judge_version(version, versions[0] if versions else {}, case.now)


def judge_version(version: str, facts: Mapping[str, Any], now: datetime) -> Finding:
    """``facts`` is EKS's description of the version; empty if it has none."""
    status = facts.get("versionStatus") or facts.get("status", "unknown")
    status = str(status).upper().replace("-", "_")
    if status != "STANDARD_SUPPORT":
        return error(
            KUBERNETES,
            f"{version} is not in standard support",
            status.lower().replace("_", " "),
            "take a newer kubernetes_version: extended support costs six times as much",
        )
    ends = facts.get("endOfStandardSupportDate")
    if ends and ends - now <= SUPPORT_NOTICE:
        what = f"{version} leaves standard support in {max((ends - now).days, 0)} days"
        return warning(KUBERNETES, what, f"{ends:%Y-%m-%d}", "plan for a newer kubernetes_version")
    return ok(
        KUBERNETES, f"{version} is in standard support", f"until {ends:%Y-%m-%d}" if ends else ""
    )


def check_images(case: Case) -> list[Finding]:
    images: list[PinnedImage] = [case.settings.image]
    images += [case.settings.node_repair.image] if case.settings.node_repair else []
    return [_check_image(case, image) for image in images]


def _check_image(case: Case, image: PinnedImage) -> Finding:
    uri = case.settings.uri_of(image)
    try:
        case.clients("ecr").describe_images(
            repositoryName=image.repository, imageIds=[{"imageTag": image.tag}]
        )
    except ClientError as problem:
        match error_code(problem):
            case "RepositoryNotFoundException":
                what = "the repository does not exist yet; the registry stack makes it"
                return warning(IMAGE, what, image.repository, f"deploy, then docker push {uri}")
            case "ImageNotFoundException":
                what = "the repository has no image with this tag, so no pod would start"
                return warning(IMAGE, what, f"{image.repository}:{image.tag}", f"docker push {uri}")
            case _:
                raise
    return ok(IMAGE, "pushed", f"{image.repository}:{image.tag}")


def _image(clients: Clients, ami_id: str) -> Mapping[str, Any] | None:
    try:
        images = clients("ec2").describe_images(ImageIds=[ami_id])["Images"]
    except ClientError as problem:
        if not error_code(problem).startswith("InvalidAMIID"):
            raise
        return None
    return images[0] if images else None
