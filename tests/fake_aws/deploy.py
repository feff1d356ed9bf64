"""Creates the stacks of a deployment in the fake account, and deletes them, as `cdk` would.

In process: CloudFormation's own API is called, the command line of CDK is not.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import boto3
import pytest
from moto import mock_aws
from moto.cloudformation import parsing
from moto.cloudformation.models import cloudformation_backends

from deployment import Deployment, load
from infra.names import stack_name
from tests.fake_aws.account import (
    ACCOUNT,
    fakes_in_moto,
    publish_assets,
    publish_parameters,
)
from tests.infra.templates import ROOT, Synthesized, Template, synthesize

REFERENCES = ("Ref", "Fn::GetAtt", "Fn::ImportValue")


@dataclass(frozen=True)
class FakeAccount:
    """Holds the stacks of one deployment, whose account must be ``ACCOUNT``."""

    synthesized: Synthesized

    def client(self, service: str) -> Any:
        return boto3.client(service, self.synthesized.deployment.region)

    def create_stacks(self) -> None:
        """Producers first, which is the order that CDK lists them in."""
        for purpose, template in self.synthesized.stacks.items():
            self.client("cloudformation").create_stack(
                StackName=stack_name(self.synthesized.deployment, purpose),
                # moto 5.2.5 reads only the plainer of two words for what is kept.
                TemplateBody=json.dumps(template).replace("RetainExceptOnCreate", "Retain"),
                Capabilities=["CAPABILITY_NAMED_IAM"],
            )

    def delete_stacks(self) -> None:
        for purpose in reversed(self.synthesized.stacks):
            self.delete_stack(purpose)

    def delete_stack(self, purpose: str) -> None:
        name = stack_name(self.synthesized.deployment, purpose)
        self.client("cloudformation").delete_stack(StackName=name)

    def statuses(self) -> dict[str, str]:
        """Of each stack that was not deleted, by what it is for."""
        prefix = f"{self.synthesized.deployment.name}-"
        stacks = self.client("cloudformation").describe_stacks()["Stacks"]
        return {s["StackName"].removeprefix(prefix): s["StackStatus"] for s in stacks}

    def unresolved(self) -> list[str]:
        """References in the templates for which CloudFormation has no value."""
        deployment = self.synthesized.deployment
        backend = cloudformation_backends[ACCOUNT][deployment.region]
        missing = []
        for purpose, template in self.synthesized.stacks.items():
            resources = backend.get_stack(stack_name(deployment, purpose)).resource_map
            for reference in references(template):
                if reference == {"Ref": "AWS::NoValue"}:
                    continue
                value = parsing.clean_json(reference, resources)
                if not isinstance(value, str | int) or value == "":
                    missing.append(f"{purpose}: {reference}")
        return missing


def in_fake_account(name: str, **changes: Any) -> Deployment:
    """The deployment file ``name``, in the one account that the fake is."""
    deployment = load(ROOT / "deployments" / f"{name}.yaml")
    return deployment.model_copy(update={"account": ACCOUNT, **changes})


@cache
def synthesized_here(name: str) -> Synthesized:
    with TemporaryDirectory() as folder:
        return synthesize(in_fake_account(name), Path(folder))


@contextmanager
def account_for(synthesized: Synthesized) -> Iterator[FakeAccount]:
    """An empty account in which `cdk bootstrap` has been run and the assets are uploaded."""
    region = synthesized.deployment.region
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("AWS_ENDPOINT_URL", raising=False)
        environment.setenv("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")  # a second each, and unused
        with mock_aws(), fakes_in_moto():
            publish_parameters(region, bootstrapped=True)
            publish_assets(region, set(_asset_keys(synthesized.stacks)))
            yield FakeAccount(synthesized)


def references(value: Any) -> Iterator[dict[str, Any]]:
    """Every reference to a resource, a parameter or another stack's export, nested ones too."""
    match value:
        case dict():
            if len(value) == 1 and next(iter(value)) in REFERENCES:
                yield value
            for inner in value.values():
                yield from references(inner)
        case list():
            for inner in value:
                yield from references(inner)


def _asset_keys(value: dict[str, Template] | Any) -> Iterator[str]:
    match value:
        case {"S3Key": str(key)}:
            yield key
        case dict():
            for inner in value.values():
                yield from _asset_keys(inner)
        case list():
            for inner in value:
                yield from _asset_keys(inner)
