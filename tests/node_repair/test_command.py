"""The command itself, as the container runs it, against moto and a fake Kubernetes API."""

import json
import socket
from typing import Any

import pytest

from tests.node_repair.conftest import Place
from tests.node_repair.fake_kubernetes import RECORD_PATH
from tests.node_repair.worlds import GROUP, SETTINGS

BROKEN = {"condition": "AcceleratedHardwareReady", "status": "False"}
NODE_1 = "/api/v1/nodes/node-1"
LOOK = {"Effect": "Allow", "Action": "ec2:DescribeInstances", "Resource": "*"}
END = {
    "Effect": "Allow",
    "Action": "autoscaling:TerminateInstanceInAutoScalingGroup",
    "Resource": "*",
}


def test_a_pass_replaces_the_one_broken_node_and_the_next_frees_its_pods(place: Place) -> None:
    broken = place.instance_ids[1]
    place.break_node(1, **BROKEN, seconds=200)
    place.kubernetes.witness = lambda: place.states()[broken]

    first = place.run()

    assert (first.returncode, first.stderr) == (0, "")
    assert [line.split()[0] for line in first.stdout.splitlines()] == [
        "cordon",
        "record",
        "terminate",
    ]
    # Marked and recorded while it ran, and only then ended; its group has another one.
    assert [(path, state) for path, _, state in place.kubernetes.patches] == [
        (NODE_1, "running"),
        (RECORD_PATH, "running"),
    ]
    assert place.kubernetes.node("node-1")["spec"]["unschedulable"] is True
    assert set(place.kubernetes.record) == {broken}
    assert place.states()[broken] == "terminated"
    assert place.in_group() > {place.instance_ids[0], place.instance_ids[2]}
    assert len(place.in_group()) == 3

    place.break_node(1, condition="Ready", status="Unknown", seconds=20)
    second = place.run()

    assert (second.returncode, second.stderr) == (0, "")
    assert second.stdout.startswith(f"taint node-1 {broken}: ")
    assert place.kubernetes.node("node-1")["spec"]["taints"] == [
        {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
        {
            "key": "node.kubernetes.io/out-of-service",
            "value": "nodeshutdown",
            "effect": "NoExecute",
        },
    ]
    assert place.run().stdout == "nothing to do\n"


def test_nothing_is_done_about_nodes_that_are_well(place: Place) -> None:
    done = place.run()
    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing to do\n", "")
    assert place.kubernetes.patches == []


def test_a_dry_run_says_the_same_and_changes_nothing(place: Place) -> None:
    place.break_node(1, **BROKEN, seconds=200)
    before = place.states()
    dry = place.run(mode="dry-run")
    assert (dry.returncode, dry.stderr) == (0, "")
    assert [line.split()[:4] for line in dry.stdout.splitlines()] == [
        ["dry", "run:", kind, "node-1"] for kind in ("cordon", "record", "terminate")
    ]
    assert place.kubernetes.patches == []
    assert place.states() == before


def test_a_second_broken_node_waits_and_the_report_for_machines_says_why(place: Place) -> None:
    place.break_node(1, **BROKEN, seconds=200)
    place.break_node(2, **BROKEN, seconds=300)
    done = place.run("--json")
    told = json.loads(done.stdout)
    assert told["mode"] == "act"
    assert [(a["kind"], a["node"]) for a in told["actions"]] == [
        ("cordon", "node-2"),
        ("record", "node-2"),
        ("terminate", "node-2"),
    ]
    assert [skip["node"] for skip in told["skipped"]] == ["node-1"]
    assert "max_at_once is 1" in told["skipped"][0]["why"]
    assert told["errors"] == []


def test_a_node_that_recovers_after_a_crash_is_given_back(place: Place) -> None:
    place.break_node(1, **BROKEN, seconds=200)
    place.kubernetes.refused[("PATCH", RECORD_PATH)] = 500
    assert place.run().returncode == 1  # cordoned, and no further
    del place.kubernetes.refused[("PATCH", RECORD_PATH)]
    place.break_node(1, condition="AcceleratedHardwareReady", status="True", seconds=5)
    done = place.run()
    assert done.stdout.startswith("uncordon node-1 ")
    assert "unschedulable" not in place.kubernetes.node("node-1")["spec"]
    assert place.kubernetes.node("node-1")["metadata"]["annotations"] == {}
    assert set(place.states().values()) == {"running"}


def test_more_nodes_than_one_page_holds_are_all_seen(place: Place) -> None:
    original = place.kubernetes.node("node-2")
    for number in range(300):
        other = json.loads(json.dumps(original))
        other["metadata"]["name"] = f"alien-{number:03}"
        other["spec"]["providerID"] = f"aws:///us-east-1a/i-{number:017x}"
        place.kubernetes.add_node(other)
    place.break_node(2, **BROKEN, seconds=200)
    assert place.run(mode="dry-run").stdout.count("node-2") == 3


@pytest.mark.parametrize(
    ("refused", "status", "remedy"),
    [
        (("GET", "/api/v1/nodes"), 403, "ClusterRole"),
        (("GET", RECORD_PATH), 404, "apply the controller's chart"),
        (("PATCH", NODE_1), 403, "ClusterRole"),
        (("PATCH", RECORD_PATH), 403, "ClusterRole"),
    ],
)
def test_what_kubernetes_refuses_is_one_line_and_nothing_is_terminated(
    place: Place, refused: tuple[str, str], status: int, remedy: str
) -> None:
    place.break_node(1, **BROKEN, seconds=200)
    place.kubernetes.refused[refused] = status
    done = place.run()
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("node_repair: cannot ")
    assert remedy in done.stderr
    assert set(place.states().values()) == {"running"}


def test_a_node_that_changed_since_it_was_read_is_left_to_the_next_pass(place: Place) -> None:
    place.break_node(1, **BROKEN, seconds=200)
    place.kubernetes.changes_after_listing = True
    done = place.run()
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "the next pass looks again" in done.stderr
    assert place.kubernetes.patches == []
    assert set(place.states().values()) == {"running"}


def test_an_instance_that_ends_while_nodes_are_read_is_seen_as_gone(place: Place) -> None:
    """Of what is read twice, EC2's word must be the later one: it decides who may still write."""
    place.break_node(1, condition="Ready", status="Unknown", seconds=400)
    ended = place.instance_ids[1]
    place.kubernetes.while_listing = lambda: place.client("ec2").terminate_instances(
        InstanceIds=[ended]
    )
    done = place.run()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"taint node-1 {ended}: its instance is gone and its pods are not\n"


def test_a_node_that_a_human_took_out_of_its_group_is_not_taken_for_gone(place: Place) -> None:
    """It still runs, so its pods may still write, though it has lost the tag of its group."""
    place.break_node(1, condition="Ready", status="Unknown", seconds=400)
    place.kubernetes.refused[("PATCH", RECORD_PATH)] = 500
    assert place.run().returncode == 1  # cordoned, and no further
    place.client("autoscaling").detach_instances(
        InstanceIds=[place.instance_ids[1]],
        AutoScalingGroupName=GROUP,
        ShouldDecrementDesiredCapacity=False,
    )
    done = place.run()
    assert (done.returncode, done.stdout) == (0, "nothing to do\n")
    assert len(place.kubernetes.node("node-1")["spec"]["taints"]) == 1
    assert place.states()[place.instance_ids[1]] == "running"


@pytest.mark.parametrize(
    "elsewhere", [{"cluster": "another"}, {"auto_scaling_groups": ("train-other",)}]
)
def test_nodes_of_another_cluster_or_group_are_left_alone(
    place: Place, elsewhere: dict[str, Any]
) -> None:
    place.break_node(1, **BROKEN, seconds=200)
    assert place.run(**elsewhere).stdout == "nothing to do\n"


def test_two_rights_in_aws_are_enough_and_without_one_it_is_one_line(place: Place) -> None:
    """Denied first, then granted: the pass after it goes on where the other one stopped."""
    place.break_node(1, **BROKEN, seconds=200)
    broken = place.instance_ids[1]

    denied = place.run_with_only([LOOK])
    assert (denied.returncode, len(denied.stderr.splitlines())) == (1, 1)
    assert f"cannot terminate {broken}: " in denied.stderr
    assert "not authorized" in denied.stderr
    assert place.states()[broken] == "running"

    granted = place.run_with_only([LOOK, END])
    assert (granted.returncode, granted.stderr) == (0, "")
    assert place.states()[broken] == "terminated"


def test_an_aws_that_cannot_be_reached_is_one_line(place: Place) -> None:
    place.environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{_closed_port()}"
    done = place.run()
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "cannot list instances: " in done.stderr


def test_a_kubernetes_that_cannot_be_reached_is_one_line(place: Place) -> None:
    kubeconfig = place.folder / "kubeconfig"
    there = kubeconfig.read_text()
    nowhere = f"http://127.0.0.1:{_closed_port()}"
    kubeconfig.write_text(there.replace(place.kubernetes.url, nowhere))
    done = place.run()
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "cannot list nodes: " in done.stderr


def test_without_a_way_to_kubernetes_it_is_one_line(place: Place) -> None:
    (place.folder / "kubeconfig").unlink()
    done = place.run()
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "set KUBECONFIG" in done.stderr


def test_wrong_settings_are_refused_by_name(place: Place) -> None:
    done = place.run(max_at_once=0)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "max_at_once" in done.stderr
    assert SETTINGS.max_at_once == 1


def _closed_port() -> int:
    """A port at which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
    return port
