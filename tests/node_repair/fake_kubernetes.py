"""A Kubernetes API on the loopback, as far as node repair uses it: a fake at a network boundary.

It keeps nodes and one ConfigMap, pages its lists, applies merge patches as RFC 7386 says,
refuses a patch of an outdated version, and remembers every request.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from node_repair.settings import NAMESPACE, RECORD

RECORD_PATH = f"/api/v1/namespaces/{NAMESPACE}/configmaps/{RECORD}"
MERGE_PATCH = "application/merge-patch+json"


@dataclass
class FakeKubernetes:
    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By path."""

    patches: list[tuple[str, dict[str, Any], Any]] = field(default_factory=list)
    """Path, body, and what ``witness`` said just before it was applied."""

    refused: dict[tuple[str, str], int] = field(default_factory=dict)
    """Method and path to the status that is answered instead."""

    while_listing: Callable[[], Any] = lambda: None
    """What happens in the world while nodes are read."""

    changes_after_listing: bool = False
    """Somebody else changes each node after it was read."""

    witness: Callable[[], Any] = lambda: None
    url: str = ""

    def add_node(self, node: dict[str, Any]) -> None:
        node["metadata"]["resourceVersion"] = "1"
        self.objects[f"/api/v1/nodes/{node['metadata']['name']}"] = node

    def node(self, name: str) -> dict[str, Any]:
        return self.objects[f"/api/v1/nodes/{name}"]

    @property
    def record(self) -> dict[str, str]:
        data: dict[str, str] = self.objects[RECORD_PATH].get("data", {})
        return data

    def answer(self, method: str, target: str, kind: str, body: Any) -> tuple[int, dict[str, Any]]:
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if status := self.refused.get((method, path)):
            return status, _status(status, f"{method} of {path} is refused")
        if method == "GET" and path == "/api/v1/nodes":
            return 200, self._page(query)
        if path not in self.objects:
            return 404, _status(404, f"{path} not found")
        if method == "GET":
            return 200, self.objects[path]
        if kind != MERGE_PATCH:
            return 415, _status(415, f"{kind} is not {MERGE_PATCH}")
        return self._patch(path, body)

    def _page(self, query: dict[str, list[str]]) -> dict[str, Any]:
        self.while_listing()
        nodes = [o for path, o in sorted(self.objects.items()) if path != RECORD_PATH]
        start = int(query.get("continue", ["0"])[0])
        end = start + int(query["limit"][0])
        if self.changes_after_listing:
            self.objects |= {f"/api/v1/nodes/{n['metadata']['name']}": _newer(n) for n in nodes}
        metadata = {"resourceVersion": "9"} | ({"continue": str(end)} if end < len(nodes) else {})
        return {
            "apiVersion": "v1",
            "kind": "NodeList",
            "metadata": metadata,
            "items": nodes[start:end],
        }

    def _patch(self, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        version = self.objects[path]["metadata"]["resourceVersion"]
        if body.get("metadata", {}).get("resourceVersion", version) != version:
            return 409, _status(409, f"{path} has been modified")
        self.patches.append((path, body, self.witness()))
        self.objects[path] = _newer(_merged(self.objects[path], body))
        return 200, self.objects[path]


def node_object(
    name: str, instance_id: str, *, conditions: dict[str, tuple[str, str]], created: str
) -> dict[str, Any]:
    """A Node as the API server would return it; a condition is a status and its time."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "creationTimestamp": created},
        "spec": {
            "providerID": f"aws:///us-east-1a/{instance_id}",
            "taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}],
        },
        "status": {
            "conditions": [
                {"type": type_, "status": status, "lastTransitionTime": since, "reason": "Test"}
                for type_, (status, since) in conditions.items()
            ]
        },
    }


@contextmanager
def serve(fake: FakeKubernetes, kubeconfig: Path) -> Iterator[None]:
    """Answer for ``fake`` at a free port that ``kubeconfig`` is made to name."""
    fake.objects[RECORD_PATH] = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": RECORD, "namespace": NAMESPACE, "resourceVersion": "1"},
    }
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    kubeconfig.write_text(yaml.safe_dump(_kubeconfig(fake.url)))
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _handler(fake: FakeKubernetes) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            kind = self.headers.get("Content-Type", "")
            status, answer = fake.answer(self.command, self.path, kind, body)
            sent = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        do_GET = do_PATCH = _answer

        def log_message(self, format: str, *args: object) -> None:
            """Nothing: requests are remembered, not logged."""

    return Handler


def _merged(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key), value)
    return result


def _newer(thing: dict[str, Any]) -> dict[str, Any]:
    version = str(int(thing["metadata"]["resourceVersion"]) + 1)
    return {**thing, "metadata": {**thing["metadata"], "resourceVersion": version}}


def _status(code: int, message: str) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": message}


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "fake", "cluster": {"server": url}}],
        "users": [{"name": "fake", "user": {"token": "none"}}],
        "contexts": [{"name": "fake", "context": {"cluster": "fake", "user": "fake"}}],
        "current-context": "fake",
    }
