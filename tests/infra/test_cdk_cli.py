"""The real command line of CDK against the fake account: bootstrap, deploy, destroy.

What tests/infra/test_create_stacks.py calls in process goes over HTTP here, with the
order, the assets and the parameters that the command line chooses.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from tests.fake_aws.account import ACCOUNT
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


def cdk(*arguments: str, environment: dict[str, str]) -> None:
    done = subprocess.run(
        [str(CDK), *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def stacks(endpoint: str) -> dict[str, str]:
    cloudformation = client("cloudformation", endpoint)
    return {s["StackName"]: s["StackStatus"] for s in cloudformation.describe_stacks()["Stacks"]}


def client(service: str, endpoint: str) -> Any:
    return boto3.client(
        service,
        REGION,
        endpoint_url=endpoint,
        aws_access_key_id="testing",
        aws_secret_access_key="testing",
    )


def test_p5_is_deployed_and_destroyed(
    endpoint: str, environment: dict[str, str], p5_file: Path, tmp_path: Path
) -> None:
    app = ["--output", str(tmp_path / "out"), "-c", f"deployment={p5_file}"]
    outputs = tmp_path / "outputs.json"
    cdk("bootstrap", f"aws://{ACCOUNT}/{REGION}", *app, environment=environment)
    # moto publishes the exports of a stack only where it is not made through a change set.
    deploy = ["deploy", "--all", "--method", "direct", "--require-approval", "never"]
    cdk(*deploy, "--outputs-file", str(outputs), *app, environment=environment)

    names = ("network", "registry", "storage", "cluster", "nodes-p5", "platform")
    ours = {f"steadfast-p5-{name}": "CREATE_COMPLETE" for name in names}
    assert stacks(endpoint) == {"CDKToolkit": "CREATE_COMPLETE", **ours}
    assert "AutoScalingGroupName" in json.loads(outputs.read_text())["steadfast-p5-nodes-p5"]
    groups = client("autoscaling", endpoint).describe_auto_scaling_groups()["AutoScalingGroups"]
    assert [len(group["Instances"]) for group in groups] == [2]
    [file_system] = client("fsx", endpoint).describe_file_systems()["FileSystems"]
    assert file_system["SubnetIds"] == [groups[0]["VPCZoneIdentifier"]]

    cdk("destroy", "--all", "--force", *app, environment=environment)
    assert stacks(endpoint) == {"CDKToolkit": "CREATE_COMPLETE"}
    assert client("fsx", endpoint).describe_file_systems()["FileSystems"] == []
    assert client("eks", endpoint).list_clusters()["clusters"] == []
