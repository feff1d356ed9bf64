"""What a rendered run promises, for every run that is shipped."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment import Deployment, DeploymentError
from tests.golden_files import assert_golden
from tests.workloads.conftest import DEPLOYMENTS, Document, Manifests
from trainer.settings import TrainerSettings
from workloads.synth import manifest_text, render_run

FILES = [path.stem for path in DEPLOYMENTS]
GOLDEN = Path(__file__).parents[1] / "golden" / "workloads"


@pytest.mark.parametrize("name", FILES)
def test_manifests_are_the_ones_that_were_reviewed(name: str, manifests: Manifests) -> None:
    for run_name, documents in manifests[name].items():
        assert_golden(GOLDEN / name / f"{run_name}.yaml", manifest_text(documents))
    assert {path.stem for path in (GOLDEN / name).iterdir()} == set(manifests[name])


@pytest.mark.parametrize("name", FILES)
def test_a_written_manifest_reads_back_as_it_was_rendered(name: str, manifests: Manifests) -> None:
    for documents in manifests[name].values():
        assert list(yaml.safe_load_all(manifest_text(documents))) == documents


@pytest.mark.parametrize("name", FILES)
def test_a_job_waits_at_the_name_of_its_own_first_pod(name: str, manifests: Manifests) -> None:
    for documents in manifests[name].values():
        config, service, job = documents
        own_name = job["metadata"]["name"]
        assert [config["metadata"]["name"], service["metadata"]["name"]] == [own_name] * 2
        assert pod_of(job)["subdomain"] == own_name
        endpoint = f"--rdzv-endpoint={own_name}-0.{own_name}:29500"
        assert endpoint in container_of(job)["command"]
        assert service["spec"]["publishNotReadyAddresses"]


@pytest.mark.parametrize("name", FILES)
def test_the_trainer_reads_exactly_the_settings_of_its_run(
    name: str, manifests: Manifests, deployments: dict[str, Deployment]
) -> None:
    for run_name, (config, _service, _job) in manifests[name].items():
        read = TrainerSettings.model_validate(json.loads(config["data"]["settings.json"]))
        assert read == deployments[name].trainer_settings(run_name)


@pytest.mark.parametrize("name", FILES)
def test_a_pod_gets_what_its_node_has_and_no_device_that_it_lacks(
    name: str, manifests: Manifests, deployments: dict[str, Deployment]
) -> None:
    [group] = deployments[name].node_groups.values()
    hardware = group.hardware
    for documents in manifests[name].values():
        resources = container_of(documents[2])["resources"]
        assert resources["requests"] == resources["limits"]
        devices = {key: value for key, value in resources["limits"].items() if "/" in key}
        expected = {"nvidia.com/gpu": hardware.num_gpus, "vpc.amazonaws.com/efa": hardware.num_efa}
        assert devices == {key: str(count) for key, count in expected.items() if count}


def test_a_p5_pod_asks_for_the_whole_fabric(manifests: Manifests) -> None:
    limits = container_of(manifests["p5"]["in-job"][2])["resources"]["limits"]
    assert limits["nvidia.com/gpu"] == "8"
    assert limits["vpc.amazonaws.com/efa"] == "32"
    assert limits["hugepages-2Mi"] == "5120Mi"


def test_only_gpu_pods_tolerate_the_taint_of_gpu_nodes(manifests: Manifests) -> None:
    def tolerated(name: str, run_name: str) -> set[str]:
        pod = pod_of(manifests[name][run_name][2])
        return {toleration["key"] for toleration in pod["tolerations"]}

    assert "nvidia.com/gpu" in tolerated("p5", "in-job")
    assert "nvidia.com/gpu" not in tolerated("rehearsal", "in-job")


@pytest.mark.parametrize(("run_name", "replacements"), [("unfaulted", 0), ("pod", 6)])
def test_a_pod_is_replaced_unless_the_run_recovers_from_nothing(
    run_name: str, replacements: int, manifests: Manifests
) -> None:
    assert manifests["rehearsal"][run_name][2]["spec"]["backoffLimitPerIndex"] == replacements


def with_a_spare(nvrx_version: str) -> Deployment:
    runs = {"in-job": {"num_nodes": 1, "num_spare_nodes": 1}}
    image = {"repository": "steadfast-trainer", "tag": "0.1.0", "nvrx_version": nvrx_version}
    return changed({"runs": runs, "image": image})


def test_a_spare_node_has_a_pod_of_the_job_that_the_launcher_may_leave_waiting() -> None:
    *_, job = render_run(with_a_spare("0.7.0"), "in-job")
    assert (job["spec"]["completions"], job["spec"]["parallelism"]) == (2, 2)
    assert "--nnodes=1:2" in container_of(job)["command"]


def test_a_spare_node_is_refused_where_the_launcher_would_let_it_train() -> None:
    with pytest.raises(ValueError, match=r"in-job.num_spare_nodes is 1 but image.nvrx_version 0.4"):
        with_a_spare("0.4.1")


def test_the_cluster_must_have_the_spare_nodes_too() -> None:
    runs = {"in-job": {"num_nodes": 2, "num_spare_nodes": 1}}
    with pytest.raises(ValueError, match=r"is 2 and num_spare_nodes 1 but node group 'p5' has 2"):
        changed({"runs": runs})


def test_a_pod_knows_its_node_by_name(manifests: Manifests) -> None:
    variables = {v["name"]: v for v in container_of(manifests["p5"]["in-job"][2])["env"]}
    source = variables["STEADFAST_NODE"]["valueFrom"]
    assert source == {"fieldRef": {"fieldPath": "spec.nodeName"}}


def test_a_failure_that_no_retry_mends_ends_the_job(manifests: Manifests) -> None:
    spec = manifests["p5"]["in-job"][2]["spec"]
    disrupted, final = spec["podFailurePolicy"]["rules"]
    assert disrupted["action"] == "Ignore"
    assert (final["action"], final["onExitCodes"]["values"]) == ("FailJob", [64, 70, 73, 78])
    assert spec["maxFailedIndexes"] == 0


@pytest.mark.parametrize("name", FILES)
def test_the_pod_outlives_its_drain(name: str, manifests: Manifests) -> None:
    for config, _service, job in manifests[name].values():
        drain = json.loads(config["data"]["settings.json"])["timeouts"]["drain_seconds"]
        assert pod_of(job)["terminationGracePeriodSeconds"] == drain + 60


@pytest.mark.parametrize(
    "change",
    [
        {"image": {"repository": "steadfast-trainer", "tag": "0.1.1", "nvrx_version": "0.7.0"}},
        {"storage": {"claim": "scratch"}},
        {"training_zone": "us-east-1c"},
    ],
    ids=str,
)
def test_any_change_gives_the_job_another_name_and_keeps_the_run_folder(
    change: dict[str, Any], manifests: Manifests
) -> None:
    before, _service, old_job = manifests["p5"]["in-job"]
    after, _service, new_job = render_run(changed(change), "in-job")
    assert new_job["metadata"]["name"] != old_job["metadata"]["name"]
    assert new_job["metadata"]["name"].startswith("in-job-1-")
    assert after["data"] == before["data"]


def test_rendering_again_gives_the_same_manifest(
    manifests: Manifests, deployments: dict[str, Deployment]
) -> None:
    assert render_run(deployments["g5"], "in-job") == manifests["g5"]["in-job"]


def test_a_run_that_the_deployment_does_not_have_is_refused_by_name(
    deployments: dict[str, Deployment],
) -> None:
    with pytest.raises(DeploymentError, match=r"no run 'in_job'; it has: baseline, in-job"):
        render_run(deployments["p5"], "in_job")


def test_a_manifest_that_the_server_would_refuse_is_not_rendered(
    deployments: dict[str, Deployment],
) -> None:
    long_name = "a" * 56  # with id and hash 65 letters, two more than a pod's name may have
    runs = {long_name: deployments["p5"].runs["in-job"]}
    with pytest.raises(DeploymentError, match="not a DNS label"):
        render_run(deployments["p5"].model_copy(update={"runs": runs}), long_name)


def test_where_capacity_comes_from_changes_no_job(
    manifests: Manifests, deployments: dict[str, Deployment]
) -> None:
    groups = deployments["p5-capacity-block"].model_dump()["node_groups"]
    in_block = changed({"node_groups": groups})
    assert render_run(in_block, "in-job") == manifests["p5"]["in-job"]


def test_a_run_goes_to_the_nodes_of_its_own_group() -> None:
    group = {"instance_type": "g5.8xlarge", "num_nodes": 1, "capacity": {"kind": "on-demand"}}
    runs = {"on-b": {"num_nodes": 1, "node_group": "b"}}
    deployment = changed({"node_groups": {"a": group, "b": group}, "runs": runs})
    *_, job = render_run(deployment, "on-b")
    affinity = pod_of(job)["affinity"]["nodeAffinity"]
    [term] = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    wanted = {e["key"]: e["values"] for e in term["matchExpressions"]}
    assert wanted["steadfast/node-group"] == ["b"]


def changed(change: dict[str, Any]) -> Deployment:
    path = next(path for path in DEPLOYMENTS if path.stem == "p5")
    return Deployment.model_validate({**yaml.safe_load(path.read_text()), **change})


def pod_of(job: Document) -> Document:
    pod: Document = job["spec"]["template"]["spec"]
    return pod


def container_of(job: Document) -> Document:
    container: Document = pod_of(job)["containers"][0]
    return container
