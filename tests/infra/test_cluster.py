"""The control plane: who reaches it, what it logs, what encrypts it, and what outlives it."""

import json
from typing import Any

import pytest

from deployment import Deployment
from infra.network_settings import NetworkSettings
from tests.infra.cluster_template import addons, depends_on, id_of
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized

KEPT = "RetainExceptOnCreate"
"""A stack that could not be made leaves nothing behind; one that was, leaves this."""


@pytest.fixture
def durable(p5: Deployment, synthesized_as: SynthesizeChanged) -> Synthesized:
    return synthesized_as(p5.model_copy(update={"lifetime": "durable"}))


def of_type(template: Synthesized, kind: str) -> list[dict[str, Any]]:
    """Whole resources, with the policies beside their properties."""
    return [r for r in template.stacks["cluster"]["Resources"].values() if r["Type"] == kind]


def log_group_of_cluster(template: Synthesized) -> dict[str, Any]:
    wanted = f"/aws/eks/{template.deployment.name}/cluster"
    [group] = [
        group
        for group in of_type(template, "AWS::Logs::LogGroup")
        if group["Properties"]["LogGroupName"] == wanted
    ]
    return group


@pytest.mark.parametrize("name", NAMES)
def test_the_api_is_private(synthesized: Synthesize, name: str) -> None:
    access = synthesized(name).only("cluster", "AWS::EKS::Cluster")["ResourcesVpcConfig"]
    assert access["EndpointPublicAccess"] is False
    assert access["EndpointPrivateAccess"] is True
    assert "PublicAccessCidrs" not in access


