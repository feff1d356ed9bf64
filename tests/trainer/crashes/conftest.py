"""The warm trainers of all crash tests, and runs to interrupt."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainer.crashes.crash import enumerate_points
from tests.trainer.crashes.orders import Point
from tests.trainer.crashes.runs import CannotTrace, Prepared, Trainers, prepare

Prepare = Callable[..., Prepared]
Points = Callable[..., list[Point]]


@pytest.fixture(scope="session")
def trainers() -> Iterator[Trainers]:
    try:
        trainers = Trainers()
    except CannotTrace as error:
        pytest.skip(f"no process can be stopped at a system call here: {error}")
    with trainers:
        yield trainers


@pytest.fixture(scope="session")
def prepared(trainers: Trainers, tmp_path_factory: pytest.TempPathFactory) -> Prepare:
    """``prepared(mode, damaged=...)``: each is made once, and never changed."""
    made: dict[tuple[str, bool], Prepared] = {}

    def get(mode: str, *, damaged: bool = False) -> Prepared:
        if (mode, damaged) not in made:
            folder: Path = tmp_path_factory.mktemp("prepared") / mode
            made[mode, damaged] = prepare(trainers, folder, mode, damaged=damaged)
        return made[mode, damaged]

    return get


@pytest.fixture(scope="session")
def points(
    trainers: Trainers, prepared: Prepare, tmp_path_factory: pytest.TempPathFactory
) -> Points:
    """``points(mode, damaged=...)``: all of the save of step 6."""
    found: dict[tuple[str, bool], list[Point]] = {}

    def get(mode: str, *, damaged: bool = False) -> list[Point]:
        if (mode, damaged) not in found:
            folder = tmp_path_factory.mktemp("unharmed") / mode
            run = prepared(mode, damaged=damaged)
            found[mode, damaged] = enumerate_points(trainers, run, folder)
        return found[mode, damaged]

    return get
