"""Whether the account's quotas leave room for what the deployment starts.

EC2 counts vCPUs by family of instance types: those of on-demand nodes, whether a
reservation holds their capacity or not. Instances of a Capacity Block are not
counted: EC2 sets its limit when the block is bought.

Not covered: what else runs in the account and uses up the same vCPU quota.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from infra import names
from infra.aws import Clients, error_code
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, has_errors, ok, softened
from infra.doctor.lookups import (
    all_pages,
    deployed_resources,
    scaling_group,
    storage_file_system_id,
)
from infra.node_groups import CapacityBlock
from infra.settings import InfraSettings

VCPUS = "vCPU quota"
FSX = "FSx quota"


@dataclass(frozen=True, slots=True)
class Quota:
    code: str
    """Service Quotas' name for it, the same in every account and region."""

    name: str


P_INSTANCES = Quota("L-417A185B", "Running On-Demand P instances")
G_INSTANCES = Quota("L-DB2E81BA", "Running On-Demand G and VT instances")
STANDARD_INSTANCES = Quota("L-1216C47A", "Running On-Demand Standard instances")

STORAGE_QUOTAS = {
    "SCRATCH_2": Quota("L-AD2FC696", "Lustre Scratch storage capacity"),
    "PERSISTENT_2": Quota("L-8F1B9C74", "Lustre Persistent_2 storage capacity"),
}


def quota_of(instance_type: str) -> Quota | None:
    """The quota that counts an instance's vCPUs; None for families with one of their own."""
    family = re.match(r"[a-z]+", instance_type)
    match family.group() if family else "":
        case "p":
            return P_INSTANCES
        case "g" | "vt":
            return G_INSTANCES
        case "a" | "c" | "d" | "h" | "i" | "m" | "r" | "t" | "z":
            return STANDARD_INSTANCES
        case _:
            return None


def vcpus_needed(settings: InfraSettings, system_vcpus: int) -> Counter[Quota]:
    """vCPUs under each quota, once every node runs. ``system_vcpus`` are those of one node."""
    needed: Counter[Quota] = Counter()
    system = settings.system_nodes
    if quota := quota_of(system.instance_type):
        needed[quota] += system.num_nodes * system_vcpus
    for group in settings.node_groups.values():
        quota = quota_of(group.instance_type)
        if quota and not isinstance(group.capacity, CapacityBlock):
            needed[quota] += group.all_nodes * group.hardware.vcpus
    return needed


def check_vcpus(case: Case) -> list[Finding]:
    system = case.settings.system_nodes.instance_type
    try:
        types = case.clients("ec2").describe_instance_types(InstanceTypes=[system])["InstanceTypes"]
    except ClientError as problem:
        if error_code(problem) != "InvalidInstanceType":
            raise
        remedy = "choose another system_nodes.instance_type"
        return [error(VCPUS, "EC2 does not know the type of the system nodes", system, remedy)]
    needed = vcpus_needed(case.settings, types[0]["VCpuInfo"]["DefaultVCpus"])
    limits = {quota: limit_of(case.clients, "ec2", quota) for quota in needed}
    findings = judge_vcpus(needed, limits, case.settings.region)
    if has_errors(findings) and not starts_nodes(case):
        return softened(findings, "a deploy starts no node")
    return findings


def starts_nodes(case: Case) -> bool:
    """Whether a deploy asks for more nodes than the deployed groups have room for now."""
    clients, settings = case.clients, case.settings
    for name, group in settings.node_groups.items():
        has = scaling_group(clients, settings.auto_scaling_group_name(name))
        # A block's nodes use no quota.
        if not isinstance(group.capacity, CapacityBlock) and (
            has is None or has["MaxSize"] < group.all_nodes
        ):
            return True
    cluster = deployed_resources(clients, names.stack_name(settings, names.CLUSTER))
    system = cluster.get("AWS::EKS::Nodegroup", ())
    sizes = [int(group["ScalingConfig"]["DesiredSize"]) for group in system]
    return sum(sizes) < settings.system_nodes.num_nodes


def judge_vcpus(
    needed: Mapping[Quota, int], limits: Mapping[Quota, float], region: str
) -> list[Finding]:
    return [
        judge_quota(
            VCPUS, quota, needed=need, used=0, limit=limits[quota], unit="vCPUs", region=region
        )
        for quota, need in needed.items()
    ]


def check_fsx(case: Case) -> list[Finding]:
    quota = STORAGE_QUOTAS[case.settings.storage.deployment_type]
    found = all_pages(case.clients("fsx"), "describe_file_systems", "FileSystems")
    own = storage_file_system_id(case.clients, case.settings)
    limit = limit_of(case.clients, "fsx", quota)
    findings = [judge_fsx(case.settings, found, own=own, limit=limit)]
    has = [system.get("StorageCapacity", 0) for system in found if system["FileSystemId"] == own]
    if has and case.settings.storage.size_gib <= has[0]:
        return softened(findings, "the file system exists, and does not grow")
    return findings


def judge_fsx(
    settings: InfraSettings,
    file_systems: Sequence[Mapping[str, Any]],
    *,
    own: str | None,
    limit: float,
) -> Finding:
    """``own`` is the deployment's file system, if it has one: its size is counted once."""
    kind = settings.storage.deployment_type
    family = kind.split("_", maxsplit=1)[0] if kind.startswith("SCRATCH") else kind
    used = sum(
        # Others' file systems need not be of Lustre, nor have a size of their own.
        system.get("StorageCapacity", 0)
        for system in file_systems
        if system["FileSystemId"] != own
        and system.get("LustreConfiguration", {}).get("DeploymentType", "").startswith(family)
    )
    return judge_quota(
        FSX,
        STORAGE_QUOTAS[kind],
        needed=settings.storage.size_gib,
        used=used,
        limit=limit,
        unit="GiB",
        region=settings.region,
        service="fsx",
    )


def judge_quota(
    check: str,
    quota: Quota,
    *,
    needed: int,
    used: int,
    limit: float,
    unit: str,
    region: str,
    service: str = "ec2",
) -> Finding:
    others = f" beside {used} of others" if used else ""
    what = f"{quota.name}: needs {needed} {unit}{others}"
    value = f"{limit:.0f} {unit} allowed"
    if needed + used <= limit:
        return ok(check, what, value)
    return error(
        check,
        what,
        value,
        "ask for more: aws service-quotas request-service-quota-increase "
        f"--region {region} --service-code {service} --quota-code {quota.code} "
        f"--desired-value {needed + used}",
    )


def limit_of(clients: Clients, service: str, quota: Quota) -> float:
    """The account's own limit, or AWS's default where nobody ever asked for another."""
    quotas = clients("service-quotas")
    try:
        answer = quotas.get_service_quota(ServiceCode=service, QuotaCode=quota.code)
    except ClientError as problem:
        if error_code(problem) != "NoSuchResourceException":
            raise
        answer = quotas.get_aws_default_service_quota(ServiceCode=service, QuotaCode=quota.code)
    return float(answer["Quota"]["Value"])
