"""The order of a teardown holds for whatever happens to exist."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deployment import load
from infra.teardown.plan import (
    Answer,
    Found,
    FoundPod,
    FoundStack,
    Kind,
    Step,
    belongs,
    plan_teardown,
    why_not,
)
from tests.infra.templates import ROOT

SETTINGS = load(ROOT / "deployments/g5.yaml")
NAME = "steadfast-g5"

# The stack on the left uses what the ones on the right provide; written out by hand.
USES = {
    "platform": ["nodes-g5", "nodes-old", "cluster", "storage", "network"],
    "nodes-g5": ["cluster", "network"],
    "nodes-old": ["cluster", "network"],
    "cluster": ["network"],
    "storage": ["network"],
    "registry": [],
    "network": [],
}


def stack(purpose: str, status: str = "CREATE_COMPLETE") -> FoundStack:
    name = f"{NAME}-{purpose}"
    return FoundStack(name, f"arn:{name}", status, ours=True, protected=False)


def pod(name: str, *, owner: str = "Job/in-job", namespace: str = "training") -> FoundPod:
    of_a_job = owner.startswith("Job/")
    return FoundPod(namespace, name, owner=owner, of_a_job=of_a_job, mounts=True)


WHOLE = Found(
    stacks=tuple(stack(purpose) for purpose in USES),
    cluster=Answer.ANSWERS,
    jobs=("in-job",),
    pods=(pod("in-job-0-x"), pod("in-job-1-x")),
    claim=True,
    volume=True,
)


@st.composite
def anything(draw: st.DrawFn) -> Found:
    purposes = draw(st.permutations(sorted(draw(st.sets(st.sampled_from(sorted(USES)))))))
    names = st.sets(st.sampled_from(["a", "b", "c"]))
    return Found(
        stacks=tuple(stack(purpose) for purpose in purposes),
        cluster=Answer.ANSWERS,
        jobs=tuple(sorted(draw(names))),
        pods=tuple(pod(name) for name in sorted(draw(names))),
        claim=draw(st.booleans()),
        volume=draw(st.booleans()),
    )


def after(step: Step, found: Found) -> Found:
    """What is left once the step is done: all of its targets are gone."""
    match step.kind:
        case Kind.JOBS:
            return replace(found, jobs=())
        case Kind.PODS:
            return replace(found, pods=())
        case Kind.CLAIM:
            return replace(found, claim=False)
        case Kind.VOLUME:
            return replace(found, volume=False)
        case Kind.STACK:
            left = tuple(stack for stack in found.stacks if stack.name not in step.targets)
            return replace(found, stacks=left)


def test_a_whole_deployment_goes_from_its_jobs_to_its_network() -> None:
    assert [str(step) for step in plan_teardown(SETTINGS, WHOLE)] == [
        "delete jobs training/in-job",
        "wait until 2 pods of jobs are gone: training/in-job-0-x, training/in-job-1-x",
        "delete claim training/fsx",
        "delete volume training-fsx",
        "delete stack steadfast-g5-platform",
        "delete stack steadfast-g5-nodes-g5",
        "delete stack steadfast-g5-nodes-old",
        "delete stack steadfast-g5-cluster",
        "delete stack steadfast-g5-storage",
        "delete stack steadfast-g5-registry",
        "delete stack steadfast-g5-network",
    ]


@given(anything())
def test_no_stack_goes_before_one_that_uses_it(found: Found) -> None:
    stacks = [step.targets[0] for step in plan_teardown(SETTINGS, found) if step.kind == "stack"]
    purposes = [name.removeprefix(f"{NAME}-") for name in stacks]
    for at, purpose in enumerate(purposes):
        assert not {*purposes[:at]} & {*USES[purpose]}


@given(anything())
def test_pods_claim_and_volume_go_before_every_stack(found: Found) -> None:
    kinds = [step.kind.value for step in plan_teardown(SETTINGS, found)]
    order = ["jobs", "pods", "claim", "volume", "stack"]
    assert kinds == sorted(kinds, key=order.index)


@given(anything())
def test_all_that_exists_is_taken_down_once_and_nothing_else(found: Found) -> None:
    targets = [target for step in plan_teardown(SETTINGS, found) for target in step.targets]
    exists = [stack.name for stack in found.stacks]
    exists += [f"training/{job}" for job in found.jobs]
    exists += [f"training/{pod.name}" for pod in found.pods]
    exists += ["training/fsx"] * found.claim + ["training-fsx"] * found.volume
    assert sorted(targets) == sorted(exists)


@given(anything(), st.integers(min_value=0, max_value=12))
def test_a_plan_made_after_some_steps_is_the_rest(found: Found, num_done: int) -> None:
    plan = plan_teardown(SETTINGS, found)
    for step in plan[:num_done]:
        found = after(step, found)
    assert plan_teardown(SETTINGS, found) == plan[num_done:]


def test_a_whole_ephemeral_deployment_may_go() -> None:
    assert why_not(SETTINGS, WHOLE) is None


def test_a_platform_that_the_file_has_turned_off_still_goes_first() -> None:
    without = SETTINGS.model_copy(update={"kubectl_provider": False})
    assert plan_teardown(without, WHOLE) == plan_teardown(SETTINGS, WHOLE)


@pytest.mark.parametrize(
    ("name", "is_ours"),
    [
        ("steadfast-g5-network", True),
        ("steadfast-g5-nodes-removed", True),
        ("steadfast-g5-website", False),
        ("steadfast-network", False),
        ("network", False),
    ],
)
def test_a_stack_is_known_by_its_name(name: str, is_ours: bool) -> None:
    assert belongs(SETTINGS, name) is is_ours


def test_a_durable_deployment_is_refused() -> None:
    durable = SETTINGS.model_copy(update={"lifetime": "durable"})
    reason = why_not(durable, Found())
    assert reason == (
        "steadfast-g5 is durable, so that nobody deletes it by mistake; "
        "set lifetime: ephemeral, deploy, then run again"
    )


def test_a_stack_deployed_as_durable_is_refused_whatever_the_file_says() -> None:
    protected = replace(stack("storage"), protected=True)
    reason = why_not(SETTINGS, Found(stacks=(stack("network"), protected)))
    assert reason is not None
    assert "termination protection is on for steadfast-g5-storage:" in reason


def test_a_stack_that_something_else_made_is_refused() -> None:
    reason = why_not(SETTINGS, Found(stacks=(replace(stack("network"), ours=False),)))
    assert reason is not None
    assert "steadfast-g5-network lacks the tag deployment=steadfast-g5" in reason


@pytest.mark.parametrize(
    ("status", "refused"),
    [
        ("UPDATE_IN_PROGRESS", True),
        ("CREATE_IN_PROGRESS", True),
        ("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS", True),
        ("DELETE_IN_PROGRESS", False),
        ("REVIEW_IN_PROGRESS", False),
        ("DELETE_FAILED", False),
        ("ROLLBACK_COMPLETE", False),
    ],
)
def test_a_stack_that_is_being_deployed_is_refused(status: str, refused: bool) -> None:
    assert (why_not(SETTINGS, Found(stacks=(stack("network", status),))) is not None) is refused


@pytest.mark.parametrize(
    "other",
    [
        pod("notebook", owner="nobody"),
        pod("browser-7f", owner="ReplicaSet/browser"),
        pod("a-job", namespace="elsewhere"),
    ],
)
def test_a_pod_that_outlives_the_jobs_and_mounts_is_named(other: FoundPod) -> None:
    reason = why_not(SETTINGS, replace(WHOLE, pods=(*WHOLE.pods, other)))
    assert reason is not None
    assert f"pod {other.namespace}/{other.name} of {other.owner} mounts" in reason


def test_a_pod_that_mounts_nothing_is_in_nobodys_way() -> None:
    other = replace(pod("coredns-1", owner="ReplicaSet/coredns", namespace="kube-system"))
    found = replace(WHOLE, pods=(*WHOLE.pods, replace(other, mounts=False)))
    assert why_not(SETTINGS, found) is None
    assert plan_teardown(SETTINGS, found) == plan_teardown(SETTINGS, WHOLE)


SILENT = Found(
    stacks=tuple(stack(purpose) for purpose in USES),
    cluster=Answer.SILENT,
    why_silent="i/o timeout; run 'aws eks update-kubeconfig'",
)


@pytest.mark.parametrize("left", [list(USES), ["cluster", "nodes-g5"], ["platform", "cluster"]])
def test_a_silent_cluster_without_a_training_node_may_go(left: list[str]) -> None:
    found = replace(SILENT, stacks=tuple(stack(purpose) for purpose in left))
    assert why_not(SETTINGS, found) is None
    assert [step.kind for step in plan_teardown(SETTINGS, found)] == [Kind.STACK] * len(left)


@pytest.mark.parametrize("num_nodes", [1, 64])
def test_a_silent_cluster_with_training_nodes_is_refused_with_both_remedies(
    num_nodes: int,
) -> None:
    instances = tuple(f"i-{index}" for index in range(num_nodes))
    reason = why_not(SETTINGS, replace(SILENT, instances=instances))
    assert reason is not None
    assert reason.startswith(f"{num_nodes} training nodes run (i-0")
    assert "run 'aws eks update-kubeconfig'" in reason
    for group in ("steadfast-g5-g5", "steadfast-g5-old"):
        assert (
            "aws autoscaling update-auto-scaling-group "
            f"--auto-scaling-group-name {group} --min-size 0 --desired-capacity 0 "
            "--region us-east-1"
        ) in reason
    assert "\n" not in reason
    assert len(reason) < 900
