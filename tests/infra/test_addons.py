"""Which add-ons the cluster gets, in what order, with what rights, and on which nodes they run."""

import pytest

from tests.infra.cluster_template import (
    PODS,
    addon_settings,
    addons,
    depends_on,
    id_of,
    statements_of,
)
from tests.infra.conftest import Synthesize
from tests.infra.templates import NAMES

BEFORE_NODES = {"eks-pod-identity-agent", "vpc-cni", "kube-proxy"}
AFTER_NODES = {"coredns", "aws-fsx-csi-driver", "eks-node-monitoring-agent", "metrics-server"}


@pytest.mark.parametrize("name", NAMES)
def test_the_cluster_has_these_addons(synthesized: Synthesize, name: str) -> None:
    found = addons(synthesized(name))
    assert set(found) == BEFORE_NODES | AFTER_NODES
    assert all(addon["ResolveConflicts"] == "OVERWRITE" for addon in found.values())


@pytest.mark.parametrize("name", NAMES)
def test_nodes_start_once_pods_can_get_an_address(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    found = addons(template)
    before = depends_on(template, id_of(template, "AWS::EKS::Nodegroup"))
    assert before == {found[addon]["LogicalId"] for addon in BEFORE_NODES}


@pytest.mark.parametrize("name", NAMES)
def test_what_runs_as_a_deployment_comes_after_the_nodes(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    nodes = id_of(template, "AWS::EKS::Nodegroup")
    for addon in AFTER_NODES:
        assert nodes in depends_on(template, addons(template)[addon]["LogicalId"]), addon


def test_the_cni_waits_for_who_hands_out_its_rights(synthesized: Synthesize) -> None:
    found = addons(synthesized("p5"))
    before = depends_on(synthesized("p5"), found["vpc-cni"]["LogicalId"])
    assert before == {found["eks-pod-identity-agent"]["LogicalId"]}


def test_the_cni_hands_out_prefixes(synthesized: Synthesize) -> None:
    environment = addon_settings(synthesized("p5"), "vpc-cni")["env"]
    assert environment["ENABLE_PREFIX_DELEGATION"] == "true"


def test_the_agent_finds_the_dcgm_server_on_tainted_nodes(synthesized: Synthesize) -> None:
    settings = addon_settings(synthesized("p5"), "eks-node-monitoring-agent")
    assert settings == {"dcgmAgent": {"tolerations": [{"operator": "Exists"}]}}


@pytest.mark.parametrize("name", NAMES)
def test_dns_runs_on_system_nodes_only(synthesized: Synthesize, name: str) -> None:
    template = synthesized(name)
    labels = template.only("cluster", "AWS::EKS::Nodegroup")["Labels"]
    assert addon_settings(template, "coredns") == {"nodeSelector": labels}


def test_no_other_addon_is_given_a_setting_that_its_schema_may_not_have(
    synthesized: Synthesize,
) -> None:
    template = synthesized("p5")
    assert {name for name in addons(template) if addon_settings(template, name)} == {
        "vpc-cni", "coredns", "eks-node-monitoring-agent",
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_storage_driver_may_only_look_at_file_systems(
    synthesized: Synthesize, name: str
) -> None:
    template = synthesized(name)
    [association] = addons(template)["aws-fsx-csi-driver"]["PodIdentityAssociations"]
    assert association["ServiceAccount"] == "fsx-csi-controller-sa"
    role = template.resource_named_by(association["RoleArn"], "cluster")
    assert "ManagedPolicyArns" not in role["Properties"]
    [statement] = statements_of(template, association["RoleArn"])
    assert statement["Action"] == "fsx:DescribeFileSystems"
    # An ARN here would match no request: the action has no resource type.
    assert statement["Resource"] == "*"


def test_pod_roles_can_be_assumed_by_pod_identity_and_nobody_else(synthesized: Synthesize) -> None:
    template = synthesized("p5")
    for name in ("vpc-cni", "aws-fsx-csi-driver"):
        [association] = addons(template)[name]["PodIdentityAssociations"]
        role = template.resource_named_by(association["RoleArn"], "cluster")["Properties"]
        [statement] = role["AssumeRolePolicyDocument"]["Statement"]
        assert statement["Principal"] == {"Service": PODS}
        assert statement["Action"] == ["sts:AssumeRole", "sts:TagSession"]
