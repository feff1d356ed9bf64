"""What the tests ask of the traced run, and what they get back: plain data, sent as JSON."""

from dataclasses import dataclass, field
from enum import StrEnum

from tests.trainer.crashes.syscalls import Operation
from tests.trainer.crashes.tracer import When


class Act(StrEnum):
    """What happens to a run that stands at a point."""

    KILL_ALL = "kill_all"
    KILL_RANK = "kill_rank"
    """The rank that stands there, or whose writer does."""

    KILL_WRITER = "kill_writer"
    """The process that stands there."""

    TERMINATE = "terminate"
    """SIGTERM to the rank that stands there, or whose writer does."""

    STOP_WRITER = "stop_writer"
    DELAY = "delay"
    """The process goes on ``DELAY_SECONDS`` later."""

    EIO = "eio"
    """The call is made and then fails with it; only "after" one."""

    FILL = "fill"
    """The file system of the checkpoints has no byte left, until ``FREE``."""

    FREE = "free"
    VANISH = "vanish"
    """The checkpoints' folder is moved away, until ``RETURN``."""

    RETURN = "return"

    READ_ONLY = "read_only"
    """The file system of the checkpoints can no longer be written, until ``WRITABLE``."""

    WRITABLE = "writable"


DELAY_SECONDS = 9.0


@dataclass(frozen=True, slots=True)
class Point:
    """Before or after ``operation``, the ``nth`` time, from 0, that its process makes it."""

    operation: Operation
    nth: int
    when: When

    def __str__(self) -> str:
        operation = self.operation
        again = f" (time {self.nth + 1})" if self.nth else ""
        return f"{self.when} {operation.call} {operation.path} by {operation.process}{again}"


@dataclass(frozen=True, slots=True)
class Order:
    """One traced run of the trainer."""

    arguments: tuple[str, ...]
    """Of ``trainer.train``."""

    folder: str
    """Watched: the run's checkpoints."""

    port: int
    """Of the store at which the ranks meet."""

    log: str
    acts: tuple[tuple[Point, Act], ...] = ()
    watched: bool = False
    """Stop at every change and list it. Else only at calls of ``acts``: each stop costs time."""

    spawns: bool = False
    """Start the writer as the product does, which imports for seconds, and not by a fork."""

    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Outcome:
    codes: dict[int, int]
    """Exit code of each rank; negative for the signal that killed it."""

    operations: list[Operation]
    done: int
    """How many of the acts were come to."""

    seconds: float = 0.0
    """From the last act to the end of the last process."""

    left: list[str] = field(default_factory=list)
    """Processes that did not end by themselves within the time."""
