"""Each deployment file is synthesized once for all tests."""

from collections.abc import Callable
from functools import cache

import pytest

from deployment import Deployment, load
from tests.infra.templates import ROOT, Synthesized, synthesize

Synthesize = Callable[[str], Synthesized]
SynthesizeChanged = Callable[[Deployment], Synthesized]


@pytest.fixture(scope="session")
def synthesized(tmp_path_factory: pytest.TempPathFactory) -> Synthesize:
    """Call with the name of a deployment file, without folder and ending."""

    @cache
    def once(name: str) -> Synthesized:
        deployment = load(ROOT / "deployments" / f"{name}.yaml")
        return synthesize(deployment, tmp_path_factory.mktemp(name))

    return once


@pytest.fixture
def synthesized_as(tmp_path_factory: pytest.TempPathFactory) -> SynthesizeChanged:
    """Call with a deployment that no file holds."""
    return lambda deployment: synthesize(deployment, tmp_path_factory.mktemp("changed"))


@pytest.fixture(scope="session")
def p5() -> Deployment:
    return load(ROOT / "deployments/p5.yaml")
