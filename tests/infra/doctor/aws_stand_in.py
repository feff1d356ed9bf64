"""A stand-in for the services that moto does not imitate far enough, on a loopback port.

Quotas, FSx, EKS, public parameters and the resources of the storage stack, as they
are of a healthy deployments/p5.yaml. Whatever else is asked for is refused with 501.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs
from xml.sax.saxutils import escape

from tests.infra.doctor.stand_ins import DNS_NAME, FILE_SYSTEM_ID, MOUNT_NAME
from tests.infra.templates import ROOT

STANDARD_SUPPORT = {
    "clusterVersion": "1.35",
    "versionStatus": "STANDARD_SUPPORT",
    "endOfStandardSupportDate": 4_000_000_000,  # in seconds since 1970: the year 2096
}

PARAMETERS = {
    "/cdk-bootstrap/hnb659fds/version": "28",
    "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/recommended/image_id": (
        "ami-0123456789abcdef0"
    ),
}

_STORAGE_STACK = f"""\
<DescribeStackResourcesResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">
<DescribeStackResourcesResult><StackResources><member>
<LogicalResourceId>FileSystem</LogicalResourceId>
<PhysicalResourceId>{FILE_SYSTEM_ID}</PhysicalResourceId>
<ResourceType>AWS::FSx::FileSystem</ResourceType>
<ResourceStatus>CREATE_COMPLETE</ResourceStatus>
<Timestamp>2026-11-29T12:00:00Z</Timestamp>
</member></StackResources></DescribeStackResourcesResult></DescribeStackResourcesResponse>
"""


_STACK = """\
<member><StackId>arn:aws:cloudformation:us-east-1:123456789012:stack/{name}/1</StackId>
<StackName>{name}</StackName><StackStatus>CREATE_COMPLETE</StackStatus>
<CreationTime>2026-11-29T12:00:00Z</CreationTime>
<Tags><member><Key>deployment</Key><Value>steadfast-p5</Value></member></Tags></member>
"""

_STACKS = """\
<DescribeStacksResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">
<DescribeStacksResult><Stacks>{stacks}</Stacks></DescribeStacksResult></DescribeStacksResponse>
"""

_TEMPLATE = """\
<GetTemplateResponse xmlns="http://cloudformation.amazonaws.com/doc/2010-05-15/">
<GetTemplateResult><TemplateBody>{body}</TemplateBody></GetTemplateResult></GetTemplateResponse>
"""

PURPOSES = ("network", "registry", "storage", "cluster", "nodes-p5", "platform")


def _cloudformation(body: str) -> str | None:
    """The answer to a request in its form."""
    asked = {key: values[0] for key, values in parse_qs(body).items()}
    name, action = asked.get("StackName", ""), asked["Action"]
    if action == "DescribeStackResources":
        return _STORAGE_STACK
    if action == "DescribeStacks":
        named = [name] if name else [f"steadfast-p5-{purpose}" for purpose in PURPOSES]
        return _STACKS.format(stacks="".join(_STACK.format(name=each) for each in named))
    if action == "GetTemplate":
        file = ROOT / "tests/golden/infra/p5" / f"{name.removeprefix('steadfast-p5-')}.json"
        return _TEMPLATE.format(body=escape(file.read_text()))
    return None


def _file_system(subnet_id: str) -> dict[str, Any]:
    return {
        "FileSystemId": FILE_SYSTEM_ID,
        "FileSystemTypeVersion": "2.15",
        "Lifecycle": "AVAILABLE",
        "StorageCapacity": 1200,
        "SubnetIds": [subnet_id],
        "DNSName": DNS_NAME,
        "LustreConfiguration": {"DeploymentType": "SCRATCH_2", "MountName": MOUNT_NAME},
    }


def _handler(subnet_id: str) -> type[BaseHTTPRequestHandler]:
    by_target: dict[str, dict[str, Any]] = {
        "ServiceQuotasV20190624.GetServiceQuota": {"Quota": {"Value": 4000.0}},
        "AWSSimbaAPIService_v20180301.DescribeFileSystems": {
            "FileSystems": [_file_system(subnet_id)]
        },
    }
    by_path: dict[str, dict[str, Any]] = {
        "/cluster-versions": {"clusterVersions": [STANDARD_SUPPORT]},
        "/clusters/steadfast-p5": {"cluster": {"version": "1.35", "status": "ACTIVE"}},
        "/clusters/steadfast-p5/addons": {"addons": ["vpc-cni"]},
        "/clusters/steadfast-p5/addons/vpc-cni": {
            "addon": {"addonName": "vpc-cni", "status": "ACTIVE"}
        },
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # EKS
            self._answer(by_path.get(self.path.split("?")[0]))

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            target = self.headers.get("X-Amz-Target", "")
            if "Action=" in body:
                answer = _cloudformation(body)
                self._send(200 if answer else 501, (answer or "").encode())
            elif target == "AmazonSSM.GetParameter":
                value = PARAMETERS[json.loads(body)["Name"]]
                self._answer({"Parameter": {"Value": value}})
            else:
                self._answer(by_target.get(target))

        def _answer(self, value: dict[str, Any] | None) -> None:
            self._send(501 if value is None else 200, json.dumps(value or {}).encode())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Says nothing: standard error is the command's."""

    return Handler


@contextmanager
def aws_stand_in(subnet_id: str) -> Iterator[str]:
    """Gives its URL. The file system lies in that subnet."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _handler(subnet_id)) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
