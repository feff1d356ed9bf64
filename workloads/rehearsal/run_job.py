"""Runs one Job: starts its pods, tells the controller how they ended, does what it decides.

However it ends (verdict, limit, Ctrl-C, error), every pod is stopped as the
kubelet would: SIGTERM, the grace period, SIGKILL.
"""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from workloads.rehearsal.interrupts import Interrupts
from workloads.rehearsal.job import Job
from workloads.rehearsal.job_controller import JobState, Verdict, after_exit
from workloads.rehearsal.pod_plan import Places, plan_pod
from workloads.rehearsal.pod_process import PodProcess, wait_readable

TICK_SECONDS = 0.25
NUM_LAST_LINES = 5
LOG_TAIL_BYTES = 16_384


class Watcher(Protocol):
    """Is told what happens while it happens."""

    def tick(self, *, num_replaced: int) -> None:
        """Called several times a second."""

    def say(self, sentence: str) -> None:
        """Something happened that is worth a line."""


@dataclass(frozen=True, slots=True)
class Limits:
    backoff_factor: float
    """What the controller's backoff is multiplied by."""

    seconds: float
    """The longest that the Job may take."""


@dataclass(frozen=True, slots=True)
class FailedPod:
    name: str
    index: int
    exit_code: int
    log: Path
    last_lines: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class JobResult:
    outcome: str
    """``complete``, ``failed``, ``timed out`` or ``interrupted``."""

    reason: str
    seconds: float
    num_pods: int
    """Pods started, replacements included."""

    failed_pod: FailedPod | None
    """The pod that made the Job fail."""


def run_job(
    job: Job, places: Places, limits: Limits, *, interrupts: Interrupts, watcher: Watcher
) -> JobResult:
    """Run ``job`` to its end; when this returns or raises, none of its processes is left."""
    return _JobRun(job, places, limits, interrupts, watcher).run()


class _JobRun:
    def __init__(
        self, job: Job, places: Places, limits: Limits, interrupts: Interrupts, watcher: Watcher
    ) -> None:
        self._job = job
        self._places = places
        self._limits = limits
        self._interrupts = interrupts
        self._watcher = watcher
        self._state = JobState.at_start(job.policy)
        self._began = time.monotonic()
        self._running: dict[int, PodProcess] = {}
        self._num_started = dict.fromkeys(range(job.policy.completions), 0)
        self._due = dict.fromkeys(self._num_started, self._began)
        """When to start the next pod of an index."""

        self._failed_pod: FailedPod | None = None

    def run(self) -> JobResult:
        try:
            while self._why_stopped() is None:
                self._start_due()
                for pod in self._wait(self._seconds_to_next_event()):
                    self._ended(pod)
            outcome, reason = self._why_stopped() or ("", "")
        finally:
            self._stop_all()
        return JobResult(
            outcome=outcome,
            reason=reason,
            seconds=time.monotonic() - self._began,
            num_pods=sum(self._num_started.values()),
            failed_pod=self._failed_pod,
        )

    def _why_stopped(self) -> tuple[str, str] | None:
        """Outcome and reason once the Job has ended, for whatever cause."""
        match self._state.verdict:
            case Verdict.COMPLETE as verdict:
                return "complete", verdict
            case Verdict() as verdict:
                return "failed", verdict
        if self._interrupts.count:
            return "interrupted", "it was asked to stop"
        if time.monotonic() - self._began > self._limits.seconds:
            return "timed out", f"it was not finished after {self._limits.seconds:g} s"
        return None

    def _start_due(self) -> None:
        now = time.monotonic()
        for index in [index for index, due in self._due.items() if due <= now]:
            del self._due[index]
            number = self._num_started[index]
            plan = plan_pod(self._job, self._places, index=index, replacement=number)
            self._running[index] = PodProcess(plan)
            self._num_started[index] += 1
            if number:
                self._watcher.say(f"Pod {plan.name} replaces the one that failed.")

    def _wait(self, seconds: float) -> list[PodProcess]:
        """Until a pod ends, a signal comes or the time is over; the pods that ended, removed."""
        indexes = {pod.descriptor: index for index, pod in self._running.items()}
        ready = wait_readable([*indexes, self._interrupts.descriptor], seconds)
        if self._interrupts.descriptor in ready:
            self._interrupts.drain()
        num_first = sum(1 for number in self._num_started.values() if number)
        self._watcher.tick(num_replaced=sum(self._num_started.values()) - num_first)
        return [self._running.pop(indexes[each]) for each in ready & indexes.keys()]

    def _seconds_to_next_event(self) -> float:
        next_start = min(self._due.values(), default=float("inf"))
        return min(TICK_SECONDS, next_start - time.monotonic())

    def _ended(self, pod: PodProcess) -> None:
        index = pod.plan.index
        exit_code = pod.finish()
        if self._state.verdict is not None:
            return  # it ended together with the pod that decided
        self._state, backoff = after_exit(
            self._job.policy, self._state, index=index, exit_code=exit_code
        )
        if exit_code == 0:
            return
        sentence = f"Pod {pod.plan.name} failed with exit code {exit_code}"
        if backoff is None:
            self._failed_pod = FailedPod(
                name=pod.plan.name,
                index=index,
                exit_code=exit_code,
                log=pod.plan.log,
                last_lines=last_lines(pod.plan.log),
            )
        else:
            seconds = backoff * self._limits.backoff_factor
            self._due[index] = time.monotonic() + seconds
            sentence += f"; it is replaced in {seconds:g} s ({backoff:g} s in a cluster)"
        self._watcher.say(f"{sentence}.")

    def _stop_all(self) -> None:
        """SIGTERM, grace, SIGKILL. A request to stop that comes meanwhile ends the grace."""
        if not self._running:
            return
        requests_before = self._interrupts.count
        names = ", ".join(pod.plan.name for pod in self._running.values())
        self._watcher.say(
            f"Stopping {names}: up to {self._job.grace_seconds:g} s, or until Ctrl-C."
        )
        deadline = time.monotonic() + self._job.grace_seconds
        with ExitStack() as at_last:  # every pod is finished, also if one cannot be
            for pod in self._running.values():
                pod.terminate()
                at_last.callback(pod.finish)
            while (
                self._running
                and self._interrupts.count == requests_before
                and time.monotonic() < deadline
            ):
                self._wait(min(TICK_SECONDS, deadline - time.monotonic()))


def last_lines(log: Path) -> tuple[str, ...]:
    """The last few lines of a pod's log."""
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(size - LOG_TAIL_BYTES, 0))
        text = file.read().decode(errors="replace")
    return tuple(text.rstrip().splitlines()[-NUM_LAST_LINES:])
