"""Deployment files changed at random: each deploys, as far as cfn-lint sees, or says why not.

The examples are the same on every computer. To look further, draw others:

    MUTATIONS=20000 python -m pytest -m slow tests/infra/test_mutated_deployments.py
"""

import json
import os
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Literal

import pytest
import yaml
from hypothesis import HealthCheck, given, note, seed, settings
from hypothesis import strategies as st

from deployment import Deployment, DeploymentError, load
from infra.guard.check import problems
from infra.hardware import CATALOG
from tests.infra.lint import findings
from tests.infra.mutations import MEANT, NOT_MEANT, SYSTEM_TYPES, Mutation
from tests.infra.templates import DEPLOYMENT_FILES, Synthesized, synthesize
from tests.refusals import names_a_key

NUM_IN_SLOW_TEST = int(os.environ.get("MUTATIONS", "1200"))
EXPLORE = "MUTATIONS" in os.environ
NUM_IN_A_SHARE = 300
"""Files that one process checks: what CDK keeps of each is returned when the process ends."""

REAL_TYPES = frozenset({*CATALOG, *SYSTEM_TYPES})
"""What only some regions have, so that cfn-lint may miss it in one."""

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
        except (AttributeError, IndexError, KeyError, StopIteration, TypeError, ValueError):
            break  # it, too; hypothesis's random refuses to choose of nothing with a ValueError
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
        found += findings(synthesized, real_types=REAL_TYPES)
        assert not found, "\n".join(found)
        return "valid"


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


@pytest.mark.timeout(300)
def test_a_hundred_mutated_files_deploy_or_say_why_not() -> None:
    tally = check(100, share=0, explore=False)
    assert tally.total() == 100
    assert tally["valid"] > 100 / 3
    assert tally["refused"] > 0


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("share", range(1, NUM_IN_SLOW_TEST // NUM_IN_A_SHARE + 1))
def test_thousands_of_mutated_files_deploy_or_say_why_not(share: int) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        tally = process.submit(check_in_process, share).result()
    assert tally.total() == NUM_IN_A_SHARE
    assert tally["valid"] > NUM_IN_A_SHARE / 3


@pytest.mark.parametrize(
    "line",
    [
        "storage.size_gib: 7 GiB is not sold",
        "storage: deployment_type 'PERSISTENT_2' needs throughput_mbps_per_tib",
        "training_zone 'us-west-2a' is not in region 'us-east-1'",
        "runs.async.num_nodes is 4 but node group 'p5' has 2",
        "storag: unknown setting 'storag'; did you mean 'storage'?",
    ],
)
def test_an_error_that_begins_with_its_key_names_it(line: str) -> None:
    assert names_a_key(line)


@pytest.mark.parametrize(
    "line",
    [
        "something is wrong",
        "name of something is wrong",
        "the key storage.size_gib: 7 GiB is not sold",
        "size_gib: 7 GiB is not sold",
        "storag: 7 GiB is not sold",
        "run 'async' needs 4 nodes",
        "unknown setting; did you mean another?",
    ],
)
def test_an_error_that_does_not_begin_with_its_key_is_noticed(line: str) -> None:
    assert not names_a_key(line)


def test_a_type_that_does_not_exist_is_noticed(p5: Deployment, tmp_path: Path) -> None:
    stacks = json.dumps(synthesize(p5, tmp_path).stacks)
    text = stacks.replace("p5.48xlarge", "zz9.huge")
    found = findings(Synthesized(p5, json.loads(text)), real_types=REAL_TYPES)
    assert [line.split("'")[:2] for line in found] == [["nodes-p5: E3628 ", "zz9.huge"]]
