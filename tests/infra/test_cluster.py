"""Control plane, add-ons and the roles that they run under."""

import json
from typing import Any

import pytest

from deployment import Deployment
from infra.settings import NetworkSettings
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized

ADMIN = "arn:aws:iam::111122223333:role/platform-engineer"


def addons(synthesized: Synthesized) -> dict[str, dict[str, Any]]:
    return {a["AddonName"]: a for a in synthesized.resources("cluster", "AWS::EKS::Addon")}


def depends_on(synthesized: Synthesized, logical_id: str) -> set[str]:
    """Everything that exists before the resource, however indirectly."""
    resources = synthesized.stacks["cluster"]["Resources"]
    direct = set(resources[logical_id].get("DependsOn", []))
    return direct.union(*(depends_on(synthesized, earlier) for earlier in direct))


@pytest.mark.parametrize("name", NAMES)
def test_the_api_is_private_and_every_control_plane_log_is_on(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    cluster = template.only("cluster", "AWS::EKS::Cluster")
    assert cluster["Name"] == template.deployment.name
    assert cluster["Version"] == "1.35"
    assert cluster["ResourcesVpcConfig"]["EndpointPublicAccess"] is False
    assert cluster["ResourcesVpcConfig"]["EndpointPrivateAccess"] is True
    assert len(cluster["Logging"]["ClusterLogging"]["EnabledTypes"]) == 5
    assert cluster["AccessConfig"]["AuthenticationMode"] == "API"
    assert cluster["ComputeConfig"] == {"Enabled": False}


def test_the_api_is_public_only_to_whom_the_file_names(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    network = NetworkSettings(public_endpoint_cidrs=("203.0.113.0/24",))
    template = synthesized_as(p5.model_copy(update={"network": network}))
    access = template.only("cluster", "AWS::EKS::Cluster")["ResourcesVpcConfig"]
    assert access["PublicAccessCidrs"] == ["203.0.113.0/24"]
    assert (access["EndpointPublicAccess"], access["EndpointPrivateAccess"]) == (True, True)


def test_cluster_and_nodes_agree_on_the_addresses_of_services(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    network = NetworkSettings(service_cidr="10.100.0.0/16", vpc_cidr="10.0.0.0/16")
    template = synthesized_as(p5.model_copy(update={"network": network}))
    cluster = template.only("cluster", "AWS::EKS::Cluster")
    assert cluster["KubernetesNetworkConfig"]["ServiceIpv4Cidr"] == "10.100.0.0/16"
    user_data = template.only(template.nodes, "AWS::EC2::LaunchTemplate")["LaunchTemplateData"]
    assert "cidr: 10.100.0.0/16" in json.dumps(user_data["UserData"])


def test_the_log_group_exists_before_eks_would_make_one_for_ever(synthesized: Synthesize) -> None:
    resources = synthesized("p5").stacks["cluster"]["Resources"]
    [(logical_id, group)] = [
        item for item in resources.items() if item[1]["Type"] == "AWS::Logs::LogGroup"
    ]
    assert group["Properties"]["LogGroupName"] == "/aws/eks/steadfast-p5/cluster"
    assert group["Properties"]["RetentionInDays"] == 30
    [cluster] = [key for key, r in resources.items() if r["Type"] == "AWS::EKS::Cluster"]
    assert logical_id in depends_on(synthesized("p5"), cluster)


def test_the_cluster_has_these_addons(synthesized: Synthesize) -> None:
    assert set(addons(synthesized("p5"))) == {
        "vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-fsx-csi-driver",
    }  # fmt: skip
    assert all(a["ResolveConflicts"] == "OVERWRITE" for a in addons(synthesized("p5")).values())


def test_addons_come_in_an_order_that_works(synthesized: Synthesize) -> None:
    template = synthesized("p5")
    [nodes] = [
        key
        for key, r in template.stacks["cluster"]["Resources"].items()
        if r["Type"] == "AWS::EKS::Nodegroup"
    ]
    assert depends_on(template, "Addonvpccni") == {"Addonekspodidentityagent"}
    assert {"Addonvpccni", "Addonkubeproxy"} <= depends_on(template, nodes)
    assert nodes in depends_on(template, "Addoncoredns")
    assert nodes in depends_on(template, "Addonawsfsxcsidriver")


def test_the_cni_hands_out_prefixes(synthesized: Synthesize) -> None:
    values = json.loads(addons(synthesized("p5"))["vpc-cni"]["ConfigurationValues"])
    assert values["env"]["ENABLE_PREFIX_DELEGATION"] == "true"


def test_the_storage_driver_may_only_look_at_file_systems(synthesized: Synthesize) -> None:
    template = synthesized("p5")
    [association] = addons(template)["aws-fsx-csi-driver"]["PodIdentityAssociations"]
    assert association["ServiceAccount"] == "fsx-csi-controller-sa"
    _, role = template.follow(association["RoleArn"], "cluster")
    assert "ManagedPolicyArns" not in template.stacks["cluster"]["Resources"][role]["Properties"]
    [policy] = [
        policy
        for policy in template.resources("cluster", "AWS::IAM::Policy")
        if policy["Roles"] == [{"Ref": role}]
    ]
    [statement] = policy["PolicyDocument"]["Statement"]
    assert statement["Action"] == "fsx:DescribeFileSystems"


@pytest.mark.parametrize("name", NAMES)
def test_nodes_leave_network_rights_to_the_cni(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    roles = [
        role
        for stack in ("cluster", template.nodes)
        for role in template.resources(stack, "AWS::IAM::Role")
        if "ec2.amazonaws.com" in json.dumps(role["AssumeRolePolicyDocument"])
    ]
    assert len(roles) == 2
    for role in roles:
        granted = json.dumps(role["ManagedPolicyArns"])
        assert "AmazonEKSWorkerNodePolicy" in granted
        assert "AmazonEKS_CNI_Policy" not in granted


def test_pod_roles_can_be_assumed_by_pod_identity(synthesized: Synthesize) -> None:
    template = synthesized("p5")
    for name in ("vpc-cni", "aws-fsx-csi-driver"):
        [association] = addons(template)[name]["PodIdentityAssociations"]
        role = template.resource_named_by(association["RoleArn"], "cluster")["Properties"]
        [statement] = role["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
        assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]


def test_named_admins_and_nobody_else_get_the_cluster(
    p5: Deployment, synthesized: Synthesize, synthesized_as: SynthesizeChanged
) -> None:
    def people(template: Synthesized) -> list[Any]:
        entries = template.resources("cluster", "AWS::EKS::AccessEntry")
        arns = [entry["PrincipalArn"] for entry in entries]
        return [arn for arn in arns if isinstance(arn, str)]

    assert people(synthesized("p5")) == []
    assert people(synthesized_as(p5.model_copy(update={"admin_arns": (ADMIN,)}))) == [ADMIN]


def test_outputs_say_how_to_reach_the_cluster(synthesized: Synthesize) -> None:
    outputs = synthesized("p5").stacks["cluster"]["Outputs"]
    assert "ClusterName" in outputs
    assert outputs["KubeconfigCommand"]["Value"] == (
        "aws eks update-kubeconfig --name steadfast-p5 --region us-east-1"
    )
