"""Who gets into the cluster, how far, and what happens to the others when one leaves."""

import json
from typing import Any

import pytest

from deployment import Deployment
from infra.access import entry_id
from tests.infra.conftest import Synthesize, SynthesizeChanged
from tests.infra.templates import NAMES, Synthesized

ADA = "arn:aws:iam::111122223333:role/platform/ada"
BEN = "arn:aws:iam::111122223333:user/ben"
CLEO = "arn:aws:iam::111122223333:role/ml-engineer"


def entries(template: Synthesized) -> dict[str, dict[str, Any]]:
    """Entries of people, by principal; those of roles that the stack itself makes left out."""
    resources = template.stacks["cluster"]["Resources"]
    return {
        resource["Properties"]["PrincipalArn"]: {"LogicalId": key, **resource["Properties"]}
        for key, resource in resources.items()
        if resource["Type"] == "AWS::EKS::AccessEntry"
        and isinstance(resource["Properties"]["PrincipalArn"], str)
    }


def policy_of(entry: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    [policy] = entry["AccessPolicies"]
    return json.dumps(policy["PolicyArn"]).split("/")[-1].rstrip('"]}'), policy["AccessScope"]


@pytest.mark.parametrize("name", NAMES)
def test_nobody_gets_in_whom_the_file_does_not_name(synthesized: Synthesize, name: str) -> None:
    deployment = synthesized(name).deployment
    named = {*deployment.admin_arns, *deployment.submitter_arns}
    assert set(entries(synthesized(name))) == named


def test_administrators_get_the_whole_cluster(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    arns = {"admin_arns": (ADA, BEN), "submitter_arns": ()}
    template = synthesized_as(p5.model_copy(update=arns))
    assert set(entries(template)) == {ADA, BEN}
    for entry in entries(template).values():
        assert policy_of(entry) == ("AmazonEKSClusterAdminPolicy", {"Type": "cluster"})


def test_submitters_may_edit_in_the_namespace_of_runs_only(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    template = synthesized_as(p5.model_copy(update={"submitter_arns": (CLEO,)}))
    scope = {"Type": "namespace", "Namespaces": ["training"]}
    assert policy_of(entries(template)[CLEO]) == ("AmazonEKSEditPolicy", scope)


def test_one_who_leaves_changes_nobody_elses_entry(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    alone = p5.model_copy(update={"submitter_arns": ()})
    both = synthesized_as(alone.model_copy(update={"admin_arns": (ADA, BEN)}))
    one = synthesized_as(alone.model_copy(update={"admin_arns": (BEN,)}))
    assert entries(one) == {BEN: entries(both)[BEN]}


def test_one_who_gets_another_right_keeps_the_entry(
    p5: Deployment, synthesized_as: SynthesizeChanged
) -> None:
    before = synthesized_as(p5.model_copy(update={"submitter_arns": (CLEO,)}))
    alone = p5.model_copy(update={"submitter_arns": ()})
    after = synthesized_as(alone.model_copy(update={"admin_arns": (CLEO,)}))
    assert entries(before)[CLEO]["LogicalId"] == entries(after)[CLEO]["LogicalId"]


def test_principals_that_differ_in_their_path_alone_are_told_apart() -> None:
    assert entry_id(ADA) != entry_id(ADA.replace("platform/", ""))
    assert entry_id(ADA).startswith("ada-")
