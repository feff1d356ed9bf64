"""What a deployment file may say about the cluster; each refusal names the remedy."""

from typing import Any

import pytest
from pydantic import ValidationError

from deployment import Deployment
from infra.network_settings import NetworkSettings
from infra.node_groups import NodeGroup


def refused_nodes(**values: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        NodeGroup.model_validate({"num_nodes": 2, "capacity": {"kind": "on-demand"}, **values})
    return str(caught.value)


def test_an_instance_type_that_is_not_in_the_catalog_gets_the_nearest_one() -> None:
    message = refused_nodes(instance_type="p5.48xlage")
    assert "did you mean 'p5.48xlarge'?" in message


def test_a_layout_that_the_type_cannot_have_is_refused() -> None:
    message = refused_nodes(instance_type="p6-b300.48xlarge", efa_layout="efa-primary")
    assert "use 'ena-primary'" in message


def test_a_capacity_block_takes_no_placement_group() -> None:
    capacity = {
        "kind": "capacity-block",
        "reservation_id": "cr-0123456789abcdef0",
        "ends_at": "2027-01-13T11:30:00Z",
        "placement_group": True,
    }
    assert "placement_group" in refused_nodes(instance_type="p5.48xlarge", capacity=capacity)


@pytest.mark.parametrize(
    ("values", "remedy"),
    [
        ({"vpc_cidr": "10.0.0.0/20"}, "take /16 to /18"),
        ({"vpc_cidr": "10.0.0.1/16"}, "give a network such as"),
        ({"vpc_cidr": "8.8.0.0/16"}, "holds addresses of others"),
        ({"vpc_cidr": "169.254.0.0/16"}, "holds addresses of others"),
        ({"service_cidr": "8.8.8.0/24"}, "is none that EKS takes"),
        ({"service_cidr": "10.200.0.0/30"}, "is a /30; take /12 to /24"),
        ({"service_cidr": "172.16.0.0/11"}, "give a network such as"),
        ({"public_endpoint_cidrs": ["0.0.0.0/0"]}, "lets half the world in"),
        ({"public_endpoint_cidrs": ["10.0.0.0/8"]}, "is not a public network"),
        ({"vpc_cidr": "172.20.0.0/16"}, "give Services addresses that the VPC does not use"),
        ({"public_endpoint_cidrs": ["203.0.113.7/24"]}, "give a network such as"),
    ],
)
def test_a_network_that_cannot_work_is_refused(values: dict[str, Any], remedy: str) -> None:
    with pytest.raises(ValidationError, match=remedy):
        NetworkSettings.model_validate(values)


def test_an_admin_is_a_role_or_user(p5: Deployment) -> None:
    with pytest.raises(ValidationError, match="admin_arns"):
        Deployment.model_validate({**p5.model_dump(), "admin_arns": ["me@example.com"]})


@pytest.mark.parametrize("namespace", ["default", "kube-system", "node-repair"])
def test_a_namespace_of_others_is_refused(p5: Deployment, namespace: str) -> None:
    with pytest.raises(ValidationError, match="choose a name of your own"):
        Deployment.model_validate({**p5.model_dump(), "namespace": namespace})


@pytest.mark.parametrize(
    ("admins", "submitters"), [(["ann"], ["ann"]), (["ann", "ann"], []), (["bob"], ["ann", "ann"])]
)
def test_a_principal_has_one_right_alone(
    p5: Deployment, admins: list[str], submitters: list[str]
) -> None:
    """EKS takes one access entry for each, so the second would fail the deploy."""
    with pytest.raises(ValidationError, match="name 'arn:aws:iam::111122223333:user/ann' twice"):
        with_principals(p5, admins, submitters)


def test_an_administrator_and_a_submitter_may_be_two_people(p5: Deployment) -> None:
    assert len(with_principals(p5, ["ann"], ["bob"]).submitter_arns) == 1


def with_principals(p5: Deployment, admins: list[str], submitters: list[str]) -> Deployment:
    arns = {"admin_arns": admins, "submitter_arns": submitters}
    named = {key: [f"arn:aws:iam::111122223333:user/{n}" for n in arns[key]] for key in arns}
    return Deployment.model_validate({**p5.model_dump(), **named})


@pytest.mark.parametrize("place", ["us-west-2:111122223333", "us-east-1:999999999999"])
def test_a_group_of_reservations_is_of_the_deployments_own_region_and_account(
    p5: Deployment, place: str
) -> None:
    arn = f"arn:aws:resource-groups:{place}:group/blocks"
    capacity = {"kind": "reservation", "reservation_group_arn": arn}
    groups = {"p5": {"instance_type": "p5.48xlarge", "num_nodes": 2, "capacity": capacity}}
    with pytest.raises(
        ValidationError, match="is not of region us-east-1 and account 111122223333"
    ):
        Deployment.model_validate({**p5.model_dump(), "node_groups": groups})
