"""The warm trainers of all crash tests, and runs to interrupt."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.trainer.crashes.crash import watch
from tests.trainer.crashes.orders import Point
from tests.trainer.crashes.runs import (
    CannotTrace,
    Past,
    Prepared,
    Trainers,
    points_of_the_save,
    prepare,
)
from tests.trainer.crashes.syscalls import Operation

Prepare = Callable[..., Prepared]
Operations = Callable[..., list[Operation]]
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
def operations(
    trainers: Trainers, prepared: Prepare, tmp_path_factory: pytest.TempPathFactory
) -> Operations:
    """``operations(mode, past=...)``: what attempt 2 does when nothing happens to it."""
    found: dict[tuple[str, Past], list[Operation]] = {}

    def get(mode: str, past: Past = Past.NOTHING) -> list[Operation]:
        if (mode, past) not in found:
            folder = tmp_path_factory.mktemp("unharmed") / mode
            found[mode, past] = watch(trainers, prepared(mode, past), folder)
        return found[mode, past]

    return get


@pytest.fixture(scope="session")
def points(operations: Operations) -> Points:
    """``points(mode, past=...)``: all of the save of step 6."""

    def get(mode: str, past: Past = Past.NOTHING) -> list[Point]:
        return points_of_the_save(operations(mode, past))

    return get
