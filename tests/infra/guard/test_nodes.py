"""Faults of node groups that users have reported, each planted and refused by name."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.infra.conftest import Synthesize
from tests.infra.guard.planted import Plant, plant_in
from tests.infra.templates import NAMES


def interface(number: int, **changes: Any) -> Callable[[Plant], None]:
    """Change one network interface; a value of None removes the key."""

    def plant(templates: Plant) -> None:
        properties = templates.launch_template["NetworkInterfaces"][number]
        for key, value in changes.items():
            if value is None:
                del properties[key]
            else:
                properties[key] = value

    return plant


def template(**changes: Any) -> Callable[[Plant], None]:
    return lambda templates: templates.launch_template.update(changes)


def metadata(**changes: Any) -> Callable[[Plant], None]:
    return lambda templates: templates.launch_template["MetadataOptions"].update(changes)


def one_efa_less(templates: Plant) -> None:
    templates.launch_template["NetworkInterfaces"].pop()


def self_rule_gone(kind: str) -> Callable[[Plant], None]:
    def plant(templates: Plant) -> None:
        gone = templates.delete(
            "network", f"AWS::EC2::SecurityGroup{kind}", lambda p: p["IpProtocol"] == "-1"
        )
        assert gone == 1

    return plant


def tcp_only(stack: str, kind: str) -> Callable[[Plant], None]:
    """EFA is not TCP, and the kubelet's peers are not all either."""

    def plant(templates: Plant) -> None:
        rules = templates.resources(stack, f"AWS::EC2::SecurityGroup{kind}")
        everything = [rule for rule in rules if rule["IpProtocol"] == "-1"]
        assert everything
        for rule in everything:
            rule |= {"IpProtocol": "tcp", "FromPort": 0, "ToPort": 65535}

    return plant


def cluster_rules_gone(templates: Plant) -> None:
    gone = templates.delete(
        "cluster", "AWS::EC2::SecurityGroupIngress", lambda p: p["IpProtocol"] == "-1"
    )
    assert gone == 2


def public_subnet(templates: Plant) -> None:
    for subnet in templates.resources("network", "AWS::EC2::Subnet"):
        subnet["MapPublicIpOnLaunch"] = True


def route_to_the_internet(templates: Plant) -> None:
    for route in templates.resources("network", "AWS::EC2::Route"):
        route["GatewayId"] = {"Ref": "Gateway"}


def no_nat_gateway(templates: Plant) -> None:
    assert templates.delete("network", "AWS::EC2::Route", lambda p: "NatGatewayId" in p)


def another_subnet(templates: Plant) -> None:
    [file_system] = templates.resources("storage", "AWS::FSx::FileSystem")
    file_system["SubnetIds"] = [{"Ref": "Elsewhere"}]


def two_subnets(templates: Plant) -> None:
    [group] = templates.resources(templates.nodes, "AWS::AutoScaling::AutoScalingGroup")
    group["VPCZoneIdentifier"] *= 2


def no_access_entry(templates: Plant) -> None:
    assert templates.delete(templates.nodes, "AWS::EKS::AccessEntry", lambda _: True) == 1


def in_user_data(old: str, new: str) -> Callable[[Plant], None]:
    return lambda templates: templates.replace_text(templates.nodes, old, new)


