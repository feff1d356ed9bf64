"""Writes down what the ranks and pods of an imaginary run would have recorded.

The caller says how long each thing took and in which bin that time belongs, so
a history knows the right answer to every question that the ledger is asked.
"""

from collections import defaultdict
from collections.abc import Callable, Collection
from typing import Any

from trainer.events import Event
from trainer.goodput.timeline import Bin


class History:
    """One run. ``skew`` gives each rank's lateness at each of its events; none by default."""

    def __init__(
        self, *, num_ranks: int, num_pods: int = 1, skew: Callable[[], float] = lambda: 0.0
    ) -> None:
        self.events: list[Event] = []
        self.now = 0.0
        self.kept: list[tuple[int, float]] = []
        """Each step whose result survives so far, and its seconds without stall."""

        self.num_redone = 0
        self._spent: defaultdict[Bin, float] = defaultdict(float)
        self._ranks, self._pods = range(num_ranks), range(num_pods)
        self._skew = skew
        self._attempt = 0
        self._step = 0
        self._last_mark: dict[int, float] = {}

    def wait(self, seconds: float, bin_: Bin) -> None:
        self.now += seconds
        self._spent[bin_] += seconds

    def seconds_by_bin(self) -> dict[Bin, float]:
        productive = sum(seconds for _, seconds in self.kept)
        return {bin_: self._spent[bin_] for bin_ in Bin} | {Bin.PRODUCTIVE: productive}

    def start_pod(self, pod: int = 0) -> None:
        self._write("pod_started", self.now, pod=pod)

    def stop_pod(self, pod: int = 0, *, exit_code: int = 1) -> None:
        self._write("pod_stopped", self.now, pod=pod, exit_code=exit_code)

    def start_workers(self) -> None:
        self._on_every_rank("process_started")

    def start_attempt(self) -> None:
        self._attempt += 1
        self._step = 0
        self._on_every_rank("attempt_started")

    def join(self) -> None:
        self._on_every_rank("process_group_ready")

    def restore(self, step: int) -> None:
        self._step = step
        lost = [seconds for done, seconds in self.kept if done > step]
        self.num_redone += len(lost)
        self._spent[Bin.LOST] += sum(lost)
        self.kept = [(done, seconds) for done, seconds in self.kept if done <= step]
        self._last_mark = self._on_every_rank("restored", source="durable" if step else "none")

    def step(self, seconds: float = 1.0, *, stall_seconds: float = 0.0, loss: float = 2.5) -> None:
        """One step of every rank, measured without a gap from the one before."""
        self.now += seconds + stall_seconds
        self._step += 1
        if stall_seconds:
            self._on_every_rank("checkpoint_begun", stall_seconds=stall_seconds)
        previous = dict(self._last_mark)
        for rank in self._ranks:
            moment = self.now + self._skew()
            self._write(
                "step_completed",
                moment,
                rank=rank,
                seconds=moment - previous[rank],
                stall_seconds=stall_seconds,
                loss=loss,
                sample_ids=[10 * self._step + rank],
            )
            self._last_mark[rank] = moment
        self.now = max(self._last_mark.values())
        self.kept.append((self._step, seconds))
        self._spent[Bin.STALL] += stall_seconds

    def train(self, *, to: int, save_at: Collection[int] = ()) -> None:
        """Steps of one second each, those that save with half a second of stall."""
        while self._step < to:
            self.step(stall_seconds=0.5 if self._step + 1 in save_at else 0.0)

    def commit(self, step: int, *, save_seconds: float = 2.0) -> None:
        self._on_every_rank("checkpoint_committed", step=step, save_seconds=save_seconds)

    def fault(self, kind: str, *, rank: int) -> None:
        name = f"{kind}-{self._attempt}"
        self._write("fault_injected", self.now, rank=rank, kind=kind, fault=name)

    def report(self, rank: int) -> None:
        self._write("attempt_failed", self.now, rank=rank, reason="RuntimeError: injected")

    def finish(self, digest: str = "d") -> None:
        self._on_every_rank("run_finished", digest=digest)

    def _on_every_rank(self, name: str, **fields: Any) -> dict[int, float]:
        moments = {rank: self.now + self._skew() for rank in self._ranks}
        for rank, moment in moments.items():
            self._write(name, moment, rank=rank, **fields)
        self.now = max(moments.values())
        return moments

    def _write(self, name: str, wall: float, **fields: Any) -> None:
        common = {"name": name, "wall": wall, "mono": wall, "attempt": self._attempt}
        self.events.append({**common, "step": self._step, **fields})


def launch(history: History, *, num_pods: int = 1) -> None:
    """Pods to process group: 2 s until the workers start, 3 s until the attempt, 1 s to join."""
    for pod in range(num_pods):
        history.start_pod(pod)
    history.wait(2.0, Bin.RENDEZVOUS)
    history.start_workers()
    history.wait(3.0, Bin.STARTUP)
    history.start_attempt()
    history.wait(1.0, Bin.RENDEZVOUS)
    history.join()


def three_faults() -> History:
    """24 steps of 1 s on two ranks: an exception in process, a SIGKILL in job, a hang in a pod."""
    history = History(num_ranks=2, num_pods=2)
    launch(history, num_pods=2)
    history.wait(1.0, Bin.STARTUP)
    history.restore(0)  # at 7 s
    history.train(to=10, save_at={5})
    history.commit(5)
    history.wait(0.5, Bin.LOST)
    history.fault("exception", rank=1)  # at 18 s
    history.wait(0.1, Bin.DETECT)
    history.report(1)
    history.wait(0.3, Bin.ABORT)
    history.report(0)
    history.wait(0.7, Bin.ABORT)
    history.start_attempt()
    history.wait(0.4, Bin.RENDEZVOUS)
    history.join()
    history.wait(0.5, Bin.RESTORE)
    history.restore(5)  # at 20 s
    history.train(to=11, save_at={10})
    history.commit(10)
    _sigkill_in_job(history)
    _hang_in_a_pod(history)
    history.train(to=24)
    history.wait(0.5, Bin.IDLE)
    history.finish()
    history.wait(0.5, Bin.IDLE)
    history.stop_pod(0, exit_code=0)
    history.stop_pod(1, exit_code=0)
    return history


def _sigkill_in_job(history: History) -> None:
    history.wait(0.25, Bin.LOST)
    history.fault("sigkill", rank=0)  # at 26.75 s
    history.wait(0.25, Bin.DETECT)
    history.report(1)
    history.wait(2.0, Bin.RENDEZVOUS)
    history.start_workers()
    history.wait(3.0, Bin.STARTUP)
    history.start_attempt()
    history.wait(1.0, Bin.RENDEZVOUS)
    history.join()
    history.wait(1.0, Bin.RESTORE)
    history.restore(10)  # at 34 s
    history.train(to=20, save_at={15, 20})
    history.commit(20)


def _hang_in_a_pod(history: History) -> None:
    history.wait(0.5, Bin.LOST)
    history.fault("hang", rank=1)  # at 45.5 s
    history.wait(6.0, Bin.DETECT)
    history.stop_pod(1)
    history.wait(1.0, Bin.ABORT)
    history.stop_pod(0)
    history.wait(2.0, Bin.IDLE)
    launch(history, num_pods=2)
    history.wait(1.0, Bin.RESTORE)
    history.restore(20)
