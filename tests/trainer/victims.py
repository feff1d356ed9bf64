"""Processes to which faults happen: ranks without a group, forked from one that has torch."""

import multiprocessing
import select
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, cast

import torch

from tests.trainer.ranks import trainer_settings
from trainer.distributed import Job
from trainer.events import EventLog
from trainer.faults.injector import FaultInjector

SECONDS = 30.0

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.trainer.victims"])


def job_of(rank: int, world_size: int = 2) -> Job:
    """A place in a job that has no process group."""
    return Job(rank, world_size, torch.device("cpu"), mesh=cast(Any, None))


def injector_for(
    run_directory: Path, *planned: tuple[str, int, int], rank: int, **faults: Any
) -> FaultInjector:
    """Of ``rank``, for the plan of (kind, step, rank)."""
    listed = [dict(zip(("kind", "step", "rank"), fault, strict=True)) for fault in planned]
    settings = trainer_settings(run_directory, faults={"planned": listed, **faults})
    events = EventLog(run_directory, rank=rank)
    injector = FaultInjector(settings, job_of(rank), events)
    weakref.finalize(injector, events.close)
    return injector


class Victim:
    """Runs ``function(tell, *arguments)``; ``tell`` sends a word to the test."""

    def __init__(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        self._words, theirs = _context.Pipe(duplex=False)
        self._process = _context.Process(target=_run, args=(function, theirs, arguments))
        self._process.start()
        theirs.close()
        assert self._process.pid is not None
        self.pid = self._process.pid

    def word(self) -> Any:
        """The next word, or None if it ended without one."""
        assert self._words.poll(SECONDS), "said nothing"
        try:
            return self._words.recv()
        except EOFError:
            return None

    def exit_code(self) -> int | None:
        """What it ended with; negative, the signal's number."""
        self._process.join(SECONDS)
        return self._process.exitcode

    def lives_on_for(self, seconds: float) -> bool:
        return not select.select([self._process.sentinel], [], [], seconds)[0]

    def kill(self) -> None:
        self._process.kill()
        self._process.join()
        self._words.close()


@contextmanager
def victim(function: Callable[..., None], *arguments: Any) -> Iterator[Victim]:
    process = Victim(function, arguments)
    try:
        yield process
    finally:
        process.kill()


def _run(function: Callable[..., None], words: Connection, arguments: tuple[Any, ...]) -> None:
    function(words.send, *arguments)
