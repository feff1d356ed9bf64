"""The platform as files: read from what ``cdk deploy`` wrote, whole, and beside no run's file."""

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from deployment import Deployment, DeploymentError
from infra.helm_charts import device_plugins
from tests.workloads.conftest import DEPLOYMENTS
from workloads.platform_files import FileSystem, plan_platform, platform_documents, read_file_system

NAMES = [path.stem for path in DEPLOYMENTS]
FILE_SYSTEM = FileSystem(
    id="fs-0123456789abcdef0",
    dns_name="fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
    mount_name="abcdbev",
)
STACK = {
    "FileSystemId": FILE_SYSTEM.id,
    "FileSystemDnsName": FILE_SYSTEM.dns_name,
    "FileSystemMountName": FILE_SYSTEM.mount_name,
}
CONTEXT = "arn:aws:eks:us-east-1:111122223333:cluster/steadfast-p5"

Read = Callable[[Any], FileSystem]


@pytest.fixture
def p5(deployments: dict[str, Deployment]) -> Deployment:
    return deployments["p5"]


@pytest.fixture
def by_hand(p5: Deployment) -> Deployment:
    return p5.model_copy(update={"kubectl_provider": False})


@pytest.fixture
def read(tmp_path: Path, p5: Deployment) -> Read:
    """Call with what the outputs file holds; bytes are written as they are."""

    def read(content: Any) -> FileSystem:
        path = tmp_path / "outputs.json"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return read_file_system(path, deployment=p5, source=Path("deployments/p5.yaml"))

    return read


def test_the_file_system_is_read_from_the_storage_stack_alone(read: Read) -> None:
    others = {"steadfast-p5-network": {}, "steadfast-g5-storage": {"FileSystemId": "fs-1"}}
    assert read({**others, "steadfast-p5-storage": STACK}) == FILE_SYSTEM


@pytest.mark.parametrize("key", STACK)
@pytest.mark.parametrize("value", [None, "", 7, ["fs-1"]])
def test_a_missing_output_is_named_with_the_command_that_writes_it(
    read: Read, tmp_path: Path, key: str, value: object
) -> None:
    with pytest.raises(DeploymentError) as error:
        read({"steadfast-p5-storage": {**STACK, key: value}})
    path = tmp_path / "outputs.json"
    assert str(error.value) == (
        f"{path}: stack 'steadfast-p5-storage' has no output {key!r}; write it with: "
        "make deploy DEPLOYMENT=deployments/p5.yaml"
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"steadfast-g5-storage": STACK}, "has no stack 'steadfast-p5-storage'"),
        ({"steadfast-p5-storage": "fs-1"}, "has no stack 'steadfast-p5-storage'"),
        ([STACK], "has no stack 'steadfast-p5-storage'"),
        (None, "has no stack 'steadfast-p5-storage'"),
        (b"", "not JSON (Expecting value"),
        (b"steadfast-p5-storage:\n  FileSystemId: fs-1\n", "not JSON ("),
        (b"\xff\xfe\xff", "not JSON ("),
        (b"[" * 100_000, "not JSON ("),
    ],
)
def test_a_file_that_is_no_outputs_file_is_one_line(
    read: Read, content: object, problem: str
) -> None:
    with pytest.raises(DeploymentError) as error:
        read(content)
    assert problem in str(error.value)
    assert "write it with: make deploy DEPLOYMENT=" in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_missing_outputs_file_is_one_line(tmp_path: Path, p5: Deployment) -> None:
    with pytest.raises(DeploymentError, match=r"No such file.*write it with: make deploy"):
        read_file_system(tmp_path / "none.json", deployment=p5, source=Path("p5.yaml"))


@pytest.mark.parametrize("name", NAMES)
def test_the_manifest_starts_with_the_namespace_and_holds_the_real_ids(
    deployments: dict[str, Deployment], name: str
) -> None:
    namespace, volume, claim, *rest = platform_documents(deployments[name], FILE_SYSTEM)
    assert namespace["kind"] == "Namespace"
    assert volume["spec"]["csi"]["volumeHandle"] == "fs-0123456789abcdef0"
    assert volume["spec"]["csi"]["volumeAttributes"] == {
        "dnsname": "fs-0123456789abcdef0.fsx.us-east-1.amazonaws.com",
        "mountname": "abcdbev",
    }
    assert claim["kind"] == "PersistentVolumeClaim"
    assert bool(rest) == bool(deployments[name].node_repair)


@pytest.mark.parametrize("name", NAMES)
def test_the_files_are_the_documents_and_the_values(
    deployments: dict[str, Deployment], name: str
) -> None:
    deployment = deployments[name]
    platform = plan_platform(deployment, FILE_SYSTEM, Path("dist"))
    loaded = {path: list(yaml.safe_load_all(text)) for path, text in platform.texts.items()}
    assert loaded.pop(platform.manifest) == platform_documents(deployment, FILE_SYSTEM)
    assert loaded == {
        platform.values[chart.release]: [chart.values] for chart in device_plugins(deployment)
    }


def test_the_commands_pin_versions_and_name_the_cluster(by_hand: Deployment) -> None:
    folder = "dist/steadfast-p5/platform"
    assert plan_platform(by_hand, FILE_SYSTEM, Path("dist")).commands == (
        f"kubectl --context {CONTEXT} apply -f {folder}/manifest.yaml",
        "helm upgrade --install nvidia-device-plugin nvidia-device-plugin "
        "--repo https://nvidia.github.io/k8s-device-plugin --version 0.20.0 "
        f"--namespace kube-system --kube-context {CONTEXT} "
        f"--values {folder}/nvidia-device-plugin.values.yaml",
        "helm upgrade --install aws-efa-k8s-device-plugin aws-efa-k8s-device-plugin "
        "--repo https://aws.github.io/eks-charts --version v0.5.30 "
        f"--namespace kube-system --kube-context {CONTEXT} "
        f"--values {folder}/aws-efa-k8s-device-plugin.values.yaml",
    )


def test_the_commands_survive_a_folder_with_a_space(by_hand: Deployment) -> None:
    for command in plan_platform(by_hand, FILE_SYSTEM, Path("my dist")).commands:
        assert shlex.split(command)[-1].startswith("my dist/steadfast-p5/platform/")


def test_what_a_stack_installs_has_no_commands(p5: Deployment, by_hand: Deployment) -> None:
    assert p5.kubectl_provider
    with_stack = plan_platform(p5, FILE_SYSTEM, Path("dist"))
    assert with_stack.commands == ()
    assert with_stack.texts == plan_platform(by_hand, FILE_SYSTEM, Path("dist")).texts


def test_a_document_that_kubernetes_would_refuse_is_never_planned(p5: Deployment) -> None:
    wrong = p5.model_copy(update={"namespace": "Not_A_Label"})
    with pytest.raises(DeploymentError, match="platform: Namespace 'Not_A_Label': its name"):
        plan_platform(wrong, FILE_SYSTEM, Path("dist"))
