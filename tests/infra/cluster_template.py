"""Questions that tests ask of the cluster stack alone: what is in it, and what waits for what."""

import json
from typing import Any

from tests.infra.templates import Synthesized

PODS = "pods.eks.amazonaws.com"


def addons(template: Synthesized) -> dict[str, dict[str, Any]]:
    """Properties of each add-on, with its logical id beside them, by its name."""
    return {
        resource["Properties"]["AddonName"]: {"LogicalId": logical_id, **resource["Properties"]}
        for logical_id, resource in template.stacks["cluster"]["Resources"].items()
        if resource["Type"] == "AWS::EKS::Addon"
    }


def addon_settings(template: Synthesized, name: str) -> Any:
    return json.loads(addons(template)[name].get("ConfigurationValues", "{}"))


def id_of(template: Synthesized, kind: str) -> str:
    """Logical id of the only resource of its type."""
    resources = template.stacks["cluster"]["Resources"]
    [logical_id] = [key for key, resource in resources.items() if resource["Type"] == kind]
    return str(logical_id)


def depends_on(template: Synthesized, logical_id: str) -> set[str]:
    """Everything that is said to exist before the resource, however indirectly."""
    resources = template.stacks["cluster"]["Resources"]
    direct = set(resources[logical_id].get("DependsOn", []))
    return direct.union(*(depends_on(template, earlier) for earlier in direct))


def statements_of(template: Synthesized, role_arn: Any) -> list[dict[str, Any]]:
    """What the policies that the template writes for a role allow it."""
    _, role = template.follow(role_arn, "cluster")
    return [
        statement
        for policy in template.resources("cluster", "AWS::IAM::Policy")
        if policy["Roles"] == [{"Ref": role}]
        for statement in policy["PolicyDocument"]["Statement"]
    ]
