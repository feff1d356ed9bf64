"""The last look at what was synthesized, before anybody can deploy it.

Every check here is a bug that users of EKS, EFA or FSx have reported and that a
template can show. A mistake in our own code meets it too: the stacks know what
they mean to make, this knows what works. Not covered: what EC2, EKS and FSx
themselves refuse; see docs/assumptions.md.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from infra import names
from infra.guard.cluster import inline_rule_problems, manifest_problems, storage_problems
from infra.guard.nodes import node_problems
from infra.guard.view import Template, Templates
from infra.settings import InfraSettings


def problems(settings: InfraSettings, by_stack: Mapping[str, Template]) -> list[str]:
    """One line each; nothing if the templates (by what their stack is for) can be deployed."""
    templates = Templates(by_stack)
    found: list[str] = []
    for name, group in settings.node_groups.items():
        found += node_problems(names.nodes(name), group, templates)
    found += storage_problems(templates)
    found += inline_rule_problems(templates)
    found += manifest_problems(templates)
    return found


def read_templates(settings: InfraSettings, folder: Path) -> dict[str, Template]:
    """What synthesis wrote into ``folder``, by what each stack is for."""
    return {
        purpose: json.loads(
            (folder / f"{names.stack_name(settings, purpose)}.template.json").read_text()
        )
        for purpose in names.purposes(settings)
    }
