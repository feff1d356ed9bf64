"""Which device plugins a deployment needs, and with which values they can do their work."""

from typing import Any

import pytest

from deployment import Deployment, load
from infra.helm_charts import HelmChart, device_plugins
from tests.infra.templates import DEPLOYMENT_FILES

GPU_TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
STORAGE_TOLERATION = {"key": "fsx.csi.aws.com/agent-not-ready", "operator": "Exists"}
DEPLOYMENTS = {file.stem: load(file) for file in DEPLOYMENT_FILES}


def charts(deployment: Deployment) -> dict[str, HelmChart]:
    return {chart.release: chart for chart in device_plugins(deployment)}


def with_types(deployment: Deployment, **types: str) -> Deployment:
    [group] = deployment.node_groups.values()
    groups = {
        name: group.model_copy(update={"instance_type": kind}) for name, kind in types.items()
    }
    return deployment.model_copy(update={"node_groups": groups})


def efa_values(deployment: Deployment) -> dict[str, Any]:
    return charts(deployment)["aws-efa-k8s-device-plugin"].values


def test_nodes_without_devices_get_no_plugin() -> None:
    assert device_plugins(DEPLOYMENTS["rehearsal"]) == ()


@pytest.mark.parametrize("name", sorted(set(DEPLOYMENTS) - {"rehearsal"}))
def test_gpu_nodes_get_both_plugins_at_the_pinned_versions(name: str) -> None:
    assert {release: chart.version for release, chart in charts(DEPLOYMENTS[name]).items()} == {
        "nvidia-device-plugin": "0.20.0",
        "aws-efa-k8s-device-plugin": "v0.5.30",
    }


def test_every_plugin_tolerates_what_keeps_other_pods_off_a_new_node(p5: Deployment) -> None:
    for chart in device_plugins(p5):
        assert chart.values["tolerations"] == [GPU_TOLERATION, STORAGE_TOLERATION]


def test_the_nvidia_plugin_leaves_rdma_devices_to_the_efa_plugin(p5: Deployment) -> None:
    assert charts(p5)["nvidia-device-plugin"].values["mofedEnabled"] is False


def test_the_efa_plugin_runs_only_where_a_device_is_attached(p5: Deployment) -> None:
    assert efa_values(p5)["nodeSelector"] == {"vpc.amazonaws.com/efa.present": "true"}


def test_the_efa_plugin_knows_the_types_of_all_groups_that_have_efa(p5: Deployment) -> None:
    mixed = with_types(p5, b="p6-b200.48xlarge", a="g5.8xlarge", c="m7i.2xlarge", d="g5.8xlarge")
    assert efa_values(mixed)["supportedInstanceLabels"] == {
        "values": ["g5.8xlarge", "p6-b200.48xlarge"]
    }


@pytest.mark.parametrize(
    ("region", "registry"),
    [
        ("us-east-1", "602401143452.dkr.ecr.us-east-1.amazonaws.com"),
        ("eu-north-1", "602401143452.dkr.ecr.eu-north-1.amazonaws.com"),
        ("af-south-1", "877085696533.dkr.ecr.af-south-1.amazonaws.com"),
        ("ap-east-1", "800184023465.dkr.ecr.ap-east-1.amazonaws.com"),
        ("eu-south-1", "590381155156.dkr.ecr.eu-south-1.amazonaws.com"),
        ("me-south-1", "558608220178.dkr.ecr.me-south-1.amazonaws.com"),
        ("us-gov-west-1", "013241004608.dkr.ecr.us-gov-west-1.amazonaws.com"),
        ("xx-new-9", "602401143452.dkr.ecr.xx-new-9.amazonaws.com"),
    ],
)
def test_the_efa_image_comes_from_the_registry_of_the_region(
    p5: Deployment, region: str, registry: str
) -> None:
    there = p5.model_copy(update={"region": region})
    assert efa_values(there)["image"] == {"repository": f"{registry}/eks/aws-efa-k8s-device-plugin"}


def test_one_release_cannot_change_the_values_of_another(p5: Deployment) -> None:
    first, second = device_plugins(p5)
    first.values["tolerations"][0]["key"] = "changed"
    assert second.values["tolerations"][0] == GPU_TOLERATION
    assert device_plugins(p5)[0].values["tolerations"][0] == GPU_TOLERATION
