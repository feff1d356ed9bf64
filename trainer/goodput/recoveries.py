"""How long the run took to recover from each injected fault, and in which bins.

A fault is recovered at the moment when every rank has completed the first step
of a later attempt. Two faults that one recovery repairs each get the time from
their own moment on, so recoveries may overlap; the bins of the run never do.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer.events import Event
from trainer.goodput.attempts import Attempt
from trainer.goodput.timeline import Bin, Segment

_FIRST_STEP = (Bin.PRODUCTIVE, Bin.LOST, Bin.STALL, Bin.UNACCOUNTED)


@dataclass(frozen=True, slots=True)
class Recovery:
    """What one fault cost; the last five are ``None`` if the run never recovered from it."""

    fault: str
    """Its name in the fault plan."""

    kind: str
    rank: int
    step: int
    attempt: int
    time_to_recover_seconds: float | None
    """0 if training went on."""

    seconds_by_bin: Mapping[Bin, float] | None
    """What the run's bins hold between fault and recovery."""

    restored_step: int | None
    source: str | None
    """The tier that the state was read from; ``none`` if the run began again at step 0."""

    steps_lost: int | None
    """Between the last step that the job had completed and the step that was restored."""

    @property
    def first_step_seconds(self) -> float | None:
        """The part of the recovery that was the first step itself."""
        if self.seconds_by_bin is None:
            return None
        return sum(self.seconds_by_bin[bin_] for bin_ in _FIRST_STEP)


def recoveries_of(
    events: Sequence[Event], attempts: Sequence[Attempt], segments: Sequence[Segment]
) -> tuple[Recovery, ...]:
    faults = (event for event in events if event["name"] == "fault_injected")
    return tuple(_recovery(fault, attempts, segments) for fault in faults)


def _recovery(fault: Event, attempts: Sequence[Attempt], segments: Sequence[Segment]) -> Recovery:
    suffered = int(fault["attempt"])
    broken = next((a for a in attempts if a.number == suffered), None)
    recovered = next((a for a in attempts if a.number > suffered and a.executions), None)
    window: tuple[float, float] | None = None
    if broken is not None and broken.last_step > int(fault["step"]):
        recovered, window = None, (float(fault["wall"]), float(fault["wall"]))
    elif recovered is not None:
        window = float(fault["wall"]), recovered.executions[0].completed
    restored_step = recovered.restored_step if recovered else None
    steps_lost = None
    if restored_step is not None and broken is not None:
        steps_lost = max(broken.last_step - restored_step, 0)
    return Recovery(
        fault=str(fault["fault"]),
        kind=str(fault["kind"]),
        rank=int(fault["rank"]),
        step=int(fault["step"]),
        attempt=suffered,
        time_to_recover_seconds=window[1] - window[0] if window else None,
        seconds_by_bin=seconds_by_bin(segments, *window) if window else None,
        restored_step=restored_step,
        source=recovered.source if recovered else None,
        steps_lost=steps_lost,
    )


def seconds_by_bin(segments: Sequence[Segment], since: float, until: float) -> dict[Bin, float]:
    """Seconds that each bin holds of the time from ``since`` to ``until``."""
    seconds = dict.fromkeys(Bin, 0.0)
    for segment in segments:
        overlap = min(segment.ended, until) - max(segment.began, since)
        seconds[segment.bin] += max(overlap, 0.0)
    return seconds
