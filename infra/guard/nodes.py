"""What keeps a training node from starting, joining or being of use, as its templates show it."""

import email
import re
from collections.abc import Iterator
from typing import Any

import yaml

from infra import names
from infra.bootstrap import EFA_PRESENT_LABEL, GPU_PRESENT_LABEL, GPU_TAINT, GROUP_LABEL
from infra.guard.capacity import capacity_problems
from infra.guard.interfaces import group_problems, interface_problems
from infra.guard.view import Resource, Templates, text_of
from infra.node_groups import NodeGroup

NODE_CONFIG = "application/node.eks.aws"


def node_problems(stack: str, group: NodeGroup, templates: Templates) -> Iterator[str]:
    """Problems of one node group, each behind the resource that it is in."""
    for template in templates.of_kind("AWS::EC2::LaunchTemplate"):
        if template.stack == stack:
            found = [
                *interface_problems(template, group.hardware),
                *group_problems(template, templates),
                *_image(template, group, templates),
                *capacity_problems(template, group, templates),
                *_metadata(template),
                *_user_data(template, group, templates),
            ]
            yield from (f"{template.where}: {problem}" for problem in found)
    for asg in templates.of_kind("AWS::AutoScaling::AutoScalingGroup"):
        if asg.stack == stack:
            yield from (f"{asg.where}: {problem}" for problem in _subnets(asg, templates))
    entries = [e for e in templates.of_kind("AWS::EKS::AccessEntry") if e.stack == stack]
    if [entry.properties.get("Type") for entry in entries] != ["EC2_LINUX"]:
        yield f"{stack}: needs one access entry, of type EC2_LINUX, or its nodes cannot join"


def _subnets(asg: Resource, templates: Templates) -> Iterator[str]:
    subnets = asg.properties["VPCZoneIdentifier"]
    if len(subnets) != 1:
        yield f"spans {len(subnets)} subnets; EFA does not leave its zone, so give one"
    for reference in subnets:
        subnet = templates.named_by(reference, asg.stack)
        if subnet is None:
            yield "names a subnet that no stack makes"
        elif subnet.properties.get("MapPublicIpOnLaunch") or _is_public(subnet, templates):
            yield (
                "is in a public subnet, where a node of several interfaces gets no address; "
                "take a private one (terraform-aws-eks#3533)"
            )
        elif not _has_way_out(subnet, templates):
            yield "is in a subnet without a NAT gateway; its nodes could not pull an image"
        for file_system in templates.of_kind("AWS::FSx::FileSystem"):
            homes = file_system.properties["SubnetIds"]
            if [templates.named_by(home, file_system.stack) for home in homes] != [subnet]:
                yield f"is not in the subnet of {file_system.where}; put both into one"


def _is_public(subnet: Resource, templates: Templates) -> bool:
    """A subnet is public by its route to an internet gateway, whatever it is called."""
    return any("GatewayId" in route.properties for route in _routes(subnet, templates))


def _has_way_out(subnet: Resource, templates: Templates) -> bool:
    return any("NatGatewayId" in route.properties for route in _routes(subnet, templates))


def _routes(subnet: Resource, templates: Templates) -> Iterator[Resource]:
    tables = [
        templates.named_by(a.properties["RouteTableId"], a.stack)
        for a in templates.of_kind("AWS::EC2::SubnetRouteTableAssociation")
        if templates.named_by(a.properties["SubnetId"], a.stack) == subnet
    ]
    for route in templates.of_kind("AWS::EC2::Route"):
        if templates.named_by(route.properties["RouteTableId"], route.stack) in tables:
            yield route


def _image(template: Resource, group: NodeGroup, templates: Templates) -> Iterator[str]:
    image = template.properties["LaunchTemplateData"]["ImageId"]
    if group.ami_id is not None:
        if image != group.ami_id:
            yield f"ImageId is not the pinned {group.ami_id}"
        return
    parameters = templates.by_stack[template.stack].get("Parameters", {})
    reference = image.get("Ref") if isinstance(image, dict) else None
    path = str(parameters.get(reference, {}).get("Default", image))
    if "/amazon-linux-2023/" not in path:
        yield f"image {path!r} is not Amazon Linux 2023, the one whose kernel mounts Lustre here"
    if group.hardware.num_gpus and "/nvidia/" not in path:
        yield f"image {path!r} holds no NVIDIA driver; take the nvidia one (amazon-eks-ami#1817)"


def _metadata(template: Resource) -> Iterator[str]:
    options = template.properties["LaunchTemplateData"].get("MetadataOptions", {})
    if (options.get("HttpTokens"), options.get("HttpPutResponseHopLimit")) != ("required", 1):
        yield "pods could take the node's own rights; require tokens with a hop limit of 1"


def _user_data(template: Resource, group: NodeGroup, templates: Templates) -> Iterator[str]:
    data = template.properties["LaunchTemplateData"].get("UserData")
    parts = list(email.message_from_string(text_of(data)).walk())
    configs = [str(p.get_payload()) for p in parts if p.get_content_type() == NODE_CONFIG]
    if len(configs) != 1:
        yield f"user data has {len(configs)} NodeConfig parts; nodeadm needs one"
        return
    spec: dict[str, Any] = yaml.safe_load(configs[0])["spec"]
    for cluster in templates.of_kind("AWS::EKS::Cluster"):
        cidr = cluster.properties["KubernetesNetworkConfig"]["ServiceIpv4Cidr"]
        wanted = {"name": cluster.properties["Name"], "cidr": cidr}
        for key, value in wanted.items():
            if (said := spec["cluster"].get(key)) != value:
                yield f"NodeConfig has the {key} {said!r} and the cluster {value!r}"
    yield from _kubelet(spec.get("kubelet", {}), template.stack, group)
    if group.hardware.num_efa and "LimitMEMLOCK=infinity" not in text_of(data):
        yield "does not lift the limit on locked memory, 64 KiB (aws-ofi-nccl#44)"


def _kubelet(kubelet: dict[str, Any], stack: str, group: NodeGroup) -> Iterator[str]:
    """Labels by which plugins and jobs find the node, and the taint that keeps others away."""
    flags = " ".join(kubelet.get("flags", []))
    devices = {
        GPU_PRESENT_LABEL: ("NVIDIA", group.hardware.num_gpus),
        EFA_PRESENT_LABEL: ("EFA", group.hardware.num_efa),
    }
    for label, (plugin, count) in devices.items():
        if bool(count) != (f"{label}=true" in flags):
            yield (
                f"has {count} devices for the {plugin} plugin and {'no' if count else 'a'} label "
                f"{label}, by which that finds its nodes (eksctl#8201)"
            )
    label = f"{GROUP_LABEL}={stack.removeprefix(names.nodes(''))}"
    if label not in re.split("[=,]", flags, maxsplit=1)[-1].split(","):
        yield f"lacks the label {label}, by which runs find their nodes"
    tainted = GPU_TAINT in kubelet.get("config", {}).get("registerWithTaints", [])
    if bool(group.hardware.num_gpus) != tainted:
        yield f"{'lacks' if not tainted else 'has'} the taint {GPU_TAINT['key']} of GPU nodes"
