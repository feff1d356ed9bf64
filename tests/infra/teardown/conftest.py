"""A deployment in moto's server and in a stand-in for its cluster, for the command to take down."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.server import ThreadedMotoServer

from infra.teardown.waiting import Pace
from tests.infra.teardown import standin_kubectl
from tests.infra.templates import ROOT

ACCOUNT = "123456789012"  # moto's
NAME = "steadfast-g5"

QUICK_PACE = Pace(poll_seconds=0.01, objects_seconds=1.0, retry_seconds=0.01)

# The command itself, at a pace for tests. Whoever runs these tests in the background has Ctrl-C
# ignored, and a child would inherit that.
QUICK = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from infra.teardown.__main__ import main
from tests.infra.teardown.conftest import QUICK_PACE
sys.exit(main(pace=QUICK_PACE))
"""

BOUND_SECONDS = 60.0
"""For a command that a fault has made endless; less than a test may take."""

CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "testing",
    "AWS_SECRET_ACCESS_KEY": "testing",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    yield f"http://{host}:{port}"
    moto.stop()


@dataclass
class World:
    """An account and a cluster: what a deployment leaves in both, and the command run on them."""

    endpoint: str
    folder: Path

    def client(self, service: str) -> Any:
        return boto3.client(
            service,
            region_name="us-east-1",
            endpoint_url=self.endpoint,
            aws_access_key_id="testing",
            aws_secret_access_key="testing",
        )

    @property
    def deployment(self) -> Path:
        return self.folder / "deployment.yaml"

    @property
    def file(self) -> list[str]:
        return ["--deployment", str(self.deployment)]

    @property
    def cluster(self) -> dict[str, Any]:
        values: dict[str, Any] = json.loads((self.folder / "cluster.json").read_text())
        return values

    def change_cluster(self, **changes: object) -> None:
        (self.folder / "cluster.json").write_text(json.dumps({**self.cluster, **changes}))

    @property
    def kubectl_calls(self) -> list[str]:
        log = self.folder / "cluster.log"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def stacks(self) -> list[str]:
        return list(self.stack_ids)

    @property
    def stack_ids(self) -> dict[str, str]:
        stacks = self.client("cloudformation").describe_stacks()["Stacks"]
        return {stack["StackName"]: stack["StackId"] for stack in stacks}

    def deleted_at(self, stack_id: str) -> datetime:
        events = self.client("cloudformation").describe_stack_events(StackName=stack_id)
        deleted: datetime = next(
            event["Timestamp"]
            for event in events["StackEvents"]
            if event["ResourceStatus"] == "DELETE_COMPLETE"
        )
        return deleted

    def make_stack(self, name: str, *, tag: str = NAME, **changes: Any) -> None:
        group = {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": f"of-{name}"}}
        self.client("cloudformation").create_stack(
            StackName=name,
            TemplateBody=json.dumps({"Resources": {"Group": group}}),
            Tags=[{"Key": "deployment", "Value": tag}],
            **changes,
        )

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", QUICK, *self.file, *arguments]

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
        cluster = str(self.folder / "cluster.json")
        own = {"AWS_ENDPOINT_URL": self.endpoint, "PATH": path, "STANDIN_CLUSTER": cluster}
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        return {**inherited, **CREDENTIALS, **own}

    def run_module(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """At its own pace, so for what waits for nothing."""
        return self._run([sys.executable, "-m", "infra.teardown", *self.file, *arguments])

    def started(self, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
        return self._started(self.command(*arguments))

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self._run(self.command(*arguments), **options)

    def _run(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        with self._started(command, **options) as process:
            out, err = process.communicate()
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    @contextmanager
    def _started(self, command: list[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
        """Killed with all that it has started when its time is over, or when the test fails."""
        options = {"stdin": subprocess.DEVNULL} | options
        with subprocess.Popen(
            command,
            env=self.environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            **options,
        ) as process:
            bound = threading.Timer(BOUND_SECONDS, _kill_group, [process])
            bound.start()
            try:
                yield process
            except BaseException:
                _kill_group(process)
                raise
            finally:
                bound.cancel()
                bound.join()


def _kill_group(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def world(server: str, tmp_path: Path) -> Iterator[World]:
    """As after a deploy and one submitted run of two pods."""
    world = World(server, tmp_path)
    text = (ROOT / "deployments/g5.yaml").read_text()
    world.deployment.write_text(text.replace("111122223333", ACCOUNT))
    kubectl = tmp_path / "bin/kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -S -E "{standin_kubectl.__file__}" "$@"\n'
    )
    kubectl.chmod(0o755)
    (tmp_path / "cluster.json").write_text(json.dumps(cluster_with_a_run()))
    for purpose in ("network", "registry", "storage", "cluster", "nodes-g5", "platform"):
        world.make_stack(f"{NAME}-{purpose}")
    role = f"arn:aws:iam::{ACCOUNT}:role/eks"
    world.client("eks").create_cluster(name=NAME, roleArn=role, resourcesVpcConfig={})
    yield world
    # Through boto3 rather than moto's reset page, which would need an HTTP client of its own.
    for stack in world.stacks:
        world.client("cloudformation").delete_stack(StackName=stack)
    world.client("eks").delete_cluster(name=NAME)


def cluster_with_a_run() -> dict[str, Any]:
    claim = {"namespace": "training", "name": "fsx"}
    volume = {"csi": {"driver": "fsx.csi.aws.com", "volumeHandle": "fs-1"}, "claimRef": claim}
    return {
        "silent": False,
        "deleting_jobs": False,
        "pod_reads": 4,
        "jobs.batch": [{"metadata": {"namespace": "training", "name": "in-job-1"}}],
        "pods": [
            pod("in-job-1-0-x7", owner=("Job", "in-job-1")),
            pod("in-job-1-1-k2", owner=("Job", "in-job-1")),
            pod("coredns-5d", owner=("ReplicaSet", "coredns"), claim=None),
        ],
        "persistentvolumeclaims": [{"metadata": claim}],
        "persistentvolumes": [{"metadata": {"name": "training-fsx"}, "spec": volume}],
    }


def pod(name: str, *, owner: tuple[str, str], claim: str | None = "fsx") -> dict[str, Any]:
    kind, of = owner
    volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
    if claim:
        volumes.append({"name": "fsx", "persistentVolumeClaim": {"claimName": claim}})
    return {
        "metadata": {
            "namespace": "training" if claim else "kube-system",
            "name": name,
            "ownerReferences": [{"kind": kind, "name": of, "controller": True}],
        },
        "spec": {
            "nodeName": "ip-10-0-1-7.ec2.internal",
            "volumes": volumes,
            "terminationGracePeriodSeconds": 30,
        },
    }
