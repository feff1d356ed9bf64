"""Several groups in one deployment, what a group costs, and what a group may not say."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from deployment import Deployment
from infra.node_groups import NodeGroup
from tests.infra.conftest import SynthesizeChanged
from tests.infra.templates import DEPLOYMENT_FILES, Synthesized, as_text, synthesize

ON_DEMAND = {"kind": "on-demand"}
RESERVED = {"kind": "reservation", "reservation_id": "cr-0123456789abcdef0"}
BLOCK = {
    "kind": "capacity-block",
    "reservation_id": "cr-0123456789abcdef0",
    "starts_at": "2027-01-11T11:30:00Z",
    "ends_at": "2027-01-13T11:30:00Z",
}
GROUPS: dict[str, dict[str, Any]] = {
    "now": {"instance_type": "p5.48xlarge", "num_nodes": 2, "capacity": ON_DEMAND},
    "reserved": {"instance_type": "p5.48xlarge", "num_nodes": 4, "capacity": RESERVED},
    "small": {"instance_type": "g5.2xlarge", "num_nodes": 3, "capacity": ON_DEMAND},
}


def with_groups(p5: Deployment, groups: dict[str, dict[str, Any]]) -> Deployment:
    runs = {"baseline": {"num_nodes": 2, "node_group": next(iter(groups))}}
    return Deployment.model_validate({**p5.model_dump(), "node_groups": groups, "runs": runs})


def only(template: Synthesized, group: str, kind: str) -> dict[str, Any]:
    return template.only(f"nodes-{group}", f"AWS::{kind}")


def node_config(template: Synthesized, group: str) -> dict[str, Any]:
    data = only(template, group, "EC2::LaunchTemplate")["LaunchTemplateData"]
    part = as_text(data["UserData"]).split("Content-Type: application/node.eks.aws\n\n")[1]
    spec: dict[str, Any] = yaml.safe_load(part.split("\n--")[0])["spec"]
    return spec


def differences(a: Any, b: Any, path: str = "") -> Iterator[str]:
    if isinstance(a, dict) and isinstance(b, dict) and set(a) == set(b):
        for key in a:
            yield from differences(a[key], b[key], f"{path}/{key}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for number, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from differences(left, right, f"{path}/{number}")
    elif a != b:
        yield path


def refused(**values: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        NodeGroup.model_validate(
            {"instance_type": "p5.48xlarge", "num_nodes": 2, "capacity": ON_DEMAND, **values}
        )
    return str(caught.value)


def test_each_group_has_a_stack_with_its_own_hardware_size_and_name(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    template = synthesized_as(with_groups(p5, GROUPS))
    assert {name for name in template.stacks if name.startswith("nodes-")} == {
        "nodes-now", "nodes-reserved", "nodes-small",
    }  # fmt: skip
    seen = {}
    for name in GROUPS:
        data = only(template, name, "EC2::LaunchTemplate")["LaunchTemplateData"]
        sizes = only(template, name, "AutoScaling::AutoScalingGroup")
        seen[name] = (
            data["InstanceType"],
            len(data["NetworkInterfaces"]),
            sizes["AutoScalingGroupName"],
            sizes["MaxSize"],
        )
    assert seen == {
        "now": ("p5.48xlarge", 33, "steadfast-p5-now", "2"),
        "reserved": ("p5.48xlarge", 33, "steadfast-p5-reserved", "4"),
        "small": ("g5.2xlarge", 1, "steadfast-p5-small", "3"),
    }


def test_each_group_is_labelled_by_its_name_and_its_devices(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    template = synthesized_as(with_groups(p5, GROUPS))
    flags = {name: node_config(template, name)["kubelet"]["flags"] for name in GROUPS}
    devices = "nvidia.com/gpu.present=true,vpc.amazonaws.com/efa.present=true"
    assert flags == {
        "now": [f"--node-labels=steadfast/node-group=now,{devices}"],
        "reserved": [f"--node-labels=steadfast/node-group=reserved,{devices}"],
        "small": ["--node-labels=steadfast/node-group=small,nvidia.com/gpu.present=true"],
    }
    for name in GROUPS:
        taints = node_config(template, name)["kubelet"]["config"]["registerWithTaints"]
        keys = ["nvidia.com/gpu", "fsx.csi.aws.com/agent-not-ready"]
        assert [taint["key"] for taint in taints] == keys


def test_groups_on_demand_are_packed_apart_and_a_reserved_one_is_not(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    template = synthesized_as(with_groups(p5, GROUPS))
    packed = {
        name: len(template.resources(f"nodes-{name}", "AWS::EC2::PlacementGroup"))
        for name in GROUPS
    }
    assert packed == {"now": 1, "reserved": 0, "small": 1}


def test_a_group_is_the_same_alone_as_among_others(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    among = synthesized_as(with_groups(p5, GROUPS)).stacks["nodes-now"]
    alone = synthesized_as(with_groups(p5, {"now": GROUPS["now"]})).stacks["nodes-now"]
    assert json.dumps(alone, sort_keys=True) == json.dumps(among, sort_keys=True)


def test_the_volume_goes_before_the_nodes_that_mount_it(p5: Deployment, tmp_path: Path) -> None:
    """`cdk destroy` takes stacks down against their dependencies."""
    synthesize(with_groups(p5, GROUPS), tmp_path)
    artifacts = json.loads((tmp_path / "manifest.json").read_text())["artifacts"]
    dependencies = set(artifacts["steadfast-p5-platform"]["dependencies"])
    assert dependencies >= {f"steadfast-p5-nodes-{name}" for name in GROUPS}


@pytest.mark.parametrize(
    ("capacity", "differing"),
    [
        (ON_DEMAND, {"Group/Properties/MaxSize", "Group/Properties/DesiredCapacity"}),
        (
            BLOCK,
            {
                "Group/Properties/MaxSize",
                "BlockStarts/Properties/MaxSize",
                "BlockStarts/Properties/DesiredCapacity",
            },
        ),
    ],
    ids=["on-demand", "capacity-block"],
)
def test_64_nodes_cost_as_many_resources_as_2_and_differ_in_their_number_alone(
    p5: Deployment,
    synthesized_as: SynthesizeChanged,
    capacity: dict[str, Any],
    differing: set[str],
) -> None:
    few, many = (
        synthesized_as(with_groups(p5, {"p5": {**GROUPS["now"], **size}})).stacks
        for size in (
            {"num_nodes": 2, "capacity": capacity},
            {"num_nodes": 64, "capacity": capacity},
        )
    )
    paths = {path.removeprefix("/") for path in differences(few, many)}
    assert paths == {f"nodes-p5/Resources/{path}" for path in differing}


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"capacity": {**BLOCK, "ends_at": "2027-01-11T12:00:00Z"}}, "less than 90 minutes"),
        ({"capacity": {**BLOCK, "ends_at": "2027-01-13T11:30:00"}}, "timezone"),
        ({"capacity": {**BLOCK, "ends_at": 20270113}}, "write one such as '2027-01-13T11:30:00Z'"),
        ({"capacity": {"kind": "reservation"}}, "give exactly one of the two"),
        ({"capacity": {**RESERVED, "placement_group": True}}, "placement_group"),
        ({"capacity": {"kind": "spot"}}, "'on-demand', 'reservation', 'capacity-block'"),
        ({"num_nodes": 0}, "num_nodes"),
        ({"spare_nodes": -1}, "spare_nodes"),
        ({"root_volume_gib": 20}, "greater than or equal to 50"),
        ({"ami_id": "al2023"}, "ami_id"),
    ],
)
def test_a_group_that_cannot_work_is_refused(values: dict[str, Any], remedy: str) -> None:
    assert remedy in refused(**values)


def test_a_group_has_its_spares_beside_what_runs_may_use() -> None:
    group = NodeGroup.model_validate({**GROUPS["now"], "spare_nodes": 1})
    assert (group.num_nodes, group.all_nodes) == (2, 3)


@pytest.mark.parametrize("file", DEPLOYMENT_FILES, ids=lambda file: file.stem)
def test_a_shipped_file_names_its_schema_first(file: Any) -> None:
    first, *_ = file.read_text().splitlines()
    assert first == "# yaml-language-server: $schema=schema.json"
