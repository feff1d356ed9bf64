"""Deployment files changed at random: each deploys, as far as cfn-lint sees, or says why not.

The examples are the same on every computer. To look further, draw others:

    MUTATIONS=20000 python -m pytest -m slow tests/infra/test_mutated_deployments.py
"""

import os
import re
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Literal

import pytest
import yaml
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from deployment import Deployment, DeploymentError, load
from infra.guard.check import problems
from tests.infra.lint import NOT_OFFERED, findings
from tests.infra.mutations import MEANT, NOT_MEANT, Mutation
from tests.infra.templates import DEPLOYMENT_FILES, synthesize
from trainer.settings import TrainerSettings

NUM_IN_SLOW_TEST = int(os.environ.get("MUTATIONS", "2400"))
EXPLORE = "MUTATIONS" in os.environ
NUM_IN_A_SHARE = 300
"""Files that one process checks: what CDK keeps of each is returned when the process ends."""

Outcome = Literal["valid", "refused"]


@dataclass(frozen=True)
class Mutated:
    file: str
    mutations: tuple[str, ...]
    text: str

    def __repr__(self) -> str:
        return f"{self.file}: {', '.join(self.mutations)}\n{self.text}"


def mutated(file: Path, mutations: tuple[Mutation, ...], random: Random) -> Mutated:
    values = yaml.safe_load(file.read_text())
    done = []
    for mutate in mutations:
        if any(not isinstance(values.get(key), dict) for key in ("node_groups", "runs")):
            break  # an earlier one took what the next would change
        try:
            mutate(values, random)
        except (AttributeError, IndexError, KeyError, StopIteration, TypeError):
            break
        done.append(mutate.__name__)
    return Mutated(file.stem, tuple(done), yaml.safe_dump(values, sort_keys=False))


def mutated_files() -> st.SearchStrategy[Mutated]:
    """One to three changes of a shipped file. Three in four are changes that somebody may mean."""
    one = st.integers(0, 3).flatmap(lambda n: st.sampled_from(MEANT if n else NOT_MEANT))
    several = st.lists(one, min_size=1, max_size=3).map(tuple)
    randoms = st.randoms(use_true_random=False)
    files = st.builds(mutated, st.sampled_from(DEPLOYMENT_FILES), several, randoms)
    return files.filter(lambda changed: changed.mutations != ())


def outcome_of(changed: Mutated) -> Outcome:
    """Fails on templates that cfn-lint or our guard dislikes, and on errors that name no key."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "deployment.yaml"
        file.write_text(changed.text)
        try:
            deployment = load(file)
        except DeploymentError as error:
            for line in str(error).splitlines():
                assert line.startswith(f"{file}: "), line
                assert names_a_key(line.removeprefix(f"{file}: ")), line
            return "refused"
        synthesized = synthesize(deployment, Path(folder) / "out")
        found = problems(deployment, synthesized.stacks)
        found += findings(synthesized, ignored=(NOT_OFFERED,))
        assert not found, "\n".join(found)
        return "valid"


def names_a_key(line: str) -> bool:
    return bool(known_keys() & set(re.findall(r"\w+", line)))


@cache
def known_keys() -> frozenset[str]:
    """Every key that a deployment file may hold, at any depth."""
    schemas = [Deployment.model_json_schema(), TrainerSettings.model_json_schema()]
    return frozenset(key for schema in schemas for key in _properties(schema))


def _properties(schema: Any) -> set[str]:
    if isinstance(schema, list):
        return {key for inner in schema for key in _properties(inner)}
    if not isinstance(schema, dict):
        return set()
    inner = {key for value in schema.values() for key in _properties(value)}
    return inner | set(schema.get("properties", {}))


def check(number: int, *, share: int, explore: bool) -> Counter[Outcome]:
    """How many of ``number`` files were valid. Shares with different numbers differ."""
    tally: Counter[Outcome] = Counter()

    @seed(int.from_bytes(os.urandom(8)) if explore else share)
    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(mutated_files())
    def each(changed: Mutated) -> None:
        note(repr(changed))
        tally[outcome_of(changed)] += 1

    each()
    return tally


def check_in_process(share: int) -> Counter[Outcome]:
    """As ``check``; what went wrong crosses the process boundary as text."""
    try:
        return check(NUM_IN_A_SHARE, share=share, explore=EXPLORE)
    except BaseException as error:
        raise AssertionError("".join(traceback.format_exception(error))) from None


def test_a_hundred_mutated_files_deploy_or_say_why_not() -> None:
    tally = check(100, share=0, explore=False)
    assert tally.total() == 100
    assert tally["valid"] > 100 / 3
    assert tally["refused"] > 0


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_thousands_of_mutated_files_deploy_or_say_why_not() -> None:
    shares = range(1, NUM_IN_SLOW_TEST // NUM_IN_A_SHARE + 1)
    with ProcessPoolExecutor(
        os.cpu_count(), mp_context=get_context("spawn"), max_tasks_per_child=1
    ) as pool:
        tally: Counter[Outcome] = sum(pool.map(check_in_process, shares), Counter())
    assert tally.total() == len(shares) * NUM_IN_A_SHARE
    assert tally["valid"] > tally.total() / 3


def test_an_error_that_names_no_key_would_be_noticed() -> None:
    assert not names_a_key("something is wrong")
    assert names_a_key("storage.size_gib: 7 GiB is not sold")
