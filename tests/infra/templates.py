"""Synthesized templates as plain dictionaries, and the few questions that tests ask of them."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from deployment import Deployment
from infra.stacks import build_stacks

ROOT = Path(__file__).resolve().parents[2]
DEPLOYMENT_FILES = sorted((ROOT / "deployments").glob("*.yaml"))
NAMES = [file.stem for file in DEPLOYMENT_FILES]

Template = dict[str, Any]


@dataclass(frozen=True)
class Synthesized:
    deployment: Deployment
    stacks: dict[str, Template]
    """By what the stack is for: network, registry, storage, cluster, nodes-<group>, platform."""

    @property
    def nodes(self) -> str:
        """The stack of the only node group."""
        [group] = self.deployment.node_groups
        return f"nodes-{group}"

    def resources(self, stack: str, kind: str) -> list[dict[str, Any]]:
        """Properties of each resource of one CloudFormation type."""
        resources = self.stacks[stack]["Resources"].values()
        return [r.get("Properties", {}) for r in resources if r["Type"] == kind]

    def only(self, stack: str, kind: str) -> dict[str, Any]:
        [properties] = self.resources(stack, kind)
        return properties

    def follow(self, value: Any, stack: str) -> tuple[str, str]:
        """The stack and logical id of the resource that a reference, imported or not, names."""
        if "Fn::ImportValue" in value:
            name = value["Fn::ImportValue"]
            for producer, template in self.stacks.items():
                for output in template.get("Outputs", {}).values():
                    if output.get("Export", {}).get("Name") == name:
                        return self.follow(output["Value"], producer)
            raise AssertionError(f"nothing exports {name!r}")
        return stack, value["Ref"] if "Ref" in value else value["Fn::GetAtt"][0]

    def resource_named_by(self, value: Any, stack: str) -> dict[str, Any]:
        producer, logical_id = self.follow(value, stack)
        resource: dict[str, Any] = self.stacks[producer]["Resources"][logical_id]
        return resource


def synthesize(deployment: Deployment, folder: Path) -> Synthesized:
    flags = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = cdk.App(
        context={**flags, "aws:cdk:disable-asset-staging": True},
        outdir=str(folder),
        analytics_reporting=False,
    )
    build_stacks(app, deployment)
    prefix = f"{deployment.name}-"
    stacks = {s.stack_name.removeprefix(prefix): s.template for s in app.synth().stacks}
    return Synthesized(deployment, stacks)


def as_text(value: Any) -> str:
    """A string in which each reference stands as its name, in angle brackets."""
    match value:
        case str():
            return value
        case {"Fn::Join": [separator, parts]}:
            return str(separator).join(as_text(part) for part in parts)
        case {"Fn::Base64": inner}:
            return as_text(inner)
        case {"Fn::ImportValue": name} | {"Ref": name}:
            return f"<{name}>"
    raise AssertionError(f"no text is made of {value!r}")


def scrubbed(template: Template) -> str:
    """The template as it is reviewed: without hashes of assets and what CDK puts in every one."""
    parameters = {
        k: v for k, v in template.get("Parameters", {}).items() if k != "BootstrapVersion"
    }
    kept = {k: v for k, v in template.items() if k not in ("Parameters", "Rules")}
    if parameters:
        kept["Parameters"] = parameters
    text = json.dumps(kept, indent=1, sort_keys=True)
    return re.sub(r"\b[0-9a-f]{64}\b", "<asset>", text) + "\n"