@pytest.mark.parametrize("name", NAMES)
def test_every_control_plane_log_is_on(synthesized: Synthesize, name: str) -> None:
    logging = synthesized(name).only("cluster", "AWS::EKS::Cluster")["Logging"]
    assert {log["Type"] for log in logging["ClusterLogging"]["EnabledTypes"]} == {
        "api", "audit", "authenticator", "controllerManager", "scheduler",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_access_entries_alone_decide_who_gets_in(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    cluster = template.only("cluster", "AWS::EKS::Cluster")
    assert cluster["Name"] == template.deployment.name
    assert cluster["Version"] == "1.35"
    assert cluster["AccessConfig"] == {
        "AuthenticationMode": "API",
        "BootstrapClusterCreatorAdminPermissions": False,
    }
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


@pytest.mark.parametrize("name", NAMES)
def test_secrets_are_encrypted_with_a_key_of_the_deployment(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    [encryption] = template.only("cluster", "AWS::EKS::Cluster")["EncryptionConfig"]
    assert encryption["Resources"] == ["secrets"]
    key = template.resource_named_by(encryption["Provider"]["KeyArn"], "cluster")
    assert key["Type"] == "AWS::KMS::Key"
    assert key["Properties"]["EnableKeyRotation"] is True
    alias = template.only("cluster", "AWS::KMS::Alias")
    assert alias["AliasName"] == f"alias/{template.deployment.name}-eks"
    assert template.resource_named_by(alias["TargetKeyId"], "cluster") == key


def test_the_key_goes_a_week_after_an_ephemeral_cluster(synthesized: Synthesize) -> None:
    [key] = of_type(synthesized("p5"), "AWS::KMS::Key")
    assert key["Properties"]["PendingWindowInDays"] == 7
    assert key["DeletionPolicy"] == "Delete"


def test_the_key_outlives_a_durable_cluster(durable: Synthesized) -> None:
    [key] = of_type(durable, "AWS::KMS::Key")
    assert "PendingWindowInDays" not in key["Properties"]
    assert (key["DeletionPolicy"], key["UpdateReplacePolicy"]) == (KEPT, "Retain")


def test_only_a_durable_cluster_is_protected_from_deletion(
    synthesized: Synthesize, durable: Synthesized
) -> None:
    assert synthesized("p5").only("cluster", "AWS::EKS::Cluster")["DeletionProtection"] is False
    assert durable.only("cluster", "AWS::EKS::Cluster")["DeletionProtection"] is True


@pytest.mark.parametrize("name", NAMES)
def test_the_log_group_exists_before_eks_would_make_one_for_ever(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    group = log_group_of_cluster(template)
    before = depends_on(template, id_of(template, "AWS::EKS::Cluster"))
    assert [template.stacks["cluster"]["Resources"][key] for key in before] == [group]
    assert group["DeletionPolicy"] == "Delete"


def test_the_logs_outlive_a_durable_cluster(durable: Synthesized) -> None:
    assert log_group_of_cluster(durable)["DeletionPolicy"] == KEPT


@pytest.mark.parametrize("name", NAMES)
def test_every_log_group_forgets_after_a_month(synthesized: Synthesize, name: str) -> None:
    groups = synthesized(name).resources("cluster", "AWS::Logs::LogGroup")
    assert [group["RetentionInDays"] for group in groups] == [30, 30, 30]


def test_every_lambda_logs_to_a_group_that_goes_with_it(durable: Synthesized) -> None:
    resources = durable.stacks["cluster"]["Resources"]
    lambdas = [key for key, r in resources.items() if r["Type"] == "AWS::Lambda::Function"]
    assert len(lambdas) == 2
    expected = [{"Fn::Join": ["", ["/aws/lambda/", {"Ref": key}]]} for key in lambdas]
    made = [
        group["Properties"]["LogGroupName"]
        for group in of_type(durable, "AWS::Logs::LogGroup")
        if group["DeletionPolicy"] == "Delete"
    ]
    assert sorted(made, key=str) == sorted(expected, key=str)


def test_without_the_kubectl_provider_there_is_no_lambda(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    template = synthesized_as(p5.model_copy(update={"kubectl_provider": False}))
    assert template.resources("cluster", "AWS::Lambda::Function") == []
    assert len(template.resources("cluster", "AWS::Logs::LogGroup")) == 1


def test_node_repair_gets_its_rights_once_the_agent_can_hand_them_out(
    synthesized: Synthesize,
) -> None:
    template = synthesized("p5")
    association = id_of(template, "AWS::EKS::PodIdentityAssociation")
    agent = addons(template)["eks-pod-identity-agent"]["LogicalId"]
    assert depends_on(template, association) == {agent}


def test_without_node_repair_nothing_may_end_a_node(synthesized: Synthesize) -> None:
    rehearsal = synthesized("rehearsal")
    assert rehearsal.deployment.node_repair is None
    assert rehearsal.resources("cluster", "AWS::EKS::PodIdentityAssociation") == []
    assert "TerminateInstance" not in json.dumps(rehearsal.stacks["cluster"])


@pytest.mark.parametrize("name", NAMES)
def test_no_role_of_the_cluster_has_full_access(synthesized: Synthesize, name: str) -> None:
    assert "FullAccess" not in json.dumps(synthesized(name).stacks["cluster"])


@pytest.mark.parametrize("name", NAMES)
def test_only_actions_that_know_no_resource_are_allowed_on_all(
    synthesized: Synthesize, name: str
) -> None:
    on_all = {
        statement["Action"]
        for policy in synthesized(name).resources("cluster", "AWS::IAM::Policy")
        for statement in policy["PolicyDocument"]["Statement"]
        if statement["Resource"] == "*"
    }
    assert on_all <= {"fsx:DescribeFileSystems", "ec2:DescribeInstances"}


@pytest.mark.parametrize("name", NAMES)
def test_the_template_is_small_enough_to_be_sent_along(synthesized: Synthesize, name: str) -> None:
    assert len(json.dumps(synthesized(name).stacks["cluster"])) < 51_200


def test_outputs_say_how_to_reach_the_cluster(synthesized: Synthesize) -> None:
    outputs = synthesized("p5").stacks["cluster"]["Outputs"]
    assert "ClusterName" in outputs
    assert outputs["KubeconfigCommand"]["Value"] == (
        "aws eks update-kubeconfig --name steadfast-p5 --region us-east-1"
    )
