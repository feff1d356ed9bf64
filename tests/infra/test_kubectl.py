"""How the cluster is asked, with stand-ins for kubectl on PATH."""

from pathlib import Path

import pytest

from deployment import Deployment
from infra.kubectl import Kubectl, KubectlError, KubectlForbiddenError, kubectl_for

KUBECTL = Kubectl(context="arn:aws:eks:us-east-1:111122223333:cluster/x", remedy="do this")


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A kubectl yet to be written, in the only folder of PATH beside those of the shell."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    return tmp_path / "kubectl"


def write(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_every_call_names_the_context(stand_in: Path) -> None:
    write(stand_in, 'echo "$*"')
    assert KUBECTL.run(["get", "nodes"]) == (
        "--context arn:aws:eks:us-east-1:111122223333:cluster/x --request-timeout=20s get nodes\n"
    )


def test_objects_are_listed_in_one_namespace_or_in_all(stand_in: Path) -> None:
    write(stand_in, """echo '{"items": [{"said": "'"$*"'"}]}'""")
    [one] = KUBECTL.get("pods", namespace="training")
    assert str(one["said"]).endswith("get pods --namespace training -o json")
    [every] = KUBECTL.get("pods")
    assert str(every["said"]).endswith("get pods --all-namespaces -o json")


def test_a_refusal_is_one_line_with_the_remedy(stand_in: Path) -> None:
    write(stand_in, "printf 'Unable to connect\\n  to the server' >&2; exit 1")
    with pytest.raises(KubectlError) as raised:
        KUBECTL.get("nodes")
    assert str(raised.value) == (
        "'kubectl get nodes --all-namespaces -o json': Unable to connect to the server; do this"
    )


def test_what_a_user_may_not_ask_for_is_told_apart(stand_in: Path) -> None:
    write(stand_in, "echo 'Error from server (Forbidden): nodes is forbidden' >&2; exit 1")
    with pytest.raises(KubectlForbiddenError, match="admin_arns"):
        KUBECTL.get("nodes")


def test_a_silent_server_is_given_up(stand_in: Path) -> None:
    write(stand_in, "exec sleep 30")
    with pytest.raises(KubectlError, match=r"took over 0 s; do this"):
        KUBECTL.run(["get", "nodes"], timeout_seconds=0.2)


@pytest.mark.parametrize("answer", ["Hello", "[]", '{"kind": "Status"}'])
def test_an_answer_that_is_no_list_is_an_error(stand_in: Path, answer: str) -> None:
    write(stand_in, f"echo '{answer}'")
    with pytest.raises(KubectlError, match="did not answer with a list"):
        KUBECTL.get("nodes")


def test_a_missing_kubectl_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KubectlError, match="kubectl is not on PATH; install it"):
        KUBECTL.run(["version"])


def test_a_kubectl_that_is_no_program_is_said(
    stand_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(stand_in.parent))
    stand_in.write_text("no program")
    stand_in.chmod(0o755)
    with pytest.raises(KubectlError, match="kubectl cannot be run"):
        KUBECTL.run(["version"])


@pytest.mark.parametrize(
    ("region", "partition"),
    [("us-east-1", "aws"), ("us-gov-west-1", "aws-us-gov"), ("cn-north-1", "aws-cn")],
)
def test_the_context_is_the_clusters_arn(p5: Deployment, region: str, partition: str) -> None:
    kubectl = kubectl_for(p5.model_copy(update={"region": region}))
    assert kubectl.context == f"arn:{partition}:eks:{region}:111122223333:cluster/steadfast-p5"
    assert f"aws eks update-kubeconfig --name steadfast-p5 --region {region}" in kubectl.remedy
