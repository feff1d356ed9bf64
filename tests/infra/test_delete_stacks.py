"""What is left when the stacks are gone again, in a fake account: nothing, or what is durable."""

from pathlib import Path
from typing import Any

import pytest

from tests.fake_aws.deploy import FakeAccount, account_for, in_fake_account, synthesized_here
from tests.fake_aws.fake import Fake
from tests.infra.templates import NAMES, Synthesized, synthesize


def left_behind(account: FakeAccount) -> dict[str, Any]:
    """What would still bill or block a second deploy."""
    ec2, iam = account.client("ec2"), account.client("iam")
    return {
        "fakes": [fake.kind for fake in Fake.existing],
        "vpcs": [v["VpcId"] for v in ec2.describe_vpcs()["Vpcs"] if not v["IsDefault"]],
        "addresses": ec2.describe_addresses()["Addresses"],
        "launch templates": ec2.describe_launch_templates()["LaunchTemplates"],
        "groups": account.client("autoscaling").describe_auto_scaling_groups()["AutoScalingGroups"],
        "instances": [
            instance["InstanceId"]
            for reservation in ec2.describe_instances()["Reservations"]
            for instance in reservation["Instances"]
            if instance["State"]["Name"] != "terminated"
        ],
        "file systems": account.client("fsx").describe_file_systems()["FileSystems"],
        "clusters": account.client("eks").list_clusters()["clusters"],
        "repositories": account.client("ecr").describe_repositories()["repositories"],
        "log groups": account.client("logs").describe_log_groups()["logGroups"],
        "functions": account.client("lambda").list_functions()["Functions"],
        "roles": [role["RoleName"] for role in iam.list_roles()["Roles"]],
        "stacks": list(account.statuses()),
    }


@pytest.mark.parametrize("name", NAMES)
def test_deleting_all_stacks_leaves_nothing(name: str) -> None:
    with account_for(synthesized_here(name)) as account:
        before = left_behind(account)
        account.create_stacks()
        account.delete_stacks()
        assert left_behind(account) == before


def test_deleting_what_no_shipped_file_asks_for_leaves_nothing(tmp_path: Path) -> None:
    deployment = in_fake_account("g5")
    [group] = deployment.node_groups.values()
    storage = deployment.storage.model_copy(update={"data_repository": "s3://ours/tokens"})
    changes = {"node_groups": {"one": group, "two": group}, "storage": storage}
    with account_for(synthesize(deployment.model_copy(update=changes), tmp_path)) as account:
        before = left_behind(account)
        account.create_stacks()
        assert account.unresolved() == []
        kinds = [fake.kind for fake in Fake.existing]
        assert kinds.count("AWS::FSx::DataRepositoryAssociation") == 1
        account.delete_stacks()
        assert left_behind(account) == before


def test_without_the_kubectl_provider_there_are_no_functions(tmp_path: Path) -> None:
    deployment = in_fake_account("g5", kubectl_provider=False)
    with account_for(synthesize(deployment, tmp_path)) as account:
        account.create_stacks()
        assert account.unresolved() == []
        assert account.client("lambda").list_functions()["Functions"] == []
        assert not [fake for fake in Fake.existing if fake.kind == "Custom::"]


def test_a_type_that_nobody_models_fails_the_deploy() -> None:
    network = synthesized_here("g5").stacks["network"]
    queue = {"Type": "AWS::EC2::NetworkInsightsPath", "Properties": {}}
    planted = {**network, "Resources": {**network["Resources"], "Planted": queue}}
    changed = Synthesized(synthesized_here("g5").deployment, {"network": planted})
    with (
        account_for(changed) as account,
        pytest.raises(UserWarning, match="NetworkInsightsPath but it's not supported"),
    ):
        account.create_stacks()


def test_a_durable_file_system_and_its_images_outlive_their_stacks(tmp_path: Path) -> None:
    deployment = in_fake_account("g5", lifetime="durable")
    with account_for(synthesize(deployment, tmp_path)) as account:
        account.create_stacks()
        for purpose in reversed(account.synthesized.stacks):
            if purpose != "network":  # which AWS refuses to delete below a file system
                account.delete_stack(purpose)
        left = left_behind(account)
        assert len(left["file systems"]) == 1
        assert len(left["repositories"]) >= 1
        assert left["clusters"] == []
