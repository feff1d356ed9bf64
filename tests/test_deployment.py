"""A deployment that cannot work is refused in words, by the key that is wrong."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment import Deployment, DeploymentError, load
from tests.refusals import names_a_key
from trainer.settings import CheckpointMode

FOLDER = Path(__file__).parents[1] / "deployments"
P5: dict[str, Any] = yaml.safe_load((FOLDER / "p5.yaml").read_text())


def refusal(path: Path, values: Any) -> str:
    path.write_text(yaml.safe_dump(values))
    with pytest.raises(DeploymentError) as caught:
        load(path)
    return str(caught.value)


def with_value(dotted: str, value: Any) -> dict[str, Any]:
    """p5.yaml with one value replaced, or added."""
    values = copy.deepcopy(P5)
    *parents, last = dotted.split("/")
    place = values
    for key in parents:
        place = place[key]
    place[last] = value
    return values


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_shipped_deployment_loads(path: Path) -> None:
    assert load(path).runs


def test_a_run_is_the_shared_settings_with_its_own_changes() -> None:
    trainer = load(FOLDER / "p5.yaml").trainer_settings("baseline")
    assert trainer.run_directory == Path("/fsx/runs/baseline-1")
    assert trainer.device == "cuda"
    assert trainer.checkpoint.mode is CheckpointMode.SYNC
    assert trainer.checkpoint.interval_steps == 500


def test_a_new_id_gives_the_run_a_folder_of_its_own() -> None:
    values = with_value("runs/in-job/id", "2")
    trainer = Deployment.model_validate(values).trainer_settings("in-job")
    assert trainer.run_directory == Path("/fsx/runs/in-job-2")


def test_a_batch_need_not_be_a_multiple_of_the_ranks() -> None:
    values = with_value("trainer/data/global_batch_size", 17)
    trainer = Deployment.model_validate(values).trainer_settings("in-job")  # on 16 ranks
    assert trainer.data.global_batch_size == 17


def test_a_run_without_a_layer_may_suffer_what_no_layer_has_to_catch() -> None:
    slow = [{"kind": "slow", "step": 40, "rank": 1}]
    change = {"recovery.layer": "none", "faults.planned": slow}
    values = with_value("runs/in-job/change", change)
    assert Deployment.model_validate(values).trainer_settings("in-job").faults.planned


@pytest.mark.parametrize(
    ("dotted", "value", "expected"),
    [
        ("namme", 1, "unknown setting 'namme'; did you mean 'name'?"),
        (
            "node_groups/p5/num_node",
            2,
            "p5.num_node: unknown setting 'num_node'; did you mean",
        ),
        ("node_groups/p5/instance_type", "p5.48xlarg", "did you mean 'p5.48xlarge'?"),
        (
            "node_groups/p5/num_nodes",
            0,
            "num_nodes: input should be greater than 0, got 0",
        ),
        ("node_groups/p5/num_nodes", True, "valid integer, got True; give a whole number"),
        ("runs/in-job/num_nodes", True, "valid integer, got True; give a whole number"),
        ("trainer/max_steps", True, "valid integer, got True; give a whole number"),
        ("account", 123456789012, "valid string, got 123456789012; put it in quotes"),
        ("kubernetes_version", 1.35, "valid string, got 1.35; put it in quotes"),
        ("image/tag", "latest", "'latest' changes under a running job"),
        ("kubernetes_version", "1.20", "Kubernetes '1.20' is not supported; take 1.34 to 1.36"),
        ("second_zone", "us-east-1a", "the control plane needs two different zones"),
        ("storage/size_gib", 1300, "1300 GiB is not sold; take 1200 or a multiple of 2400"),
        ("trainer/checkpoint/intervall_steps", 5, "did you mean 'interval_steps'?"),
        ("trainer/data/global_batch_size", 15, "without a sequence; take at least 16"),
        ("trainer/device", "cpu", "device cannot be chosen"),
        ("runs", {}, "runs: dictionary should have at least 1 item"),
        ("runs/In Job", {"num_nodes": 1}, "runs.In Job.[key]: string should match pattern"),
        ("runs/in-job/num_nodes", 3, "in-job.num_nodes is 3 but node group 'p5' has 2; lower it"),
        ("runs/in-job/change", {"recovery.layr": "pod"}, "did you mean 'layer'?"),
        ("runs/in-job/change", {"max_steps.x": 1}, "'max_steps' is a value, not a group"),
        ("runs/in-job/change", {"run_directory": "/fsx"}, "run_directory cannot be chosen"),
        (
            "runs/in-job/change",
            {"recovery.layer": "none", "faults.count": 1},
            "the first fault would end it; choose another layer",
        ),
        ("runs/in-job/change", {"faults.kinds": [], "faults.weights": []}, "at least 1 item"),
        ("runs/in-job/change", {"faults.weights": [1e308, 1e308]}, "sum of faults.weights is not"),
        ("trainer/max_steps", 10**9 + 1, "max_steps: input should be less than or equal to 1000"),
        ("runs/in-job/change", {"timeouts.drain_seconds": float("inf")}, "timeouts.drain_seconds"),
    ],
)
def test_a_mistake_is_named_with_its_file_and_remedy(
    dotted: str, value: Any, expected: str, tmp_path: Path
) -> None:
    path = tmp_path / "mistaken.yaml"
    message = refusal(path, with_value(dotted, value))
    assert expected in message
    assert message.startswith(f"{path}: ")
    assert names_a_key(message.removeprefix(f"{path}: "))
    assert len(message.splitlines()) == 1


OPTIONAL = {"network", "node_repair", "storage", "submitter_arns"}


@pytest.mark.parametrize("key", sorted(P5.keys() - OPTIONAL))
def test_a_setting_without_default_is_asked_for_by_name(key: str, tmp_path: Path) -> None:
    values = {name: value for name, value in P5.items() if name != key}
    assert refusal(tmp_path / "p.yaml", values).endswith(f"{key}: is missing; add it")


def test_a_deployment_needs_to_say_nothing_of_network_storage_and_repair() -> None:
    deployment = Deployment.model_validate({k: v for k, v in P5.items() if k not in OPTIONAL})
    assert deployment.storage.size_gib == 1200
    assert deployment.node_repair is None


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        (None, "runs.x.node_group is missing and there are several groups; add one of: a, b"),
        ("c", "runs.x.node_group 'c' is no node group; take one of: a, b"),
        (
            "b",
            "runs.x.num_nodes is 2 but node group 'b' has 1; lower it or raise node_groups.b.num_",
        ),
    ],
)
def test_a_run_must_fit_the_group_that_it_names(
    chosen: str | None, expected: str, tmp_path: Path
) -> None:
    group = {"instance_type": "g5.8xlarge", "num_nodes": 1, "capacity": {"kind": "on-demand"}}
    spare = {**group, "spare_nodes": 5}
    values = {
        **P5,
        "node_groups": {"a": group, "b": spare},
        "runs": {"x": {"num_nodes": 2, "node_group": chosen}},
    }
    assert expected in refusal(tmp_path / "p.yaml", values)
