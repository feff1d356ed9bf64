"""What tests ask of the only node group of a deployment, and how they change it."""

from typing import Any

from deployment import Deployment
from infra.node_groups import NodeGroup
from tests.infra.templates import Synthesized


def launch_template(synthesized: Synthesized) -> dict[str, Any]:
    template = synthesized.only(synthesized.nodes, "AWS::EC2::LaunchTemplate")
    data: dict[str, Any] = template["LaunchTemplateData"]
    return data


def group(synthesized: Synthesized) -> dict[str, Any]:
    return synthesized.only(synthesized.nodes, "AWS::AutoScaling::AutoScalingGroup")


def with_nodes(deployment: Deployment, **changes: Any) -> Deployment:
    [(name, group)] = deployment.node_groups.items()
    changed = NodeGroup.model_validate({**group.model_dump(), **changes})
    return deployment.model_copy(update={"node_groups": {name: changed}})
