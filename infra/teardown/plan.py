"""What is taken down and in which order, from what exists; and what must not be.

Whoever uses a thing goes before it: pods before the claim that they mount, claim
and volume before the driver that unmounts them, each stack before those whose
values it imports. What is gone already is in no plan, so a teardown that was
interrupted goes on where it stopped.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from infra import names
from infra.lustre import volume_name
from infra.settings import InfraSettings
from infra.wording import some_of

NODES_PREFIX = names.nodes("")

_MAY_BE_DELETED_IN_PROGRESS = frozenset({"DELETE_IN_PROGRESS", "REVIEW_IN_PROGRESS"})


MADE_ANEW = frozenset({"ROLLBACK_COMPLETE", "ROLLBACK_FAILED"})
"""A stack whose first create failed. The CDK CLI deletes it and makes another."""


def unprotect(stack: str, region: str) -> str:
    """The command that lets a stack be deleted."""
    return (
        "aws cloudformation update-termination-protection --no-enable-termination-protection "
        f"--stack-name {stack} --region {region}"
    )


class Kind(StrEnum):
    JOBS = "jobs"
    PODS = "pods"
    CLAIM = "claim"
    VOLUME = "volume"
    STACK = "stack"


@dataclass(frozen=True, slots=True)
class Step:
    kind: Kind
    targets: tuple[str, ...]

    def __str__(self) -> str:
        targets = some_of(self.targets)
        match self.kind:
            case Kind.JOBS:
                return f"delete jobs {targets}"
            case Kind.PODS:
                return f"wait until {len(self.targets)} pods of jobs are gone: {targets}"
            case _:
                return f"delete {self.kind} {targets}"


@dataclass(frozen=True, slots=True)
class FoundStack:
    name: str
    stack_id: str
    status: str
    ours: bool
    """It carries the tag ``deployment`` with this deployment's name."""

    protected: bool
    """Termination protection is on."""


@dataclass(frozen=True, slots=True)
class FoundPod:
    namespace: str
    name: str
    owner: str
    """Kind and name of its controller, ``nobody`` without one."""

    of_a_job: bool
    mounts: bool
    """It names a claim of the file system. A pod that has ended counts: it holds the claim too."""

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Answer(StrEnum):
    """Whether what runs in the cluster could be asked for."""

    NO_CLUSTER = "no cluster"
    ANSWERS = "answers"
    SILENT = "silent"


@dataclass(frozen=True, slots=True)
class Found:
    """What exists now. Without an answer from the cluster, nothing is known of what is in it."""

    stacks: tuple[FoundStack, ...] = ()
    cluster: Answer = Answer.NO_CLUSTER
    why_silent: str = ""
    jobs: tuple[str, ...] = ()
    """Of the deployment's namespace."""

    pods: tuple[FoundPod, ...] = ()
    instances: tuple[str, ...] = ()
    """Training nodes that EC2 has. Looked for only where the cluster is silent."""

    claim: bool = False
    volume: bool = False


def claim_name(settings: InfraSettings) -> str:
    return f"{settings.namespace}/{settings.storage.claim}"


def plan_teardown(settings: InfraSettings, found: Found) -> tuple[Step, ...]:
    """The steps that are left, in order. A plan made after some of them is the rest of it."""
    steps = []
    if found.jobs:
        steps.append(Step(Kind.JOBS, tuple(f"{settings.namespace}/{job}" for job in found.jobs)))
    if leaving := _pods_of_jobs(settings, found.pods):
        steps.append(Step(Kind.PODS, tuple(str(pod) for pod in leaving)))
    if found.claim:
        steps.append(Step(Kind.CLAIM, (claim_name(settings),)))
    if found.volume:
        steps.append(Step(Kind.VOLUME, (volume_name(settings),)))
    stacks = sorted(found.stacks, key=lambda stack: (_position(settings, stack.name), stack.name))
    steps.extend(Step(Kind.STACK, (stack.name,)) for stack in stacks)
    return tuple(steps)


def why_not(settings: InfraSettings, found: Found) -> str | None:
    """Why nothing may be taken down, in one line with the remedy; None if it may."""
    return (
        _kept_on_purpose(settings, found.stacks)
        or _in_other_hands(settings, found.stacks)
        or _cannot_be_seen(settings, found)
        or still_mounted(settings, found.pods)
    )


