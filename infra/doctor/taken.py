"""Names that something else has taken: CloudFormation fails to create what exists already.

What a durable deployment has left behind is such a thing, if it comes back under its name.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from infra import names
from infra.aws import Clients, error_code
from infra.doctor.case import Case
from infra.doctor.cluster import describe_cluster
from infra.doctor.findings import Finding, error, ok
from infra.doctor.lookups import ABSENT, scaling_group, stack_status
from infra.settings import InfraSettings

NAMES = "names"

_HOLDS_NOTHING = ABSENT - {"ROLLBACK_FAILED"}
"""The one left out still has what it could not delete, and takes it along when it is deleted."""


@dataclass(frozen=True, slots=True)
class Named:
    """What a stack makes under a name of its own."""

    stack: str
    kind: str
    name: str
    delete: str
    """The command that does, without the region."""


def named_things(settings: InfraSettings) -> list[Named]:
    images = [settings.image, *([settings.node_repair.image] if settings.node_repair else [])]
    name, cluster = settings.name, names.CLUSTER
    things = [
        _log_group(names.NETWORK, f"/aws/vpc/{name}/flow-logs"),
        *(
            Named(
                names.REGISTRY,
                "ECR repository",
                image.repository,
                f"aws ecr delete-repository --force --repository-name {image.repository}",
            )
            for image in images
        ),
        _log_group(cluster, f"/aws/eks/{name}/cluster"),
        Named(cluster, "EKS cluster", name, f"aws eks delete-cluster --name {name}"),
    ]
    for group in settings.node_groups:
        scaling = settings.auto_scaling_group_name(group)
        delete = (
            "aws autoscaling delete-auto-scaling-group --force-delete "
            f"--auto-scaling-group-name {scaling}"
        )
        things.append(Named(names.nodes(group), "Auto Scaling group", scaling, delete))
    return things


def _log_group(stack: str, name: str) -> Named:
    return Named(stack, "log group", name, f"aws logs delete-log-group --log-group-name {name}")


def check_names(case: Case) -> list[Finding]:
    """Asks only for what a stack makes that does not exist yet."""
    things = named_things(case.settings)
    absent = {
        stack
        for stack in dict.fromkeys(thing.stack for thing in things)
        if stack_status(case.clients, names.stack_name(case.settings, stack)) in _HOLDS_NOTHING
    }
    to_make = [thing for thing in things if thing.stack in absent]
    taken = [each for each in to_make if _EXISTS[each.kind](case.clients, case.settings, each.name)]
    return judge_names(taken, to_make, case.settings)


def judge_names(
    taken: Iterable[Named], to_make: Sequence[Named], settings: InfraSettings
) -> list[Finding]:
    findings = [
        error(
            NAMES,
            f"{each.kind} {each.name} exists, and no stack of the deployment has made it",
            f"{names.stack_name(settings, each.stack)} would make it",
            f"delete it with all that it holds: {each.delete} --region {settings.region}; or keep "
            "it: node_modules/.bin/cdk import -c deployment=FILE "
            f"{names.stack_name(settings, each.stack)}; or deploy under another name",
        )
        for each in taken
    ]
    return findings or [ok(NAMES, "none is taken", f"{len(to_make)} to be made")]


def _repository(clients: Clients, settings: InfraSettings, name: str) -> bool:
    del settings
    try:
        clients("ecr").describe_repositories(repositoryNames=[name])
    except ClientError as problem:
        if error_code(problem) != "RepositoryNotFoundException":
            raise
        return False
    return True


def _logs(clients: Clients, settings: InfraSettings, name: str) -> bool:
    del settings
    found: list[Any] = clients("logs").describe_log_groups(logGroupNamePrefix=name)["logGroups"]
    return any(group["logGroupName"] == name for group in found)


def _cluster(clients: Clients, settings: InfraSettings, name: str) -> bool:
    del name
    return describe_cluster(clients, settings) is not None


def _scaling(clients: Clients, settings: InfraSettings, name: str) -> bool:
    del settings
    return scaling_group(clients, name) is not None


_EXISTS: dict[str, Callable[[Clients, InfraSettings, str], bool]] = {
    "ECR repository": _repository,
    "log group": _logs,
    "EKS cluster": _cluster,
    "Auto Scaling group": _scaling,
}
