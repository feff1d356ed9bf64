"""Node repair in the cluster: admitted anywhere, alone, and with no right too many."""

from typing import Any

import cdk8s
import kubernetes_validate
import pytest

from deployment import Deployment, load
from infra.repair_chart import RepairChart
from node_repair.__main__ import main
from node_repair.settings import NAMESPACE, RECORD, SERVICE_ACCOUNT, RepairSettings
from tests.infra.templates import NAMES, ROOT
from workloads.pod_rules import pod_problems

Document = dict[str, Any]


def rendered(deployment: Deployment) -> list[Document]:
    documents: list[Document] = RepairChart(
        cdk8s.App(), "node-repair", settings=deployment
    ).to_json()
    return documents


@pytest.fixture(scope="module")
def documents(p5: Deployment) -> list[Document]:
    return rendered(p5)


def only(documents: list[Document], kind: str, name: str = "node-repair") -> Document:
    [found] = [d for d in documents if d["kind"] == kind and d["metadata"]["name"] == name]
    return found


def pod(documents: list[Document]) -> Document:
    spec: Document = only(documents, "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("name", [name for name in NAMES if name != "rehearsal"])
def test_every_object_is_valid_in_the_kubernetes_of_its_cluster(name: str) -> None:
    deployment = load(ROOT / "deployments" / f"{name}.yaml")
    for document in rendered(deployment):
        kubernetes_validate.validate(document, deployment.kubernetes_version, strict=True)


def test_the_pod_is_admitted_by_the_api_server(documents: list[Document]) -> None:
    assert list(pod_problems(pod(documents))) == []


def test_it_may_list_and_patch_nodes_and_keep_its_record_and_nothing_else(
    documents: list[Document],
) -> None:
    assert only(documents, "ClusterRole")["rules"] == [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "patch"]}
    ]
    assert only(documents, "Role")["rules"] == [
        {
            "apiGroups": [""],
            "resources": ["configmaps"],
            "resourceNames": [RECORD],
            "verbs": ["get", "patch"],
        }
    ]
    account = {"kind": "ServiceAccount", "name": SERVICE_ACCOUNT, "namespace": NAMESPACE}
    for kind in ("ClusterRole", "Role"):
        binding = only(documents, f"{kind}Binding")
        assert binding["roleRef"]["kind"] == kind
        assert binding["subjects"] == [account]


def test_two_passes_never_overlap_and_a_hung_one_ends(documents: list[Document]) -> None:
    spec = only(documents, "CronJob")["spec"]
    assert spec["schedule"] == "* * * * *"
    assert spec["concurrencyPolicy"] == "Forbid"
    job = spec["jobTemplate"]["spec"]
    assert job["activeDeadlineSeconds"] == 120
    assert job["backoffLimit"] == 0
    assert job.get("parallelism", 1) == 1


def test_its_pod_passes_pod_security_restricted(documents: list[Document]) -> None:
    labels = only(documents, "Namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    spec = pod(documents)
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    [container] = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert all("configMap" in volume for volume in spec["volumes"])


def test_it_runs_on_the_nodes_that_it_never_replaces(documents: list[Document]) -> None:
    assert pod(documents)["nodeSelector"] == {"role": "system"}
    assert "tolerations" not in pod(documents)


def test_only_its_own_pod_gets_the_token(documents: list[Document]) -> None:
    assert only(documents, "ServiceAccount")["automountServiceAccountToken"] is False
    assert pod(documents)["automountServiceAccountToken"] is True
    assert pod(documents)["serviceAccountName"] == SERVICE_ACCOUNT


def test_the_settings_in_the_chart_are_what_the_controller_reads(
    documents: list[Document], p5: Deployment
) -> None:
    text = only(documents, "ConfigMap")["data"]["settings.json"]
    settings = RepairSettings.model_validate_json(text)
    assert settings.cluster == "steadfast-p5"
    assert settings.auto_scaling_groups == ("steadfast-p5-p5",)
    assert settings.mode == "dry-run"
    assert p5.node_repair is not None
    assert settings.max_per_hour == p5.node_repair.max_per_hour == 3


def test_the_container_is_started_with_the_file_that_the_chart_mounts(
    documents: list[Document], capsys: pytest.CaptureFixture[str]
) -> None:
    [container] = pod(documents)["containers"]
    assert container["command"] == ["python", "-m", "node_repair"]
    [mount] = container["volumeMounts"]
    [key] = only(documents, "ConfigMap")["data"]
    assert container["args"] == ["--settings", f"{mount['mountPath']}/{key}"]
    # The command takes these arguments: what it lacks here is only the file.
    assert main(container["args"]) == 2
    assert f"{mount['mountPath']}/{key}" in capsys.readouterr().err


def test_applying_the_chart_again_leaves_the_record_as_it_is(documents: list[Document]) -> None:
    assert "data" not in only(documents, "ConfigMap", RECORD)


def test_cluster_wide_objects_name_no_namespace(documents: list[Document]) -> None:
    for document in documents:
        wide = document["kind"] in ("Namespace", "ClusterRole", "ClusterRoleBinding")
        assert ("namespace" in document["metadata"]) is not wide
