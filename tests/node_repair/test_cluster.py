"""How a node of the API becomes one that can be decided on."""

from datetime import UTC, datetime
from typing import Any

import pytest
from kubernetes import client

from node_repair.cluster import KEEP, STARTED, parse_node
from node_repair.model import Node

REGION = "us-east-1"
BORN = datetime(2026, 11, 29, 10, 0, tzinfo=UTC)


def parsed(provider: str | None = "aws:///us-east-1a/i-0a1b", **annotations: str) -> Node | None:
    ready = client.V1NodeCondition(type="Ready", status="Unknown")
    taint = client.V1Taint(key="node.kubernetes.io/out-of-service", effect="NoExecute")
    raw: Any = client.V1Node(
        metadata=client.V1ObjectMeta(
            name="n", creation_timestamp=BORN, annotations=annotations or None
        ),
        spec=client.V1NodeSpec(provider_id=provider, unschedulable=True, taints=[taint]),
        status=client.V1NodeStatus(conditions=[ready]),
    )
    return parse_node(raw, REGION)


def test_a_node_is_known_by_its_instance() -> None:
    node = parsed()
    assert node is not None
    assert node.instance_id == "i-0a1b"
    assert node.out_of_service
    assert node.conditions["Ready"].since == BORN  # it never said since when


@pytest.mark.parametrize(
    "provider", [None, "gce://project/zone/name", "aws:///us-west-2a/i-0a1b", "aws:///x/fargate-1"]
)
def test_what_is_no_instance_of_the_region_is_not_looked_at(provider: str | None) -> None:
    assert parsed(provider) is None


def test_a_cordon_is_ours_only_with_a_time_that_we_wrote() -> None:
    ours = parsed(**{STARTED: "2026-11-29T11:00:00Z"})
    theirs = parsed(**{STARTED: "yesterday"})
    assert ours is not None
    assert ours.cordoned_by_us == datetime(2026, 11, 29, 11, 0, tzinfo=UTC)
    assert theirs is not None
    assert theirs.cordoned_by_us is None


def test_any_value_keeps_a_node() -> None:
    kept, free = parsed(**{KEEP: ""}), parsed()
    assert kept is not None
    assert free is not None
    assert (kept.kept, free.kept) == (True, False)
