"""cfn-lint in this process, and what we let it say.

One verdict for each template text: the same text is met many times.
"""

import json
import re
from collections.abc import Collection
from functools import cache

from cfnlint.config import ConfigMixIn, ManualArgs
from cfnlint.decode.decode import decode_str
from cfnlint.runner import Runner

from tests.infra.templates import Synthesized, Template

ACCEPTED_RULES = {
    "W3010": "Zones are named on purpose: capacity, nodes and file system share one.",
    "W3005": "CDK adds a DependsOn for what a reference already says.",
}

NOT_OFFERED = re.compile(r"E3628 '([^']*)' is not one of ")


def findings(synthesized: Synthesized, *, real_types: Collection[str] = ()) -> list[str]:
    """What cfn-lint finds in the templates of one deployment, one line for each.

    That the region does not have one of ``real_types`` is no finding. The linter's table ages,
    and a block may offer what the region does not: the doctor asks EC2 instead.
    """
    region = synthesized.deployment.region
    return [
        f"{purpose}: {finding}"
        for purpose, template in synthesized.stacks.items()
        for finding in verdict(template, region, ignored=(*ACCEPTED_RULES,))
        if not ((missing := NOT_OFFERED.match(finding)) and missing[1] in real_types)
    ]


def verdict(template: Template, region: str, *, ignored: tuple[str, ...]) -> tuple[str, ...]:
    """The id of each rule that the template breaks, and how."""
    return _verdict(json.dumps(template), region, ignored)


@cache
def _verdict(text: str, region: str, ignored: tuple[str, ...]) -> tuple[str, ...]:
    template, errors = decode_str(text)
    matches = errors or _linter(region, ignored).validate_template(template)
    return tuple(f"{match.rule.id} {match.message}" for match in matches)


@cache
def _linter(region: str, ignored: tuple[str, ...]) -> Runner:
    """Made once, since its rules take longer to load than a template to check."""
    return Runner(ConfigMixIn(**ManualArgs(regions=[region], ignore_checks=[*ignored])))
