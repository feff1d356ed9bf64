"""How far a run has come, from the events that its ranks and pods write while it runs."""

import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainer.events import Event, parse_event

REASON_WIDTH = 80


@dataclass(frozen=True, slots=True)
class Progress:
    """What rank 0 has completed, and the last thing worth telling about the run."""

    step: int = 0
    num_attempts: int = 0
    latest: str = ""

    @property
    def num_restarts(self) -> int:
        return max(self.num_attempts - 1, 0)


def advance(progress: Progress, event: Event) -> Progress:
    """The progress after ``event``. Of what all ranks say, only rank 0's word is taken."""
    is_leader = event.get("rank") == 0
    num_attempts = progress.num_attempts
    step, latest = progress.step, progress.latest
    match event["name"]:
        case "step_completed" if is_leader:
            step = event["step"]
        case "attempt_started" if is_leader:
            num_attempts += 1
        case "restored" if is_leader:
            step = event["step"]
            latest = f"restored step {step}" if step else "starts from step 0"
        case "attempt_failed" if is_leader:
            latest = f"attempt failed: {_one_line(event['reason'])}"
        case "fault_injected":
            latest = f"{event['kind']} injected in rank {event['rank']}, step {event['step']}"
        case "checkpoint_failed":
            latest = f"checkpoint failed: {_one_line(event['reason'])}"
        case "run_finished" if is_leader:
            latest = "finished"
    return Progress(step=step, num_attempts=num_attempts, latest=latest)


class EventTail:
    """Reads what was added to a run's event files since the last time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._offsets: dict[Path, int] = {}

    def new_events(self) -> list[Event]:
        """The events of whole lines added since, in order of time; a torn line is skipped."""
        return sorted(self._added(), key=lambda event: float(event["wall"]))

    def _added(self) -> Iterator[Event]:
        for path in sorted(self._folder.glob("*.jsonl")):
            with path.open("rb") as file:
                file.seek(self._offsets.get(path, 0))
                lines = file.read().splitlines(keepends=True)
            if lines and not lines[-1].endswith(b"\n"):
                lines.pop()  # still being written
            self._offsets[path] = self._offsets.get(path, 0) + sum(map(len, lines))
            for line in lines:
                if event := parse_event(line):
                    yield event


def _one_line(reason: str) -> str:
    # Gloo begins its messages with the place in its own source, which fills the line.
    return textwrap.shorten(re.sub(r"\[/\S+\]", "", reason), REASON_WIDTH, placeholder=" ...")
