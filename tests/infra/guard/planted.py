"""Synthesized templates with one fault planted in them, and what the guard says of it."""

import copy
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from deployment import Deployment
from infra.guard.check import problems
from tests.infra.templates import Synthesized


@dataclass(frozen=True)
class Plant:
    """The templates of one deployment, to be spoiled."""

    deployment: Deployment
    stacks: dict[str, Any]

    @property
    def nodes(self) -> str:
        [group] = self.deployment.node_groups
        return f"nodes-{group}"

    def resources(self, stack: str, kind: str) -> list[dict[str, Any]]:
        """Properties, by reference: what is changed in them is changed in the template."""
        found = self.stacks[stack]["Resources"].values()
        return [r.setdefault("Properties", {}) for r in found if r["Type"] == kind]

    def delete(self, stack: str, kind: str, matches: Callable[[dict[str, Any]], bool]) -> int:
        """Remove resources of one type, and say how many."""
        resources = self.stacks[stack]["Resources"]
        gone = [k for k, r in resources.items() if r["Type"] == kind and matches(r["Properties"])]
        for key in gone:
            del resources[key]
        return len(gone)

    @property
    def launch_template(self) -> dict[str, Any]:
        [found] = self.resources(self.nodes, "AWS::EC2::LaunchTemplate")
        data: dict[str, Any] = found["LaunchTemplateData"]
        return data

    def replace_text(self, stack: str, old: str, new: str) -> None:
        text = json.dumps(self.stacks[stack])
        assert old in text
        self.stacks[stack] = json.loads(text.replace(old, new))

    def verdict(self) -> list[str]:
        return problems(self.deployment, self.stacks)


def plant_in(synthesized: Synthesized) -> Plant:
    return Plant(synthesized.deployment, copy.deepcopy(synthesized.stacks))
