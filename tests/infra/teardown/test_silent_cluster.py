"""A cluster that kubectl cannot reach: EC2 says whether anything can still train in it."""

import json

import boto3
import pytest

from deployment import load
from infra.aws import clients_of
from infra.kubectl import kubectl_for
from infra.teardown.instances import training_instances
from infra.teardown.plan import Answer, Found, FoundStack, Kind, Step, scaling_groups
from infra.teardown.steps import Teardown
from infra.teardown.waiting import Pace
from tests.infra.teardown.conftest import NAME, World
from tests.infra.teardown.test_plan import SETTINGS, WHOLE
from tests.infra.teardown.training_nodes import training_nodes

OLD = FoundStack(f"{NAME}-nodes-old", "arn:old", "CREATE_COMPLETE", ours=True, protected=False)


def found(world: World) -> list[str]:
    return [*training_instances(world.client("ec2"), load(world.deployment), [OLD])]


def test_an_unreachable_deployment_goes_once_its_groups_are_empty(world: World) -> None:
    world.change_cluster(silent=True)
    with training_nodes(world.client, 1):
        assert world.run("--yes").returncode == 2
    done = world.run("--yes", "--json")
    assert done.returncode == 0, done.stderr
    assert [step["kind"] for step in json.loads(done.stdout)["done"]] == ["stack"] * 6
    assert world.stacks == []


def test_a_node_that_came_after_the_plan_stops_the_first_stack(world: World) -> None:
    session = boto3.Session("testing", "testing", region_name="us-east-1")
    settings = load(world.deployment)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AWS_ENDPOINT_URL", world.endpoint)
        teardown = Teardown(settings, clients_of(session), kubectl_for(settings), Pace())
        silent = Found(stacks=(OLD,), cluster=Answer.SILENT, why_silent="i/o timeout")
        with training_nodes(world.client, 1):
            outcome = teardown.carry_out([Step(Kind.STACK, (OLD.name,))], silent)
    assert (outcome.done, len(world.stacks)) == ((), 6)
    assert outcome.reason.startswith("1 training nodes run (i-")


@pytest.mark.parametrize("group", [f"{NAME}-g5", f"{NAME}-old"])
def test_nodes_of_the_files_groups_and_of_a_removed_one_count(world: World, group: str) -> None:
    with training_nodes(world.client, 2, group=group) as nodes:
        assert found(world) == nodes
    assert found(world) == []


@pytest.mark.parametrize(
    ("group", "cluster"), [("eks-system-nodes", NAME), (f"{NAME}-g5", "another")]
)
def test_system_nodes_and_another_clusters_do_not(world: World, group: str, cluster: str) -> None:
    with training_nodes(world.client, 1, group=group, cluster=cluster):
        assert found(world) == []


def test_a_stopped_node_may_start_again_so_it_counts(world: World) -> None:
    with training_nodes(world.client, 1) as nodes:
        world.client("ec2").stop_instances(InstanceIds=nodes)
        assert found(world) == nodes


def test_groups_are_those_of_the_file_and_of_the_stacks_each_once() -> None:
    assert scaling_groups(SETTINGS, WHOLE.stacks) == ["steadfast-g5-g5", "steadfast-g5-old"]
