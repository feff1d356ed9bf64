"""Whether a deploy changes more of the system nodes at once than EKS takes.

EKS has one call for a managed group's version and another for the rest, and refuses
an update of both (github.com/aws/containers-roadmap/issues/1258). Judged against the
deployed template, since CloudFormation sends what differs from that.

Not covered: changes of the stack that no key of a deployment file makes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from infra import names
from infra.doctor.case import Case
from infra.doctor.findings import Finding, error, ok
from infra.doctor.lookups import deployed_resources
from infra.settings import InfraSettings

SYSTEM_NODES = "system nodes"

Resources = Mapping[str, Sequence[Mapping[str, Any]]]


def check_system_nodes(case: Case) -> list[Finding]:
    stack = names.stack_name(case.settings, names.CLUSTER)
    return [judge_system_nodes(deployed_resources(case.clients, stack), case.settings)]


def judge_system_nodes(deployed: Resources, settings: InfraSettings) -> Finding:
    """``deployed`` are the properties of the cluster stack's resources, by type."""
    groups = deployed.get("AWS::EKS::Nodegroup", ())
    if not groups:
        return ok(SYSTEM_NODES, "none are deployed yet", "nothing to change")
    [group] = groups
    [template] = deployed["AWS::EC2::LaunchTemplate"]
    system = settings.system_nodes
    changes = [
        f"{key} {has} to {wanted}"
        for key, has, wanted in (
            ("kubernetes_version", group.get("Version"), settings.kubernetes_version),
            (
                "system_nodes.num_nodes",
                int(group["ScalingConfig"]["DesiredSize"]),
                system.num_nodes,
            ),
            (
                "system_nodes.instance_type",
                template["LaunchTemplateData"]["InstanceType"],
                system.instance_type,
            ),
        )
        if has != wanted
    ]
    if len(changes) > 1:
        what = "EKS refuses more than one change of the system nodes at once"
        return error(SYSTEM_NODES, what, ", ".join(changes), "one deploy for each of these keys")
    return ok(SYSTEM_NODES, "one change at the most", ", ".join(changes) or "none")
