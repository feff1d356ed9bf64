"""What the platform stack applies inside the cluster."""

import json
from typing import Any

import kubernetes_validate
import pytest

from deployment import Deployment
from infra.helm_charts import device_plugins
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized, as_text
from workloads.platform_files import OUTPUTS, FileSystem, platform_documents

KUBERNETES_RESOURCE = "Custom::AWSCDK-EKS-KubernetesResource"
Document = dict[str, Any]


def charts(synthesized: Synthesized) -> dict[str, dict[str, Any]]:
    found = synthesized.resources("platform", "Custom::AWSCDK-EKS-HelmChart")
    return {chart["Release"]: chart for chart in found}


def documents(synthesized: Synthesized) -> list[Document]:
    """In the order of the template; references to other stacks are names in angle brackets."""
    return [
        document
        for resource in synthesized.resources("platform", KUBERNETES_RESOURCE)
        for document in json.loads(as_text(resource["Manifest"]))
    ]


def objects(synthesized: Synthesized) -> dict[str, Document]:
    """Namespace, volume and claim of the jobs, by kind."""
    return {document["kind"]: document for document in documents(synthesized)[:3]}


def file_system(synthesized: Synthesized) -> FileSystem:
    source = objects(synthesized)["PersistentVolume"]["spec"]["csi"]
    attributes = source["volumeAttributes"]
    return FileSystem(source["volumeHandle"], attributes["dnsname"], attributes["mountname"])


@pytest.mark.parametrize("name", NAMES)
def test_the_stack_installs_the_charts_that_the_deployment_needs(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    found = {
        release: (chart["Chart"], chart["Repository"], chart["Version"], chart["Namespace"])
        for release, chart in charts(template).items()
    }
    assert found == {
        chart.release: (chart.chart, chart.repository, chart.version, "kube-system")
        for chart in device_plugins(template.deployment)
    }
    for chart in device_plugins(template.deployment):
        assert json.loads(charts(template)[chart.release]["Values"]) == chart.values


def test_no_chart_waits_for_nodes_that_may_come_days_later(synthesized: Synthesize) -> None:
    assert len(charts(synthesized("p5"))) == 2
    for chart in charts(synthesized("p5")).values():
        assert "Wait" not in chart
        assert chart["Timeout"] == "600s"


@pytest.mark.parametrize("name", NAMES)
def test_kubernetes_accepts_every_document(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    for document in documents(template):
        version = template.deployment.kubernetes_version
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("name", NAMES)
def test_files_hold_what_the_stack_applies(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    written = platform_documents(template.deployment, file_system(template))
    assert written == documents(template)


@pytest.mark.parametrize("name", NAMES)
def test_the_storage_stack_has_the_outputs_that_files_are_made_from(
    synthesized: Synthesize, name: str
) -> None:
    outputs = synthesized(name).stacks["storage"]["Outputs"]
    assert {key: key in outputs for key in OUTPUTS} == dict.fromkeys(OUTPUTS, True)


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
    deployment = synthesized(name).deployment
    own_name = f"{deployment.namespace}-{deployment.storage.claim}"
    assert claim["volumeName"] == volume["metadata"]["name"] == own_name
    assert claim["storageClassName"] == volume["spec"]["storageClassName"] == ""
    assert claim["accessModes"] == ["ReadWriteMany"]
    assert set(claim["accessModes"]) <= set(volume["spec"]["accessModes"])


def test_volume_and_claim_stay_as_they_are_when_the_file_system_grows(p5: Deployment) -> None:
    small = FileSystem("fs-0123456789abcdef0", "fs.example", "abcdbev")
    grown = p5.storage.model_copy(update={"size_gib": 4800})
    after = platform_documents(p5.model_copy(update={"storage": grown}), small)
    assert after == platform_documents(p5, small)
    volume, claim = after[1]["spec"], after[2]["spec"]
    assert claim["resources"]["requests"] == volume["capacity"] == {"storage": "1200Gi"}


@pytest.mark.parametrize("name", NAMES)
def test_the_kubelet_gives_the_file_system_to_the_group_of_the_trainers(
    synthesized: Synthesize, name: str
) -> None:
    """What kubelet's supportsFSGroup asks for under the driver's ReadWriteOnceWithFSType."""
    spec = objects(synthesized(name))["PersistentVolume"]["spec"]
    assert spec["csi"]["fsType"] == "lustre"
    # The first is the one it mounts by.
    assert spec["accessModes"] == ["ReadWriteMany", "ReadWriteOnce"]


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


def test_the_claim_comes_after_its_volume_and_goes_before_the_namespace(
    synthesized: Synthesize,
) -> None:
    resources = synthesized("p5").stacks["platform"]["Resources"]
    by_kind: dict[str, tuple[str, list[str]]] = {}
    for logical_id, resource in resources.items():
        if resource["Type"] == KUBERNETES_RESOURCE:
            [first, *others] = json.loads(as_text(resource["Properties"]["Manifest"]))
            if not others:
                by_kind[first["kind"]] = (logical_id, resource.get("DependsOn", []))
    assert by_kind["Namespace"][1] == []
    assert by_kind["PersistentVolume"][1] == [by_kind["Namespace"][0]]
    assert by_kind["PersistentVolumeClaim"][1] == [by_kind["PersistentVolume"][0]]


@pytest.mark.parametrize("name", NAMES)
def test_what_is_there_already_is_no_error(synthesized: Synthesize, name: str) -> None:
    for resource in synthesized(name).resources("platform", KUBERNETES_RESOURCE):
        assert resource["Overwrite"] is True
        assert "PruneLabel" not in resource


@pytest.mark.parametrize("name", NAMES)
def test_the_namespace_refuses_pods_with_privileges(synthesized: Synthesize, name: str) -> None:
    labels = objects(synthesized(name))["Namespace"]["metadata"]["labels"]
    assert labels == {
        "pod-security.kubernetes.io/enforce": "baseline",
        "pod-security.kubernetes.io/warn": "restricted",
    }


@pytest.mark.parametrize("name", NAMES)
def test_node_repair_is_applied_where_the_deployment_wants_it(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    kinds = [document["kind"] for document in documents(template)[3:]]
    if template.deployment.node_repair:
        assert kinds[0] == "Namespace"
        assert kinds.count("CronJob") == 1
    else:
        assert kinds == []


def test_some_deployment_repairs_nodes_and_some_does_not(synthesized: Synthesize) -> None:
    assert synthesized("p5").deployment.node_repair
    assert not synthesized("rehearsal").deployment.node_repair


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
