"""An Auto Scaling group of three in moto, its nodes in a fake Kubernetes, and the command."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from moto.server import ThreadedMotoServer

from tests.node_repair.fake_kubernetes import FakeKubernetes, node_object, serve
from tests.node_repair.worlds import GROUP, SETTINGS

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Place:
    """Where a pass runs: both fakes, and the files and variables that lead to them."""

    kubernetes: FakeKubernetes
    aws_url: str
    folder: Path
    instance_ids: list[str]
    environment: dict[str, str] = field(default_factory=dict)

    def run(self, *options: str, **changes: Any) -> subprocess.CompletedProcess[str]:
        """Make one pass as the container does, with changed settings if any are given."""
        file = self.folder / "settings.json"
        file.write_text(SETTINGS.model_copy(update=changes).to_json())
        return subprocess.run(
            [sys.executable, "-m", "node_repair", "--settings", str(file), *options],
            cwd=ROOT,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def client(self, service: str) -> Any:
        return client_at(self.aws_url, service)

    def states(self) -> dict[str, str]:
        """Of the three instances that the group began with."""
        found = self.client("ec2").describe_instances(InstanceIds=self.instance_ids)["Reservations"]
        return {i["InstanceId"]: i["State"]["Name"] for r in found for i in r["Instances"]}

    def in_group(self) -> set[str]:
        found = self.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"]
        return {i["InstanceId"] for i in found[0]["Instances"]}

    def break_node(self, number: int, *, condition: str, status: str, seconds: int) -> None:
        [changed] = [
            c
            for c in self.kubernetes.node(f"node-{number}")["status"]["conditions"]
            if c["type"] == condition
        ]
        changed.update(status=status, lastTransitionTime=ago(seconds))

    def run_with_only(self, statements: list[Any]) -> subprocess.CompletedProcess[str]:
        """Make one pass while moto checks the action of every call against ``statements``."""
        iam = self.client("iam")
        user = f"user-{uuid4()}"
        iam.create_user(UserName=user)
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
        iam.put_user_policy(UserName=user, PolicyName="only", PolicyDocument=policy)
        key = iam.create_access_key(UserName=user)["AccessKey"]
        self.environment["AWS_ACCESS_KEY_ID"] = key["AccessKeyId"]
        self.environment["AWS_SECRET_ACCESS_KEY"] = key["SecretAccessKey"]
        _post(f"{self.aws_url}/moto-api/reset-auth", "0")
        try:
            return self.run()
        finally:
            _post(f"{self.aws_url}/moto-api/reset-auth", "inf")

    def _environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "KUBE"))}
        return {
            **kept,
            "AWS_ENDPOINT_URL": self.aws_url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_EC2_METADATA_DISABLED": "true",
            "KUBECONFIG": str(self.folder / "kubeconfig"),
            **self.environment,
        }


def client_at(url: str, service: str) -> Any:
    return boto3.client(
        service,
        region_name="us-east-1",
        endpoint_url=url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(scope="module")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    ec2 = client_at(url, "ec2")
    # Not one of moto's own: other tests tell moto to load none.
    image = ec2.register_image(Name="node", RootDeviceName="/dev/xvda")["ImageId"]
    ec2.create_launch_template(
        LaunchTemplateName="nodes",
        LaunchTemplateData={"ImageId": image, "InstanceType": "p5.48xlarge"},
    )
    yield url
    _post(f"{url}/moto-api/reset", "")
    server.stop()


@pytest.fixture
def place(moto_url: str, tmp_path: Path) -> Iterator[Place]:
    """Three nodes that are well."""
    place = Place(FakeKubernetes(), moto_url, tmp_path, [])
    place.instance_ids = _three_instances(place)
    with serve(place.kubernetes, tmp_path / "kubeconfig"):
        well = {"Ready": ("True", ago(7000)), "AcceleratedHardwareReady": ("True", ago(7000))}
        for number, id in enumerate(place.instance_ids):
            place.kubernetes.add_node(
                node_object(f"node-{number}", id, conditions=well, created=ago(7200))
            )
        yield place
    place.client("autoscaling").delete_auto_scaling_group(
        AutoScalingGroupName=GROUP, ForceDelete=True
    )


def _three_instances(place: Place) -> list[str]:
    subnet = place.client("ec2").describe_subnets()["Subnets"][0]["SubnetId"]
    owned = {"Key": "kubernetes.io/cluster/train", "Value": "owned", "PropagateAtLaunch": True}
    place.client("autoscaling").create_auto_scaling_group(
        AutoScalingGroupName=GROUP,
        LaunchTemplate={"LaunchTemplateName": "nodes", "Version": "$Latest"},
        MinSize=0,
        MaxSize=3,
        DesiredCapacity=3,
        VPCZoneIdentifier=subnet,
        Tags=[owned],
    )
    return sorted(place.in_group())


def _post(url: str, body: str) -> None:
    # Flask would take what urllib sends by default for a form.
    request = urllib.request.Request(url, body.encode(), {"Content-Type": "text/plain"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()
