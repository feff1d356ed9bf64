"""`python -m infra.teardown` as a process takes down all that a deployment left."""

import json
import os
import pty
import select
import signal
import sys
import time

import pytest

from tests.infra.teardown.conftest import ACCOUNT, NAME, World, pod

CONTEXT = f"arn:aws:eks:us-east-1:{ACCOUNT}:cluster/{NAME}"


def test_a_whole_deployment_is_taken_down_and_a_second_run_finds_nothing(world: World) -> None:
    stack_ids = world.stack_ids
    done = world.run("--yes", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["plan"] == report["done"]
    assert [step["targets"] for step in report["done"]] == [
        ["training/in-job-1"],
        ["training/in-job-1-0-x7", "training/in-job-1-1-k2"],
        ["training/fsx"],
        ["training-fsx"],
        *([f"{NAME}-{p}"] for p in ("platform", "nodes-g5", "cluster", "storage")),
        *([f"{NAME}-{p}"] for p in ("registry", "network")),
    ]
    assert report["failed"] is None
    # moto's cluster is of no stack, so here it outlives its own, and is named.
    assert [item["what"] for item in report["stays"]] == [f"EKS cluster {NAME}"]
    assert world.stacks == []
    stacks = [step["targets"][0] for step in report["done"] if step["kind"] == "stack"]
    assert sorted(stacks, key=lambda name: world.deleted_at(stack_ids[name])) == stacks
    assert [pod["metadata"]["name"] for pod in world.cluster["pods"]] == ["coredns-5d"]
    assert world.cluster["persistentvolumeclaims"] == world.cluster["persistentvolumes"] == []
    assert "Waiting" in done.stderr

    calls = len(world.kubectl_calls)
    again = world.run("--yes")
    assert again.returncode == 0
    assert f"{NAME} is taken down (0 steps)." in again.stdout
    assert len(world.kubectl_calls) == calls


def test_the_claim_goes_after_the_jobs_in_the_named_cluster(world: World) -> None:
    assert world.run("--yes").returncode == 0
    deletions = [call for call in world.kubectl_calls if " delete " in call]
    assert deletions == [
        f"{CONTEXT} delete jobs.batch --all --namespace training --cascade=foreground --wait=false",
        f"{CONTEXT} delete persistentvolumeclaims fsx --namespace training --wait=false "
        "--ignore-not-found",
        f"{CONTEXT} delete persistentvolumes training-fsx --wait=false --ignore-not-found",
    ]


def test_a_dry_run_prints_the_plan_and_changes_nothing(world: World) -> None:
    stacks, cluster = world.stacks, world.cluster
    done = world.run_module("--dry-run")
    assert done.returncode == 0, done.stderr
    assert "  1. delete jobs training/in-job-1\n" in done.stdout
    assert f" 10. delete stack {NAME}-network\n" in done.stdout
    assert (world.stacks, world.cluster) == (stacks, cluster)
    assert not [call for call in world.kubectl_calls if " get " not in call]


def test_a_removed_node_group_goes_too_and_another_deployments_stays(world: World) -> None:
    world.make_stack(f"{NAME}-nodes-old")
    world.make_stack(f"{NAME}-nodes-b-network", tag=f"{NAME}-nodes-b")
    plan = json.loads(world.run("--dry-run", "--json").stdout)["plan"]
    stacks = [step["targets"][0] for step in plan if step["kind"] == "stack"]
    assert stacks == [
        *(f"{NAME}-{p}" for p in ("platform", "nodes-g5", "nodes-old", "cluster")),
        *(f"{NAME}-{p}" for p in ("storage", "registry", "network")),
    ]


def test_an_interrupted_teardown_goes_on_where_it_stopped(world: World) -> None:
    world.change_cluster(pod_reads=10**9)
    with world.started("--yes") as process:
        assert process.stderr is not None
        said = next(line for line in process.stderr if line.startswith("Waiting"))
        process.send_signal(signal.SIGINT)
        last = process.stderr.read().splitlines()[-1]
    assert (
        "2 pods of namespace training: in-job-1-0-x7 on ip-10-0-1-7.ec2.internal, in-job-1-1"
        in said
    )
    assert process.returncode == 130
    assert last == "infra.teardown: interrupted; run it again to go on"
    assert len(world.stacks) == 6

    world.change_cluster(pod_reads=1)
    assert world.run("--yes").returncode == 0
    assert world.stacks == []


def test_a_command_that_does_not_end_is_killed_with_its_children(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the tests themselves: a fault fails, and leaves no process."""
    monkeypatch.setattr("tests.infra.teardown.conftest.BOUND_SECONDS", 0.5)
    child = f"{sys.executable} -c 'import time; time.sleep(300)'"
    kubectl = world.folder / "bin/kubectl"
    kubectl.write_text(f"#!/bin/sh\n{child} & echo $! > {world.folder}/child\nwait\n")
    started = time.monotonic()
    monkeypatch.setattr(World, "command", lambda *_: [str(kubectl)])
    assert world.run("--yes").returncode == -signal.SIGKILL
    assert time.monotonic() - started < 30.0
    child_id = int((world.folder / "child").read_text())
    assert _ends(child_id)


def _ends(process_id: int) -> bool:
    """Within 30 s: SIGKILL takes its time, and its sender does not wait for grandchildren."""
    try:
        descriptor = os.pidfd_open(process_id)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 30.0)[0])
    finally:
        os.close(descriptor)


def test_a_claim_that_does_not_go_fails_before_any_stack(world: World) -> None:
    """A pod that comes after the plan was made, and mounts: seen once more before the claim."""
    late = {**pod("late", owner=("ReplicaSet", "late")), "arrives_after_jobs": True}
    world.change_cluster(pods=[*world.cluster["pods"], late])
    done = world.run("--yes", "--json")
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert report["failed"]["kind"] == "claim"
    assert "pod training/late of ReplicaSet/late mounts the file system" in done.stderr
    assert len(world.stacks) == 6


@pytest.mark.parametrize(("typed", "code", "num_stacks"), [(NAME, 0, 0), ("yes", 2, 6)])
def test_on_a_terminal_it_asks_for_the_name(
    world: World, typed: str, code: int, num_stacks: int
) -> None:
    ours, theirs = pty.openpty()
    try:
        os.write(ours, f"{typed}\n".encode())
        done = world.run(stdin=theirs)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == code, done.stderr
    assert "Checkpoints on the file system and images in the registry go with it." in done.stderr
    assert f"Type {NAME} to delete all of it: " in done.stderr
    assert len(world.stacks) == num_stacks