@pytest.mark.parametrize(
    ("plant", "said"),
    [
        (interface(2, DeviceIndex=2), "(1, 2): DeviceIndex 2 does not exist"),
        (interface(2, NetworkCardIndex=2), "two interfaces in slot (2, 0)"),
        (interface(2, NetworkCardIndex=32), "names card 32; a p5.48xlarge has 32"),
        (interface(2, Groups=None), "has no security group"),
        (interface(2, DeleteOnTermination=False), "would outlive its instance"),
        (interface(2, InterfaceType="efa_only"), "InterfaceType 'efa_only' is none of"),
        (interface(0, InterfaceType="efa-only"), "slot (0, 0) carries no IP"),
        (interface(2, AssociatePublicIpAddress=True), "asks for a public address"),
        (interface(2, SubnetId="subnet-1"), "names a subnet"),
        (one_efa_less, "has 31 EFA devices and a p5.48xlarge takes 32"),
        (template(SecurityGroupIds=["sg-1"]), "SecurityGroupIds stands beside NetworkInterfaces"),
        (self_rule_gone("Ingress"), "has an Ingress rule for all traffic with itself"),
        (self_rule_gone("Egress"), "has an Egress rule for all traffic with itself"),
        (tcp_only("network", "Ingress"), "has an Ingress rule for all traffic with itself"),
        (tcp_only("network", "Egress"), "has an Egress rule for all traffic with itself"),
        (tcp_only("cluster", "Ingress"), "no rule lets traffic from the cluster's security"),
        (tcp_only("cluster", "Ingress"), "no rule lets traffic to the cluster's security"),
        (cluster_rules_gone, "no rule lets traffic from the cluster's security group through"),
        (cluster_rules_gone, "no rule lets traffic to the cluster's security group through"),
        (public_subnet, "is in a public subnet"),
        (route_to_the_internet, "is in a public subnet"),
        (another_subnet, "is not in the subnet of storage: FileSystem"),
        (two_subnets, "spans 2 subnets"),
        (no_access_entry, "needs one access entry, of type EC2_LINUX"),
        (in_user_data("x86_64/nvidia/", "x86_64/standard/"), "holds no NVIDIA driver"),
        (in_user_data("/amazon-linux-2023/", "/amazon-linux-2/"), "is not Amazon Linux 2023"),
        (in_user_data("LimitMEMLOCK=infinity", ""), "does not lift the limit on locked memory"),
        (
            in_user_data("172.20.0.0/16", "10.100.0.0/16"),
            "the cidr '10.100.0.0/16' and the cluster '172.20.0.0/16'",
        ),
        (in_user_data("nvidia.com/gpu.present=true", "a=b"), "no label nvidia.com/gpu.present"),
        (in_user_data("amazonaws.com/efa.present=true", "b=c"), "no label vpc.amazonaws.com/efa"),
        (in_user_data("application/node.eks.aws", "text/plain"), "0 NodeConfig parts"),
        (metadata(HttpTokens="optional"), "pods could take the node's own"),
        (metadata(HttpPutResponseHopLimit=2), "pods could take the node's own"),
        (
            in_user_data("steadfast/node-group=p5", "steadfast/node-group=p"),
            "lacks the label stead",
        ),
        (in_user_data("key: nvidia.com/gpu", "key: other"), "lacks the taint nvidia.com/gpu"),
        (in_user_data("name: steadfast-p5", "name: steadfast"), "the name 'steadfast' and"),
        (no_nat_gateway, "is in a subnet without a NAT gateway"),
        (template(ImageId="ami-00000000"), "image 'ami-00000000' is not Amazon Linux 2023"),
    ],
)
def test_a_fault_of_a_node_group_is_refused_by_name(
    synthesized: Synthesize, plant: Callable[[Plant], None], said: str
) -> None:
    templates = plant_in(synthesized("p5"))
    plant(templates)
    verdict = templates.verdict()
    assert any(said in problem for problem in verdict), verdict
    assert all(problem.startswith(("nodes-p5", "storage")) for problem in verdict)


@pytest.mark.parametrize(
    ("label", "plugin"),
    [("nvidia.com/gpu.present", "NVIDIA"), ("vpc.amazonaws.com/efa.present", "EFA")],
)
def test_a_label_of_devices_that_a_node_does_not_have_is_refused(
    synthesized: Synthesize, label: str, plugin: str
) -> None:
    templates = plant_in(synthesized("rehearsal"))
    own = "steadfast/node-group=cpu"
    templates.replace_text(templates.nodes, own, f"{own},{label}=true")
    [problem] = templates.verdict()
    assert f"has 0 devices for the {plugin} plugin and a label {label}" in problem


def test_a_pinned_image_must_be_the_one_that_is_launched(synthesized: Synthesize) -> None:
    templates = plant_in(synthesized("p5"))
    group = templates.deployment.node_groups["p5"].model_copy(update={"ami_id": "ami-12345678"})
    deployment = templates.deployment.model_copy(update={"node_groups": {"p5": group}})
    [problem] = Plant(deployment, templates.stacks).verdict()
    assert "ImageId is not the pinned ami-12345678" in problem


@pytest.mark.parametrize("name", NAMES)
def test_what_is_shipped_has_none_of_these_faults(synthesized: Synthesize, name: str) -> None:
    assert plant_in(synthesized(name)).verdict() == []
