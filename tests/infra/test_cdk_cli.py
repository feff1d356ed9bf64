"""The real command line of CDK against the fake account: bootstrap, deploy, and both ways back.

What tests/infra/test_create_stacks.py calls in process goes over HTTP here, with the
order, the assets and the parameters that the command line chooses.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.fake_aws.account import ACCOUNT
from tests.infra.teardown import standin_kubectl
from tests.infra.teardown.conftest import QUICK, cluster_with_a_run
from tests.infra.templates import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CDK = ROOT / "node_modules/.bin/cdk"
JSII_CACHE = Path.home() / ".cache/aws/jsii/package-cache"
REGION = "us-east-1"

# A type that nobody models is skipped by moto with a warning; here it must fail the deploy.
SERVER = [sys.executable, "-W", "error:Tried to parse:UserWarning", "-m", "tests.fake_aws.server"]


@pytest.fixture
def endpoint() -> Iterator[str]:
    with subprocess.Popen(
        [*SERVER, REGION],
        cwd=ROOT,
        env={**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdin
        assert server.stdout
        yield f"http://localhost:{int(server.stdout.readline())}"
        server.stdin.close()


@pytest.fixture
def environment(endpoint: str, tmp_path: Path) -> dict[str, str]:
    """Nothing of the user's own: no home folder, no profile, no credentials."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(JSII_CACHE),
        "CDK_VALIDATION": "false",
        "CI": "true",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_REGION": REGION,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@pytest.fixture
def p5_file(tmp_path: Path) -> Path:
    """deployments/p5.yaml, in the one account that the fake is."""
    text = (ROOT / "deployments/p5.yaml").read_text()
    file = tmp_path / "p5.yaml"
    file.write_text(text.replace("111122223333", ACCOUNT))
    return file


@dataclass(frozen=True)
class Deployed:
    """deployments/p5.yaml as `cdk deploy --all` left it in the fake account."""

    endpoint: str
    environment: dict[str, str]
    file: Path
    outputs: dict[str, dict[str, str]]

    @property
    def stacks(self) -> dict[str, str]:
        found = self.client("cloudformation").describe_stacks()["Stacks"]
        return {stack["StackName"]: stack["StackStatus"] for stack in found}

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    def cdk(self, *arguments: str) -> None:
        cdk(*arguments, file=self.file, environment=self.environment)


@pytest.fixture
def deployed(endpoint: str, environment: dict[str, str], p5_file: Path, tmp_path: Path) -> Deployed:
    outputs = tmp_path / "outputs.json"
    bootstrap = ["bootstrap", f"aws://{ACCOUNT}/{REGION}"]
    # moto publishes the exports of a stack only where it is not made through a change set.
    deploy = ["deploy", "--all", "--method", "direct", "--require-approval", "never"]
    cdk(*bootstrap, file=p5_file, environment=environment)
    cdk(*deploy, "--outputs-file", str(outputs), file=p5_file, environment=environment)
    return Deployed(endpoint, environment, p5_file, json.loads(outputs.read_text()))


def cdk(*arguments: str, file: Path, environment: dict[str, str]) -> None:
    app = ["--output", str(file.parent / "out"), "-c", f"deployment={file}"]
    succeed([str(CDK), *arguments, *app], environment)


def succeed(command: list[str], environment: dict[str, str]) -> str:
    """Standard output of a command that must not fail."""
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_p5_is_deployed_and_destroyed(deployed: Deployed) -> None:
    names = ("network", "registry", "storage", "cluster", "nodes-p5", "platform")
    ours = {f"steadfast-p5-{name}": "CREATE_COMPLETE" for name in names}
    assert deployed.stacks == {"CDKToolkit": "CREATE_COMPLETE", **ours}
    assert "AutoScalingGroupName" in deployed.outputs["steadfast-p5-nodes-p5"]
    groups = deployed.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
    assert [len(group["Instances"]) for group in groups] == [2]
    [file_system] = deployed.client("fsx").describe_file_systems()["FileSystems"]
    assert file_system["SubnetIds"] == [groups[0]["VPCZoneIdentifier"]]

    deployed.cdk("destroy", "--all", "--force")
    assert_all_is_gone(deployed)


def test_what_cdk_deployed_is_taken_down_with_a_run_on_it(
    deployed: Deployed, tmp_path: Path
) -> None:
    kubectl = tmp_path / "bin/kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{standin_kubectl.__file__}" "$@"\n')
    kubectl.chmod(0o755)
    (tmp_path / "cluster.json").write_text(json.dumps(cluster_with_a_run()))
    environment = {
        **deployed.environment,
        "PATH": f"{kubectl.parent}{os.pathsep}{deployed.environment['PATH']}",
        "STANDIN_CLUSTER": str(tmp_path / "cluster.json"),
    }
    command = [sys.executable, "-c", QUICK, "--deployment", str(deployed.file), "--yes"]
    succeed(command, environment)
    assert_all_is_gone(deployed)


def assert_all_is_gone(deployed: Deployed) -> None:
    assert deployed.stacks == {"CDKToolkit": "CREATE_COMPLETE"}
    assert deployed.client("fsx").describe_file_systems()["FileSystems"] == []
    assert deployed.client("eks").list_clusters()["clusters"] == []
