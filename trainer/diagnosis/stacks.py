"""Reads back what a rank left in its stack file: who it was, and where its main thread was."""

import itertools
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trainer.diagnosis.stack_file import PROGRESS_AGAIN, TOLD_TO_STOP

_THREAD = re.compile(r"^(?:Current thread|Thread) (?P<ident>0x[0-9a-f]+).*:$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')

_COLLECTIVE = re.compile(
    r"(all_reduce|all_gather|reduce_scatter|all_to_all|broadcast|gather|scatter)(_\w+)?"
    r"|reduce|barrier|init_process_group"
)
_WAITING = ("/torch/distributed/", "/torch/autograd/")
"""Where PyTorch waits for other ranks; for the GPU's part of it, too."""

_WAITS_FOR_GPU = "wait_for_gpu"
"""Of trainer/optimization.py: there the host meets a GPU that waits for others."""


@dataclass(frozen=True, slots=True)
class Frame:
    file: str
    line: str
    function: str

    def __str__(self) -> str:
        return f"{self.function} at {'/'.join(self.file.split('/')[-2:])}:{self.line}"


@dataclass(frozen=True, slots=True)
class Left:
    """What one stack file says. Without stacks, ``frames`` is empty."""

    node: str = ""
    told_to_stop: bool = False
    frames: tuple[Frame, ...] = ()
    """Of the main thread, the innermost first, when it was last looked at. Empty, too, where it
    came to make progress again."""


def read_stacks(text: str) -> Left:
    """Whatever is left of a file that may be torn, or cut off at its beginning."""
    lines = text.splitlines()
    header = _header(lines[0]) if lines else {}
    return Left(
        node=str(header.get("node", "")),
        told_to_stop=TOLD_TO_STOP in lines,
        frames=_frames(lines, _as_number(header.get("main_thread"))),
    )


def _frames(lines: Iterable[str], main_thread: int) -> tuple[Frame, ...]:
    """Of the main thread's last stack; where it has no number, of the last stack there is."""
    frames: list[Frame] = []
    is_wanted = True
    for line in lines:
        # A dump lists the threads from the newest to the main thread.
        if thread := _THREAD.match(line):
            is_wanted = main_thread in (0, _as_number(thread["ident"]))
            if is_wanted:
                frames = []
        elif line == PROGRESS_AGAIN:
            frames = []
        elif is_wanted and (found := _FRAME.match(line)):
            frames.append(Frame(found["file"], found["line"], found["function"]))
    return tuple(frames)


def _as_number(ident: object) -> int:
    try:
        return int(str(ident), 16)
    except ValueError:
        return 0


def _header(line: str) -> dict[str, Any]:
    try:
        header = json.loads(line)
    except ValueError:
        return {}
    return header if isinstance(header, dict) else {}


def waits_in(frames: tuple[Frame, ...]) -> str:
    """The collective, or this project's call, in which a rank waits for others; "" if in none."""
    within = tuple(itertools.takewhile(lambda frame: "/torch/" in frame.file, frames))
    own = frames[len(within)].function if len(within) < len(frames) else ""
    if not any(part in frame.file for frame in within for part in _WAITING):
        return own if own == _WAITS_FOR_GPU else ""
    names = (frame.function for frame in within if _COLLECTIVE.fullmatch(frame.function))
    return next(names, own or within[0].function)
