"""Nodes and the record of repairs, read from Kubernetes and patched there.

Each patch of a node names the version of it that was read: if anything has
changed it since, Kubernetes refuses, and the next pass looks again.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import urllib3
from kubernetes import client, config

from node_repair.errors import CallError
from node_repair.model import Condition, Node
from node_repair.settings import NAMESPACE, RECORD

STARTED = "steadfast/repair-started-at"
REASON = "steadfast/repair-reason"
KEEP = "steadfast/keep"
"""A human's annotation, with any value: leave this node alone."""

OUT_OF_SERVICE = {
    "key": "node.kubernetes.io/out-of-service",
    "value": "nodeshutdown",
    "effect": "NoExecute",
}

_TIMEOUT_SECONDS = (5, 20)  # to connect, to answer
_PAGE = 100  # nodes are large objects, and the pod has little memory
_MERGE = "application/merge-patch+json"
_PROVIDER_ID = re.compile(r"aws:///(?P<zone>[a-z0-9-]+)/(?P<id>i-[0-9a-f]+)")


class Cluster:
    def __init__(self, region: str) -> None:
        self._region = region
        self._seen: dict[str, Any] = {}
        try:
            if "KUBERNETES_SERVICE_HOST" in os.environ:
                config.load_incluster_config()
            else:
                config.load_kube_config()
        except (config.ConfigException, OSError) as error:
            said = " ".join(str(error).split())
            raise CallError(f"no way to Kubernetes: {said}; set KUBECONFIG") from error
        settings = client.Configuration.get_default_copy()
        settings.retries = False  # the next pass is the retry
        self._api = client.CoreV1Api(client.ApiClient(settings))

    def nodes(self) -> tuple[Node, ...]:
        """The nodes of this region that are EC2 instances, by name.

        Raises:
            CallError: Kubernetes could not be asked.
        """
        found, more = [], ""
        while True:
            page = _call("cannot list nodes", self._api.list_node, limit=_PAGE, **_continued(more))
            found += page.items
            if not (more := page.metadata._continue or ""):
                break
        nodes = [node for raw in found if (node := parse_node(raw, self._region))]
        self._seen = {raw.metadata.name: raw for raw in found}
        return tuple(sorted(nodes, key=lambda node: node.name))

    def started(self) -> dict[str, datetime]:
        """The record: when the repair of each instance was started.

        Raises:
            CallError: it could not be read. Without it no limit would hold.
        """
        found = _call(
            f"cannot read ConfigMap {NAMESPACE}/{RECORD}",
            self._api.read_namespaced_config_map,
            RECORD,
            NAMESPACE,
        )
        try:
            return {id: _parse_time(text) for id, text in (found.data or {}).items()}
        except ValueError as error:
            raise CallError(
                f"ConfigMap {NAMESPACE}/{RECORD}: {error}; remove that key from it"
            ) from error

    def cordon(self, name: str, *, why: str, now: datetime) -> None:
        annotations = {STARTED: _time(now), REASON: why}
        self._patch(name, {"spec": {"unschedulable": True}}, annotations)

    def uncordon(self, name: str) -> None:
        self._patch(name, {"spec": {"unschedulable": None}}, {STARTED: None, REASON: None})

    def taint(self, name: str) -> None:
        """Let Kubernetes delete the pods of a node that no longer runs."""
        taints = self._seen[name].spec.taints or []
        kept = self._api.api_client.sanitize_for_serialization(taints)
        # The list is replaced as a whole, so a taint that came meanwhile must not get lost:
        # the version that every patch names sees to it.
        self._patch(name, {"spec": {"taints": [*kept, OUT_OF_SERVICE]}}, {})

    def record(self, instance_id: str, at: datetime | None) -> None:
        """Remember that a repair was started; None forgets it."""
        _call(
            f"cannot write ConfigMap {NAMESPACE}/{RECORD}",
            self._api.patch_namespaced_config_map,
            RECORD,
            NAMESPACE,
            {"data": {instance_id: at and _time(at)}},
            _content_type=_MERGE,
        )

    def _patch(
        self, name: str, change: dict[str, Any], annotations: Mapping[str, str | None]
    ) -> None:
        version = self._seen[name].metadata.resource_version
        body = {**change, "metadata": {"resourceVersion": version, "annotations": annotations}}
        _call(f"cannot change node {name}", self._api.patch_node, name, body, _content_type=_MERGE)


def parse_node(raw: Any, region: str) -> Node | None:
    """A node as the API client has it; None if it is no EC2 instance of the region."""
    provider = _PROVIDER_ID.fullmatch(raw.spec.provider_id or "")
    if not provider or not provider["zone"].startswith(region):
        return None
    annotations = raw.metadata.annotations or {}
    created = raw.metadata.creation_timestamp
    try:
        started = _parse_time(annotations[STARTED])
    except (KeyError, ValueError):
        started = None  # not ours, or no longer to be told from what a human wrote
    return Node(
        name=raw.metadata.name,
        instance_id=provider["id"],
        created=created,
        unschedulable=bool(raw.spec.unschedulable),
        repair_started=started,
        kept=KEEP in annotations,
        out_of_service=any(t.key == OUT_OF_SERVICE["key"] for t in raw.spec.taints or []),
        conditions={
            c.type: Condition(c.status, c.last_transition_time or created, c.reason or "")
            for c in raw.status.conditions or []
        },
    )


def _continued(token: str) -> dict[str, str]:
    return {"_continue": token} if token else {}


def _call(what: str, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return method(*args, **options, _request_timeout=_TIMEOUT_SECONDS)
    except client.ApiException as error:
        raise CallError(f"{what}: {_said(error)}") from error
    except urllib3.exceptions.HTTPError as error:
        said = " ".join(str(error).split())
        raise CallError(f"{what}: {said}; is the API server reachable from here?") from error


def _said(error: client.ApiException) -> str:
    try:
        message = json.loads(error.body)["message"]
    except (TypeError, ValueError, KeyError):
        message = error.reason
    remedy = {
        401: "look at the service account's token",
        403: "look at the controller's ClusterRole and Role",
        404: "apply the controller's chart",
        409: "it has changed meanwhile; the next pass looks again",
    }.get(error.status, "try again")
    return f"{' '.join(str(message).split())} ({error.status}); {remedy}"


def _time(at: datetime) -> str:
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _parse_time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(f"time {text!r} names no zone")
    return at
