"""Every template of every deployment file, whole. What each must say is in the other tests."""

import pytest

from tests.golden_files import GOLDEN, assert_golden
from tests.infra.conftest import Synthesize
from tests.infra.templates import NAMES, scrubbed

STACKS = ["network", "registry", "storage", "cluster", "gpu-nodes", "platform"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("stack", STACKS)
def test_a_template_is_the_golden_one(synthesized: Synthesize, name: str, stack: str) -> None:
    assert_golden(f"infra/{name}/{stack}.json", scrubbed(synthesized(name).stacks[stack]))


def test_there_are_no_other_templates(synthesized: Synthesize) -> None:
    assert all(set(synthesized(name).stacks) == set(STACKS) for name in NAMES)
    golden = {f"{file.parent.name}/{file.name}" for file in (GOLDEN / "infra").glob("*/*.json")}
    assert golden == {f"{name}/{stack}.json" for name in NAMES for stack in STACKS}


@pytest.mark.parametrize("name", NAMES)
def test_a_template_is_small_enough_to_be_sent_inline(synthesized: Synthesize, name: str) -> None:
    sizes = {stack: len(scrubbed(t)) for stack, t in synthesized(name).stacks.items()}
    assert max(sizes.values()) < 51_200
