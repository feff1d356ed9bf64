"""The warm trainers of all crash tests, and runs to interrupt."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainer.crashes.crash import enumerate_points
from tests.trainer.crashes.orders import Point
from tests.trainer.crashes.runs import CannotTrace, Past, Prepared, Trainers, prepare

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
    """``prepared(mode, past=...)``: each is made once, and never changed."""
    made: dict[tuple[str, Past], Prepared] = {}

    def get(mode: str, past: Past = Past.NOTHING) -> Prepared:
        if (mode, past) not in made:
            folder: Path = tmp_path_factory.mktemp("prepared") / mode
            made[mode, past] = prepare(trainers, folder, mode, past)
        return made[mode, past]

    return get


@pytest.fixture(scope="session")
def points(
    trainers: Trainers, prepared: Prepare, tmp_path_factory: pytest.TempPathFactory
) -> Points:
    """``points(mode, past=...)``: all of the save of step 6."""
    found: dict[tuple[str, Past], list[Point]] = {}

    def get(mode: str, past: Past = Past.NOTHING) -> list[Point]:
        if (mode, past) not in found:
            folder = tmp_path_factory.mktemp("unharmed") / mode
            run = prepared(mode, past)
            found[mode, past] = enumerate_points(trainers, run, folder)
        return found[mode, past]

    return get
