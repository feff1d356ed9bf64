"""What the platform stack applies inside the cluster."""

import json
from typing import Any

import pytest

from deployment import Deployment
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized, as_text

TOLERATION = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def charts(synthesized: Synthesized) -> dict[str, dict[str, Any]]:
    found = synthesized.resources("platform", "Custom::AWSCDK-EKS-HelmChart")
    return {chart["Release"]: chart for chart in found}


def objects(synthesized: Synthesized) -> dict[str, dict[str, Any]]:
    """By kind; references to other stacks stand as names in angle brackets."""
    found = {}
    for resource in synthesized.resources("platform", "Custom::AWSCDK-EKS-KubernetesResource"):
        for document in json.loads(as_text(resource["Manifest"])):
            found[document["kind"]] = document
    return found


def test_gpu_nodes_get_both_device_plugins(synthesized: Synthesize) -> None:
    assert set(charts(synthesized("p5"))) == {"nvidia-device-plugin", "aws-efa-k8s-device-plugin"}


def test_nodes_without_gpus_get_no_device_plugin(synthesized: Synthesize) -> None:
    assert charts(synthesized("rehearsal")) == {}


def test_the_nvidia_plugin_leaves_rdma_devices_to_the_efa_plugin(synthesized: Synthesize) -> None:
    values = json.loads(charts(synthesized("p5"))["nvidia-device-plugin"]["Values"])
    assert values == {"mofedEnabled": False, "tolerations": [TOLERATION]}


def test_the_efa_plugin_runs_on_tainted_nodes_that_have_a_device(synthesized: Synthesize) -> None:
    values = json.loads(charts(synthesized("g5"))["aws-efa-k8s-device-plugin"]["Values"])
    assert values == {
        "tolerations": [TOLERATION],
        "nodeSelector": {"vpc.amazonaws.com/efa.present": "true"},
        "supportedInstanceLabels": {"values": ["g5.8xlarge"]},
    }


def test_no_chart_waits_for_nodes_that_may_come_days_later(synthesized: Synthesize) -> None:
    for chart in charts(synthesized("p5")).values():
        assert "Wait" not in chart
        assert chart["Timeout"] == "600s"
        assert chart["Version"][-1].isdigit()


@pytest.mark.parametrize("name", NAMES)
def test_the_claim_has_the_names_of_the_deployment_file(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    deployment = template.deployment
    claim = objects(template)["PersistentVolumeClaim"]
    names = {"namespace": deployment.namespace, "name": deployment.storage.claim}
    assert claim["metadata"] == names
    assert objects(template)["Namespace"]["metadata"]["name"] == deployment.namespace
    reference = objects(template)["PersistentVolume"]["spec"]["claimRef"]
    assert {key: reference[key] for key in names} == names


@pytest.mark.parametrize("name", NAMES)
def test_the_claim_binds_to_its_volume_and_makes_no_other(
    synthesized: Synthesize, name: str
) -> None:
    found = objects(synthesized(name))
    claim, volume = found["PersistentVolumeClaim"]["spec"], found["PersistentVolume"]
    assert claim["volumeName"] == volume["metadata"]["name"]
    assert claim["storageClassName"] == volume["spec"]["storageClassName"] == ""
    assert claim["accessModes"] == volume["spec"]["accessModes"] == ["ReadWriteMany"]
    assert claim["resources"]["requests"] == volume["spec"]["capacity"] == {"storage": "1200Gi"}


def test_the_volume_is_the_file_system_of_the_storage_stack(synthesized: Synthesize) -> None:
    spec = objects(synthesized("p5"))["PersistentVolume"]["spec"]
    assert spec["mountOptions"] == ["flock"]
    assert spec["persistentVolumeReclaimPolicy"] == "Retain"
    csi = spec["csi"]
    assert csi["driver"] == "fsx.csi.aws.com"
    assert "storage:ExportsOutputRefFileSystem" in csi["volumeHandle"]
    assert set(csi["volumeAttributes"]) == {"dnsname", "mountname"}
    assert "DNSName" in csi["volumeAttributes"]["dnsname"]
    assert "LustreMountName" in csi["volumeAttributes"]["mountname"]


@pytest.mark.parametrize("name", NAMES)
def test_the_namespace_refuses_pods_with_privileges(synthesized: Synthesize, name: str) -> None:
    labels = objects(synthesized(name))["Namespace"]["metadata"]["labels"]
    assert labels == {
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/warn": "restricted",
    }


def test_without_the_kubectl_provider_there_is_no_platform_and_no_lambda(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    template = synthesized_as(p5.model_copy(update={"kubectl_provider": False}))
    assert "platform" not in template.stacks
    assert not template.resources("cluster", "AWS::Lambda::Function")


@pytest.mark.parametrize("minor", [34, 36])
def test_kubectl_has_the_version_of_the_cluster(
    p5: Deployment, synthesized_as: SynthesizeChanged, minor: int
) -> None:
    template = synthesized_as(p5.model_copy(update={"kubernetes_version": f"1.{minor}"}))
    assert template.only("cluster", "AWS::EKS::Cluster")["Version"] == f"1.{minor}"
    descriptions = [
        layer.get("Description", "")
        for layer in template.resources("cluster", "AWS::Lambda::LayerVersion")
    ]
    assert any(f"1.{minor}" in description for description in descriptions)
