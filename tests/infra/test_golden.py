"""Every template of every deployment file, whole. What each must say is in the other tests."""

import pytest

from tests.golden_files import GOLDEN, assert_golden
from tests.infra.conftest import Synthesize
from tests.infra.templates import NAMES, scrubbed


@pytest.mark.parametrize("name", NAMES)
def test_the_templates_are_the_golden_ones(synthesized: Synthesize, name: str) -> None:
    stacks = synthesized(name).stacks
    for stack, template in stacks.items():
        assert_golden(f"infra/{name}/{stack}.json", scrubbed(template))
    assert {file.stem for file in (GOLDEN / "infra" / name).glob("*.json")} == set(stacks)


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_small_enough_to_be_sent_inline(synthesized: Synthesize, name: str) -> None:
    sizes = {stack: len(scrubbed(t)) for stack, t in synthesized(name).stacks.items()}
    assert max(sizes.values()) < 51_200
