"""Runs to interrupt: a few steps of the real trainer on two ranks, from a folder prepared once."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

import torch.distributed as dist

from tests.trainer.crashes.orders import Act, Order, Outcome, Point
from tests.trainer.crashes.syscalls import ROOT, Operation
from tests.trainer.crashes.tracer import When
from trainer.checkpoint.layout import COMMIT_RECORD, folder_name
from trainer.events import Event, read_events

REPOSITORY = Path(__file__).parents[3]
LAST_STEP = 7
KEEP_ALL = "checkpoint.keep_latest=10"
BOTH: tuple[When, When] = ("before", "after")


class CannotTrace(OSError):
    """The kernel lets nobody trace here, as in some sandboxes."""


class Trainers:
    """The warm server, from the caller's side."""

    def __init__(self) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.trainer.crashes.server"],
            cwd=REPOSITORY,
            env={**os.environ, **threads},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        if (word := self._answer()) != "ready":
            self.__exit__()
            raise CannotTrace(word)

    def run(
        self,
        folder: Path,
        *changes: str,
        acts: Sequence[tuple[Point, Act]] = (),
        watched: bool = False,
        spawns: bool = False,
        seconds: float = 60.0,
    ) -> Outcome:
        """One attempt at the run of ``folder``; ``changes`` are KEY=VALUE."""
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        more = [word for change in changes for word in ("--set", change)]
        order = Order(
            arguments=("--settings", str(_settings(folder)), *more),
            folder=str(folder / "run" / "checkpoints"),
            port=store.port,
            log=str(folder / "log"),
            acts=tuple(acts),
            watched=watched,
            spawns=spawns,
            seconds=seconds,
        )
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps(asdict(order)) + "\n")
        self._server.stdin.flush()
        values = json.loads(self._answer())
        values["operations"] = [Operation(**operation) for operation in values["operations"]]
        values["codes"] = {int(rank): code for rank, code in values["codes"].items()}
        return Outcome(**values)

    def _answer(self) -> str:
        assert self._server.stdout is not None
        line = self._server.stdout.readline()
        assert line, f"the server ended with {self._server.wait()}"
        return line.strip()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # What it traces dies with it.
        self._server.kill()
        self._server.communicate()


def _settings(folder: Path) -> Path:
    path = folder / "settings.json"
    values: dict[str, Any] = {
        "run_directory": str(folder / "run"),
        "device": "cpu",
        "max_steps": LAST_STEP,
        "model": {"preset": "tiny"},
        "data": {"sequence_length": 16, "global_batch_size": 4},
        "checkpoint": {"interval_steps": 2, "keep_latest": 2},
        "recovery": {"layer": "none"},
        "timeouts": {"hang_seconds": 30, "startup_seconds": 30, "drain_seconds": 20},
    }
    path.write_text(json.dumps(values))
    return path


def copy(base: Path, folder: Path) -> Path:
    shutil.copytree(base, folder)
    return folder


def events(folder: Path, name: str) -> list[Event]:
    return [event for event in read_events(folder / "run") if event["name"] == name]


def log(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("log.*")))


class Past(StrEnum):
    """What attempt 1 has left besides the checkpoints of steps 2 and 4."""

    NOTHING = "nothing"
    SPOILT = "spoilt"
    """A checkpoint of step 6 with a flipped bit, which attempt 2 passes over."""

    REJECTED = "rejected"
    """A valid one of step 6, from before which attempt 2 is told to go on (``resume_step``)."""


@dataclass(frozen=True)
class Prepared:
    """A run to go on with from step 4, and what the same run ends with unharmed."""

    folder: Path
    changes: tuple[str, ...]
    """Of the settings, for every further attempt."""

    digests: dict[int, str]
    """Of each rank's state after the last step."""


def prepare(trainers: Trainers, folder: Path, mode: str, past: Past) -> Prepared:
    folder.mkdir(parents=True)
    changes: tuple[str, ...] = (f"checkpoint.mode={mode}",)
    outcome = trainers.run(folder, *changes, KEEP_ALL)
    assert outcome.codes == {0: 0, 1: 0}, log(folder)
    checkpoints = folder / "run" / "checkpoints"
    shutil.rmtree(checkpoints / folder_name(LAST_STEP, 1))
    match past:
        case Past.NOTHING:
            shutil.rmtree(checkpoints / folder_name(6, 1))
        case Past.SPOILT:
            _spoil(checkpoints / folder_name(6, 1))
        case Past.REJECTED:
            changes = (*changes, "checkpoint.resume_step=4")
    return Prepared(folder, changes, last_digests(folder))


def _spoil(checkpoint: Path) -> None:
    largest = max(checkpoint.iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    content[len(content) // 2] ^= 1
    largest.write_bytes(content)


def last_digests(folder: Path) -> dict[int, str]:
    return {event["rank"]: event["digest"] for event in events(folder, "run_finished")}


def restored_steps(folder: Path) -> list[int]:
    """What each attempt began from, as rank 0 saw it."""
    return [event["step"] for event in events(folder, "restored") if event["rank"] == 0]


def points_of_the_save(operations: Sequence[Operation]) -> list[Point]:
    """Before and after each change that the save of step 6 and its retention make.

    Of the writes that follow each other into one file, only the first, the middle and
    the last: all others leave the same, a file that is not complete.
    """
    beyond = folder_name(LAST_STEP, 0).split("-attempt")[0]
    finished: set[str] = set()
    counts: Counter[Operation] = Counter()
    numbered = []
    for operation in operations:
        if operation.path == ROOT:
            continue  # nothing of it can be half done
        if beyond in operation.path:
            # Retention goes on beside the next save, and the next one's begins at its commit.
            if COMMIT_RECORD in operation.path:
                finished.add(operation.process)
        elif operation.process not in finished:
            numbered.append((operation, counts[operation]))
            counts[operation] += 1
    return [
        Point(operation, nth, when)
        for operation, nth in numbered
        if nth in {0, counts[operation] // 2, counts[operation] - 1}
        for when in BOTH
    ]
