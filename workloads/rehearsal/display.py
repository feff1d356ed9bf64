"""Shows rehearsals on stderr while they run: a bar each on a terminal, else a line now and then."""

import sys
import time
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from workloads.rehearsal.progress import EventTail, advance
from workloads.rehearsal.progress import Progress as RunProgress

PLAIN_INTERVAL_SECONDS = 5.0


class Display(Protocol):
    """Shows one run at a time; entered before the first and left after the last."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    def begin(self, run: str, *, max_steps: int) -> None: ...

    def update(self, progress: RunProgress, *, num_replaced: int) -> None: ...

    def say(self, sentence: str) -> None: ...

    def end(self, outcome: str) -> None: ...


def choose_display() -> Display:
    """Bars only where both streams are a terminal: no bar may end up in somebody's file."""
    if sys.stdout.isatty() and sys.stderr.isatty():
        return BarDisplay()
    return PlainDisplay(sys.stderr)


class BarDisplay:
    def __init__(self) -> None:
        self._bars = Progress(
            TextColumn("{task.fields[run]}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=Console(stderr=True),
        )

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def begin(self, run: str, *, max_steps: int) -> None:
        self._task = self._bars.add_task("", total=max_steps, run=run, text="starting")

    def update(self, progress: RunProgress, *, num_replaced: int) -> None:
        self._bars.update(
            self._task,
            completed=progress.step,
            text=summarize(progress, num_replaced=num_replaced) or "starting",
        )

    def say(self, sentence: str) -> None:
        self._bars.console.print(Text(sentence), soft_wrap=True)

    def end(self, outcome: str) -> None:
        self._bars.update(self._task, text=outcome)
        self._bars.stop_task(self._task)


class PlainDisplay:
    """A line for each notable event, and one every few seconds if the step has changed."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = RunProgress()
        self._last_line = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def begin(self, run: str, *, max_steps: int) -> None:
        self._run = run
        self._max_steps = max_steps
        self._shown = RunProgress()
        self.say(f"{run}: starting")

    def update(self, progress: RunProgress, *, num_replaced: int) -> None:
        is_notable = progress.latest != self._shown.latest
        is_time = time.monotonic() - self._last_line >= PLAIN_INTERVAL_SECONDS
        if is_notable or (is_time and progress.step != self._shown.step):
            self._shown = progress
            text = summarize(progress, num_replaced=num_replaced)
            self.say(f"{self._run}: step {progress.step} of {self._max_steps}; {text}")

    def say(self, sentence: str) -> None:
        self._last_line = time.monotonic()
        self._stream.write(f"{sentence}\n")
        self._stream.flush()

    def end(self, outcome: str) -> None:
        self.say(f"{self._run}: {outcome}")


class DisplayWatcher:
    """Tells a display what a run's events say."""

    def __init__(self, display: Display, tail: EventTail) -> None:
        self._display = display
        self._tail = tail
        self.progress = RunProgress()

    def tick(self, *, num_replaced: int) -> None:
        for event in self._tail.new_events():
            before, self.progress = self.progress, advance(self.progress, event)
            if self.progress.latest != before.latest:  # none may be passed over
                self._display.update(self.progress, num_replaced=num_replaced)
        self._display.update(self.progress, num_replaced=num_replaced)

    def say(self, sentence: str) -> None:
        self._display.say(sentence)


def summarize(progress: RunProgress, *, num_replaced: int) -> str:
    """What is worth saying beside the step: the latest event, restarts, replaced pods."""
    parts = [progress.latest] if progress.latest else []
    if progress.num_restarts:
        parts.append(f"attempt {progress.num_attempts}")
    if num_replaced:
        parts.append(f"{num_replaced} pods replaced" if num_replaced > 1 else "1 pod replaced")
    return ", ".join(parts)
