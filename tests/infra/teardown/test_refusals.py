"""A teardown that may not be is refused in one line, and then has deleted nothing."""

import io
import logging
from collections.abc import Callable, Iterator

import pytest

from infra.teardown.__main__ import main
from tests.infra.teardown.conftest import ACCOUNT, NAME, QUICK_PACE, World, pod
from tests.infra.teardown.training_nodes import training_nodes

Refusal = Callable[..., str]


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """Left as it was: the command sets it for its own process."""
    yield
    logging.getLogger("infra").setLevel(logging.NOTSET)


@pytest.fixture
def refusal(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refusal:
    """Call with the command's options; gives what it says, once it is seen to have done nothing."""

    def refused(*options: str) -> str:
        stacks, objects = world.stacks, world.cluster["jobs.batch"]
        assert main([*world.file, *options], pace=QUICK_PACE) == 2
        said = capsys.readouterr()
        assert said.out == ""
        line = complaint(said.err)
        assert (world.stacks, world.cluster["jobs.batch"]) == (stacks, objects)
        return line

    for name, value in world.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    return refused


def complaint(stderr: str) -> str:
    """The one line that says what is wrong, after what was looked at."""
    *looked, line = stderr.splitlines()
    assert all(each.startswith("Looking ") for each in looked), stderr
    assert line.startswith("infra.teardown: ")
    return line


@pytest.mark.parametrize(
    ("line", "instead", "says"),
    [
        ("lifetime: ephemeral", "lifetime: durable", "is durable, so that nobody deletes it"),
        (
            f'account: "{ACCOUNT}"',
            'account: "999999999999"',
            f"these credentials are of account {ACCOUNT} but {NAME} is in 999999999999",
        ),
    ],
)
def test_a_file_that_forbids_it_is_refused(
    world: World, refusal: Refusal, line: str, instead: str, says: str
) -> None:
    world.deployment.write_text(world.deployment.read_text().replace(line, instead))
    assert says in refusal("--yes")


def test_a_foreign_pod_that_mounts_is_refused_by_name(world: World, refusal: Refusal) -> None:
    notebook = pod("notebook-0", owner=("StatefulSet", "notebook"))
    world.change_cluster(pods=[*world.cluster["pods"], notebook])
    said = refusal("--yes")
    assert "pod training/notebook-0 of StatefulSet/notebook mounts the file system" in said


def test_another_volume_of_the_file_system_counts_too(world: World, refusal: Refusal) -> None:
    claim = {"namespace": "training", "name": "by-hand"}
    spec = {"csi": {"driver": "fsx.csi.aws.com", "volumeHandle": "fs-1"}, "claimRef": claim}
    volume = {"metadata": {"name": "by-hand"}, "spec": spec}
    viewer = pod("viewer", owner=("ReplicaSet", "viewer"), claim="by-hand")
    world.change_cluster(
        pods=[*world.cluster["pods"], viewer],
        persistentvolumes=[*world.cluster["persistentvolumes"], volume],
    )
    assert "pod training/viewer of ReplicaSet/viewer mounts the file system" in refusal("--yes")


def test_a_silent_cluster_is_refused_while_training_nodes_run(
    world: World, refusal: Refusal
) -> None:
    world.change_cluster(silent=True)
    with training_nodes(world.client, 2):
        said = refusal("--yes")
    assert "2 training nodes run (i-" in said
    assert "i/o timeout; run 'aws eks update-kubeconfig --name steadfast-g5" in said
    assert f"--auto-scaling-group-name {NAME}-g5 --min-size 0 --desired-capacity 0" in said


def test_a_protected_stack_is_refused(world: World, refusal: Refusal) -> None:
    world.make_stack(f"{NAME}-nodes-kept", EnableTerminationProtection=True)
    assert f"termination protection is on for {NAME}-nodes-kept" in refusal("--yes")


def test_a_dry_run_is_refused_for_the_same_reasons(world: World, refusal: Refusal) -> None:
    world.make_stack(f"{NAME}-nodes-kept", EnableTerminationProtection=True)
    assert f"termination protection is on for {NAME}-nodes-kept" in refusal("--dry-run", "--json")


def test_without_a_terminal_it_needs_yes(refusal: Refusal) -> None:
    assert "stdin is no terminal; add --yes" in refusal("--json")


def test_a_missing_profile_is_one_line(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("AWS_PROFILE", "nobody")
        assert main([*world.file, "--yes"]) == 2
    assert capsys.readouterr().err == (
        "infra.teardown: The config profile (nobody) could not be found; "
        "set AWS_PROFILE to one of those in ~/.aws/config\n"
    )


def test_an_endpoint_that_nobody_serves_is_one_line(world: World) -> None:
    served, world.endpoint = world.endpoint, "http://127.0.0.1:9"
    done = world.run_module("--yes")
    world.endpoint = served
    assert done.returncode == 2
    said = complaint(done.stderr)
    assert 'Could not connect to the endpoint URL: "http://127.0.0.1:9/"' in said


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_STS"])
def test_an_endpoint_that_is_no_url_is_one_line(
    refusal: Refusal, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "nonsense")
    said = refusal("--yes")
    assert "nonsense" in said
    assert said.endswith("check the network, the region and AWS_ENDPOINT_URL")


def test_each_error_of_a_file_is_a_line_that_begins_with_the_file(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    text = world.deployment.read_text().replace("lifetime: ephemeral", "lifetime: brief")
    world.deployment.write_text(text.replace("namespace: training", "namespace: default"))
    assert main([*world.file, "--yes"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"{world.deployment}") for line in lines), lines
