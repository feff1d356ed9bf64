"""Reads back what a rank left in its stack file: who it was, and where its main thread was."""

import json
import re
from dataclasses import dataclass

from trainer.diagnosis.stack_file import TOLD_TO_STOP

_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+.*:$")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+|\?\?\?) in (?P<function>.*)$')

_COLLECTIVES = re.compile(
    r"^(all_reduce|all_gather\w*|reduce_scatter\w*|broadcast\w*|gather\w*|barrier|_?all_to_all\w*"
    r"|reduce|scatter\w*|monitored_barrier|init_process_group|wait)$"
)
_PYTORCH_WAITS = ("/torch/distributed/", "/torch/autograd/")
_OWN_WAITS = ("_agree", "_engine_run_backward")
"""In which a rank also waits for the others, seen from Python: for the GPU, or in autograd."""


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
    """Of the main thread, the innermost first, when it was last looked at."""


def read_stacks(text: str) -> Left:
    """Whatever is left of a file that may be torn, or cut off at its beginning."""
    lines = text.splitlines()
    frames: list[Frame] = []
    for line in lines:
        # A dump lists the threads from the newest to the main thread.
        if _THREAD.match(line):
            frames = []
        elif found := _FRAME.match(line):
            frames.append(Frame(found["file"], found["line"], found["function"]))
    return Left(
        node=_node(lines[0]) if lines else "",
        told_to_stop=TOLD_TO_STOP in lines,
        frames=tuple(frames),
    )


def _node(line: str) -> str:
    try:
        header = json.loads(line)
    except ValueError:
        return ""
    return str(header.get("node", "")) if isinstance(header, dict) else ""


def waits_in(frames: tuple[Frame, ...]) -> str:
    """The collective in which a rank with this stack waits for the others; "" if in none."""
    if not frames:
        return ""
    inner = frames[0]
    if not any(part in inner.file for part in _PYTORCH_WAITS) and inner.function not in _OWN_WAITS:
        return ""
    named = (frame.function for frame in frames if _COLLECTIVES.match(frame.function))
    return next(named, inner.function)
