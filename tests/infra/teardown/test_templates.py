"""The stacks as they are synthesized, in the fake account: all go, and what they keep is named."""

import json
import re
from pathlib import Path

from infra.names import stack_name
from infra.teardown.leftovers import find_leftovers
from infra.teardown.plan import Found, plan_teardown
from infra.teardown.stacks import delete_stack, find_stacks
from infra.teardown.waiting import Pace
from tests.fake_aws.deploy import account_for, in_fake_account, synthesized_here
from tests.infra.templates import Synthesized, Template, synthesize

NO_POLICY = json.dumps({"Statement": []})
BOOTSTRAP_BUCKET = "bucket cdk-hnb659fds-assets-123456789012-us-east-1"


def test_of_an_ephemeral_deployment_only_the_bootstrap_bucket_stays() -> None:
    assert left_after_teardown(synthesized_here("g5")) == [BOOTSTRAP_BUCKET]


def test_all_that_a_durable_deployment_keeps_is_named(tmp_path: Path) -> None:
    """Termination protection, which moto does not heed, taken off by hand; no plan would do it."""
    durable = synthesize(in_fake_account("g5", lifetime="durable"), tmp_path)
    left = [re.sub(r"(system|key) \S+", r"\1 ID", what) for what in left_after_teardown(durable)]
    assert left == [
        "file system ID (1200 GiB)",
        "ECR repository steadfast-g5/trainer",
        "ECR repository steadfast-g5/node-repair",
        "KMS key ID",
        "log group /aws/eks/steadfast-g5/cluster",
        "log group /aws/vpc/steadfast-g5/flow-logs",
        BOOTSTRAP_BUCKET,
    ]


def left_after_teardown(synthesized: Synthesized) -> list[str]:
    """What is billed once the stacks, tagged as `cdk deploy` tags them, are made and deleted."""
    deployment = synthesized.deployment
    with account_for(synthesized) as account:
        client = account.client("cloudformation")
        for purpose, template in synthesized.stacks.items():
            client.create_stack(
                StackName=stack_name(deployment, purpose),
                TemplateBody=for_moto(template),
                Capabilities=["CAPABILITY_NAMED_IAM"],
                Tags=[{"Key": "deployment", "Value": deployment.name}],
            )
        found = find_stacks(client, deployment)
        stacks = {stack.name: stack for stack in found}
        for step in plan_teardown(deployment, Found(stacks=found)):
            delete_stack(client, stacks[step.targets[0]], Pace())
        assert account.statuses() == {}
        left, unknown = find_leftovers(account.client, deployment)
    assert unknown == []
    return [item.what for item in left if item.billed]


def for_moto(template: Template) -> str:
    """Without what moto 5.2.5 trips over: a policy as an object, one of the two words for keep."""
    resources = {
        name: {**resource, "Properties": {**resource["Properties"], "KeyPolicy": NO_POLICY}}
        if resource["Type"] == "AWS::KMS::Key"
        else resource
        for name, resource in template["Resources"].items()
    }
    whole = json.dumps({**template, "Resources": resources})
    return whole.replace("RetainExceptOnCreate", "Retain")
