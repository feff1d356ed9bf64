"""The shared file system: what a deploy would do to the one that exists, and how it is now.

CloudFormation makes a change of zone or deployment type by making another file
system. The checkpoints stay on the old one, and the volume and claim in the
cluster, which cannot be changed, still point to it. So such a change is refused.
"""

from dataclasses import dataclass

from botocore.exceptions import ClientError

from infra import names
from infra.aws import ERRORS, Clients, error_code
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok, warning
from infra.doctor.lookups import stack_status, storage_file_system_id
from infra.doctor.platform import delete_stack
from infra.lustre import LUSTRE_VERSION
from infra.settings import InfraSettings

UNCHANGED = "file system change"
STATE = "file system"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSystem:
    """The one that the storage stack has made."""

    id: str
    zone: str
    vpc_cidr: str
    deployment_type: str
    size_gib: int
    throughput_mbps_per_tib: int | None
    lustre_version: str
    lifecycle: str
    dns_name: str
    mount_name: str


def find_file_system(clients: Clients, settings: InfraSettings) -> FileSystem | None:
    """None before the storage stack has made one, or once somebody has deleted it."""
    if not (file_system_id := storage_file_system_id(clients, settings)):
        return None
    try:
        answer = clients("fsx").describe_file_systems(FileSystemIds=[file_system_id])
    except ClientError as problem:
        if error_code(problem) != "FileSystemNotFound":
            raise
        return None
    facts = answer["FileSystems"][0]
    [subnet] = clients("ec2").describe_subnets(SubnetIds=facts["SubnetIds"])["Subnets"]
    [vpc] = clients("ec2").describe_vpcs(VpcIds=[subnet["VpcId"]])["Vpcs"]
    lustre = facts["LustreConfiguration"]
    return FileSystem(
        id=file_system_id,
        zone=subnet["AvailabilityZone"],
        vpc_cidr=vpc["CidrBlock"],
        deployment_type=lustre["DeploymentType"],
        size_gib=facts["StorageCapacity"],
        throughput_mbps_per_tib=lustre.get("PerUnitStorageThroughput"),
        lustre_version=facts.get("FileSystemTypeVersion", "2.10"),
        lifecycle=facts.get("Lifecycle", "unknown"),
        dns_name=facts.get("DNSName", ""),
        mount_name=lustre.get("MountName", ""),
    )


def may_exist(case: Case) -> bool:
    """False only where CloudFormation says that there is no storage stack."""
    try:
        stack = names.stack_name(case.settings, names.STORAGE)
        return stack_status(case.clients, stack) is not None
    except ERRORS:
        return True


def check_change(case: Case) -> list[Finding]:
    return judge_change(find_file_system(case.clients, case.settings), case.settings)


def judge_change(has: FileSystem | None, settings: InfraSettings) -> list[Finding]:
    """What deploying this file would do to the file system that exists."""
    if has is None:
        return [ok(UNCHANGED, "none is deployed yet", "nothing to lose")]
    wants = settings.storage
    findings = [
        error(
            UNCHANGED,
            f"another {what} would replace {has.id}, and leave its checkpoints behind",
            f"deployed {deployed}, file {wanted}",
            f"set {key} back, or deploy under another name and copy the checkpoints",
        )
        for what, key, deployed, wanted in (
            ("zone", "training_zone", has.zone, settings.training_zone),
            ("type", "storage.deployment_type", has.deployment_type, wants.deployment_type),
            ("network", "network.vpc_cidr", has.vpc_cidr, settings.network.vpc_cidr),
        )
        if deployed != wanted
    ]
    findings += _size(has, wants.size_gib)
    # FSx itself changes a throughput and keeps the data; that of SCRATCH_2 is fixed.
    if (
        has.deployment_type == wants.deployment_type == "PERSISTENT_2"
        and has.throughput_mbps_per_tib != wants.throughput_mbps_per_tib
    ):
        findings.append(
            warning(
                UNCHANGED,
                f"the throughput of {has.id} changes in place, and clients stall for minutes",
                f"deployed {has.throughput_mbps_per_tib}, file {wants.throughput_mbps_per_tib} "
                "MB/s per TiB",
                "deploy while no run saves",
            )
        )
    return findings or [ok(UNCHANGED, "a deploy keeps it as it is", has.id)]


def _size(has: FileSystem, wanted_gib: int) -> list[Finding]:
    value = f"deployed {has.size_gib} GiB, file {wanted_gib} GiB"
    if wanted_gib < has.size_gib:
        what = f"{has.id} cannot shrink"
        remedy = f"set storage.size_gib back to {has.size_gib}"
        return [error(UNCHANGED, what, value, remedy)]
    if wanted_gib > has.size_gib:
        what = f"{has.id} grows in place, which takes hours and cannot be undone"
        return [warning(UNCHANGED, what, value, "deploy while no run saves")]
    return []


def _made_anew(settings: InfraSettings) -> str:
    """Of a file system that was deleted by hand. A deploy skips a stack that has not changed."""
    stacks = [names.STORAGE]
    if settings.kubectl_provider:
        stacks.insert(0, names.PLATFORM)  # which imports its address
    deletions = ", when it is gone: ".join(delete_stack(settings, each) for each in stacks)
    return (
        f"if there is no stack {names.stack_name(settings, names.STORAGE)}: 'make deploy'; "
        f"else end the jobs, then: {deletions}, and 'make deploy'"
    )


def check_state(case: Case) -> list[Finding]:
    return judge_state(find_file_system(case.clients, case.settings), case.settings)


def judge_state(has: FileSystem | None, settings: InfraSettings) -> list[Finding]:
    if has is None:
        what = "the storage stack has no file system"
        return [error(STATE, what, "none", _made_anew(settings))]
    findings = []
    if has.lustre_version != LUSTRE_VERSION:
        findings.append(
            error(
                STATE,
                f"nodes cannot mount Lustre {has.lustre_version}",
                has.id,
                "with nothing mounted: aws fsx update-file-system --region "
                f"{settings.region} --file-system-id {has.id} "
                f"--file-system-type-version {LUSTRE_VERSION}",
            )
        )
    look = f"aws fsx describe-file-systems --region {settings.region} --file-system-ids {has.id}"
    match has.lifecycle:
        case "AVAILABLE":
            pass
        case "CREATING" | "UPDATING":
            remedy = "wait some minutes"
            findings.append(warning(STATE, "not ready yet", f"{has.id} {has.lifecycle}", remedy))
        case _:
            remedy = f"see what it says: {look}"
            findings.append(error(STATE, "not usable", f"{has.id} {has.lifecycle}", remedy))
    version = f"{has.id}, Lustre {has.lustre_version}"
    return findings or [ok(STATE, f"available, {has.size_gib} GiB", version)]
