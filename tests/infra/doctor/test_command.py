"""``python -m infra.doctor`` as a process: against moto, a stand-in for the rest, and neither."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.infra.doctor.aws_stand_in import aws_stand_in
from tests.infra.doctor.conftest import MOTO_ACCOUNT
from tests.infra.doctor.stand_ins import healthy, node, write_kubectl
from tests.infra.templates import ROOT

P5 = ROOT / "deployments/p5.yaml"

Doctor = Callable[..., subprocess.CompletedProcess[str]]


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """With no credentials, profile or metadata service but what is given."""
    inherited = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    return subprocess.run(
        [sys.executable, "-m", "infra.doctor", *arguments],
        env={**inherited, "AWS_EC2_METADATA_DISABLED": "true", **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


@pytest.fixture
def aws() -> Iterator[dict[str, str]]:
    """Environment of a command for which moto and the stand-in are AWS."""
    keys = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    url = f"http://{host}:{port}"
    try:
        session = boto3.Session("testing", "testing", region_name="us-east-1")
        ec2, ecr, iam = (session.client(each, endpoint_url=url) for each in ("ec2", "ecr", "iam"))
        for role in ("platform-engineer", "ml-engineer"):
            iam.create_role(RoleName=role, AssumeRolePolicyDocument='{"Statement": []}')
        vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        place = {"VpcId": vpc, "CidrBlock": "10.0.64.0/18", "AvailabilityZone": "us-east-1a"}
        subnet = ec2.create_subnet(**place)["Subnet"]["SubnetId"]
        manifest = '{"mediaType": "application/vnd.oci.image.manifest.v1+json"}'
        for name in ("steadfast-p5/trainer", "steadfast-p5/node-repair"):
            ecr.create_repository(repositoryName=name)
            ecr.put_image(repositoryName=name, imageTag="0.1.0", imageManifest=manifest)
        with aws_stand_in(subnet) as other:
            services = ("SERVICE_QUOTAS", "FSX", "EKS", "SSM", "CLOUDFORMATION")
            elsewhere = {f"AWS_ENDPOINT_URL_{name}": other for name in services}
            yield {"AWS_ENDPOINT_URL": url, **elsewhere, **keys}
    finally:
        # What the server holds belongs to this process, and would be there for the next test.
        reset = urllib.request.Request(f"{url}/moto-api/reset", method="POST")
        urllib.request.urlopen(reset, timeout=30).close()
        moto.stop()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """deployments/p5.yaml in moto's account, with its API open to one network."""
    copy = tmp_path / "p5.yaml"
    opened = "network:\n  public_endpoint_cidrs: [203.0.113.0/24]\n"
    text = P5.read_text().replace("111122223333", MOTO_ACCOUNT)
    copy.write_text(text.replace("network:\n", opened, 1))
    return copy


def path_with(folder: Path) -> str:
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_help_has_examples_and_needs_neither_cdk_nor_boto3() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "python -m infra.doctor --deployment deployments/p5.yaml" in done.stdout
    heavy = "import sys, infra.doctor.__main__; print({'aws_cdk', 'boto3'} & {*sys.modules})"
    command = [sys.executable, "-c", heavy]
    loaded = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert loaded.stdout == "set()\n"


def test_a_file_that_is_no_deployment_is_one_line(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text(P5.read_text().replace('"1.35"', '"1.20"'))
    for file in (bad, tmp_path / "absent.yaml"):
        done = run("--deployment", str(file))
        assert (done.returncode, done.stdout) == (2, "")
        [line] = done.stderr.splitlines()
        assert line.startswith(str(file))


def test_each_error_of_a_file_is_a_line_that_begins_with_the_file(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    text = P5.read_text().replace('"1.35"', '"1.20"')
    bad.write_text(text.replace("namespace: training", "namespace: default"))
    lines = run("--deployment", str(bad)).stderr.splitlines()
    assert [line.startswith(str(bad)) for line in lines] == [True, True]


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({}, "no usable AWS credentials"),
        ({"AWS_PROFILE": "nobody"}, "set AWS_PROFILE to one of those in ~/.aws/config"),
        (
            {
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing",
                "AWS_ENDPOINT_URL": "http://127.0.0.1:9",  # the port of discard: nobody listens
            },
            "check the network, the region and AWS_ENDPOINT_URL",
        ),
        (
            {
                "AWS_ACCESS_KEY_ID": "testing",
                "AWS_SECRET_ACCESS_KEY": "testing",
                "AWS_ENDPOINT_URL": "not a url",
            },
            "check the network, the region and AWS_ENDPOINT_URL",
        ),
    ],
)
def test_aws_out_of_reach_is_one_line(environment: dict[str, str], said: str) -> None:
    done = run("--deployment", str(P5), **environment)
    assert (done.returncode, done.stdout) == (2, "")
    *progress, line = done.stderr.splitlines()
    assert progress in ([], ["doctor: checking credentials"])
    assert line.startswith("doctor: ")
    assert said in line


def test_a_healthy_deployment_is_reported_whole(
    aws: dict[str, str], file: Path, tmp_path: Path
) -> None:
    path = path_with(write_kubectl(tmp_path, dict(healthy())))
    done = run("--deployment", str(file), "--json", **{**aws, "PATH": path})
    report = json.loads(done.stdout)
    assert [finding for finding in report["findings"] if finding["level"] != "ok"] == []
    assert (done.returncode, report["ok"], report["deployment"]) == (0, True, "steadfast-p5")
    assert [finding["check"] for finding in report["findings"]] == [
        *("credentials", "region", "access", "access", "CDK bootstrap"),
        *("stacks", "names", "interface endpoints"),
        *("instance type", "instance type", "vCPU quota", "vCPU quota"),
        *("machine image", "Kubernetes version", "cluster", "system nodes", "FSx quota"),
        "file system change",
        *("container image", "container image", "file system", "add-ons", "nodes", "nodes"),
        *("devices", "node health", "kubelets", "daemon sets", "daemon sets", "daemon sets"),
        *("storage taint", "Lustre client", "claim", "pods", "volume"),
    ]


def test_one_broken_node_makes_the_exit_status_1(
    aws: dict[str, str], file: Path, tmp_path: Path
) -> None:
    objects = healthy()
    objects["nodes"][0] = node("ip-10-0-1-11", ready="False")
    path = path_with(write_kubectl(tmp_path, dict(objects)))
    done = run("--deployment", str(file), "--phase", "after", **{**aws, "PATH": path})
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == "steadfast-p5: 1 error, 0 warnings, 15 ok"
    assert "p5: nodes are missing: 1 of 2 ready" in done.stdout
    assert "doctor: checking cluster API: persistentvolumes" in done.stderr