def belongs(settings: InfraSettings, stack_name: str) -> bool:
    """Whether this is the name of a stack of the deployment, of a removed node group included."""
    purpose = stack_name.removeprefix(f"{settings.name}-")
    return purpose != stack_name and (
        purpose in _consumers_first(settings) or purpose.startswith(NODES_PREFIX)
    )


def scaling_groups(settings: InfraSettings, stacks: Iterable[FoundStack]) -> list[str]:
    """Auto Scaling groups of all training nodes, of those that have left the file as well."""
    purposes = [stack.name.removeprefix(f"{settings.name}-") for stack in stacks]
    removed = [p.removeprefix(NODES_PREFIX) for p in purposes if p.startswith(NODES_PREFIX)]
    groups = dict.fromkeys([*settings.node_groups, *removed])
    return [settings.auto_scaling_group_name(group) for group in groups]


def still_mounted(settings: InfraSettings, pods: Iterable[FoundPod]) -> str | None:
    """Why the claim may not go: a pod that outlives the jobs mounts the file system."""
    for pod in pods:
        if pod.mounts and not _of_our_jobs(settings, pod):
            return (
                f"pod {pod} of {pod.owner} mounts the file system, and is of no job of namespace "
                f"{settings.namespace}; delete it and whatever makes it, then run again"
            )
    return None


def _pods_of_jobs(settings: InfraSettings, pods: Iterable[FoundPod]) -> list[FoundPod]:
    return [pod for pod in pods if _of_our_jobs(settings, pod)]


def _of_our_jobs(settings: InfraSettings, pod: FoundPod) -> bool:
    return pod.of_a_job and pod.namespace == settings.namespace


def _consumers_first(settings: InfraSettings) -> list[str]:
    # As if with the platform stack: the file may have lost it since the last deploy.
    with_platform = settings.model_copy(update={"kubectl_provider": True})
    return list(reversed(names.purposes(with_platform)))


def _position(settings: InfraSettings, stack_name: str) -> int:
    order = _consumers_first(settings)
    purpose = stack_name.removeprefix(f"{settings.name}-")
    if purpose in order:
        return order.index(purpose)
    # A node group that the file no longer has goes with those that it has.
    return next(at for at, known in enumerate(order) if known.startswith(NODES_PREFIX))


def _kept_on_purpose(settings: InfraSettings, stacks: Sequence[FoundStack]) -> str | None:
    remedy = "set lifetime: ephemeral, deploy, then run again"
    # Such a stack no deploy can change, nor delete while it is protected.
    stuck = [each.name for each in stacks if each.protected and each.status in MADE_ANEW]
    if stuck:
        commands = "; ".join(unprotect(stack, settings.region) for stack in stuck)
        remedy = f"first: {commands}; then {remedy}"
    if settings.lifetime == "durable":
        return f"{settings.name} is durable, so that nobody deletes it by mistake; {remedy}"
    if protected := [stack.name for stack in stacks if stack.protected]:
        return (
            f"termination protection is on for {', '.join(protected)}: deployed as durable; "
            f"{remedy}"
        )
    return None


def _in_other_hands(settings: InfraSettings, stacks: Iterable[FoundStack]) -> str | None:
    for stack in stacks:
        # One that was never made has no tags yet, and nothing in it.
        if not stack.ours and stack.status != "REVIEW_IN_PROGRESS":
            return (
                f"stack {stack.name} lacks the tag deployment={settings.name}, so something else "
                "made it; rename this deployment, or delete that stack by hand"
            )
        if stack.status.endswith("_IN_PROGRESS") and (
            stack.status not in _MAY_BE_DELETED_IN_PROGRESS
        ):
            return f"stack {stack.name} is {stack.status}; wait for its end, then run again"
    return None


def _cannot_be_seen(settings: InfraSettings, found: Found) -> str | None:
    """Where no training node runs, no training pod can mount anything, seen or not."""
    if found.cluster is not Answer.SILENT or not found.instances:
        return None
    empty = "; ".join(
        f"aws autoscaling update-auto-scaling-group --auto-scaling-group-name {group} "
        f"--min-size 0 --desired-capacity 0 --region {settings.region}"
        for group in scaling_groups(settings, found.stacks)
    )
    return (
        f"{len(found.instances)} training nodes run ({some_of(found.instances)}), and nobody "
        f"knows what still mounts the file system: {found.why_silent}; or, if nothing of value "
        f"runs there, empty the groups and wait until their nodes are gone: {empty}"
    )
