"""One attempt: from joining the process group through every step to the last, or to a failure.

The same function runs whichever layer wraps it, and whichever attempt it is:
each joins, builds, restores the newest checkpoint and goes on from its step.
"""

import time
from contextlib import closing
from dataclasses import replace

from trainer.agreement import refuse_different_settings
from trainer.checkpoint.checkpointer import Checkpointer
from trainer.checkpoint.modes import writer_for
from trainer.data import Batches, open_corpus
from trainer.diagnosis.previous import announce_previous
from trainer.distributed import Job, Votes, process_group
from trainer.errors import Repeats, usable
from trainer.faults.injector import FaultInjector
from trainer.health.node import refuse_unhealthy_node
from trainer.model import build_model
from trainer.optimization import Optimization, adamw
from trainer.process import Process
from trainer.recovery.budget import claim_within_budget
from trainer.recovery.layer import Attempt
from trainer.safe_update import update_safely
from trainer.saving import Saving
from trainer.state import TrainState, seed_random_numbers
from trainer.taking_up import take_up
from trainer.weights import load_weights


def run_attempt(process: Process, attempt: Attempt) -> None:
    """Train from the newest checkpoint to the last step, or until the pod is told to stop."""
    began = {"wall": time.time(), "mono": time.monotonic()}
    settings, events = process.settings, process.events
    watchdog, patience = process.watchdog, process.timeouts.barrier_seconds
    watchdog.expect_progress(within=patience)
    refuse_unhealthy_node(settings, events)
    with process_group(settings.device, process.timeouts, attempt.store) as job:
        claimed = (0, "")
        if job.rank == 0:
            claimed = claim_within_budget(settings.run_directory, settings.recovery)
        events.attempt, over_budget = job.from_rank_zero(claimed)
        if over_budget:
            raise Repeats(over_budget)
        watchdog.begin_attempt(events.attempt, job.rank, attempt.report_hang)
        refuse_different_settings(job, settings)
        events.step = 0
        events.record("attempt_started", **began)
        events.record("process_group_ready")
        if job.rank == 0:
            announce_previous(settings.run_directory, events)
        # An end is quick; in a restart within the process this rank may wait for others.
        at_an_end = watchdog.at_an_end(patience if attempt.report_hang else None)
        with closing(_Run(process, attempt, job)) as run, at_an_end:
            first_step = run.restore() + 1
            with process.stop.heeded_after_each_step():
                run.to_the_end(first_step)


class _Run:
    """The parts of one attempt, and the steps that they make together."""

    def __init__(self, process: Process, attempt: Attempt, job: Job) -> None:
        settings = process.settings
        self._process, self._attempt, self._job = process, attempt, job
        self._settings, self._events = settings, process.events
        self._snapshots = process.snapshots
        self._snapshots.make_room(job.device)
        corpus = usable(lambda: open_corpus(settings.data))
        self._batches = usable(lambda: Batches(corpus, settings.data))
        self._model = usable(
            lambda: build_model(
                settings.model,
                vocabulary_size=corpus.vocabulary_size,
                mesh=job.mesh,
                device=job.device,
            )
        )
        optimizer = adamw(self._model, settings.optimizer)
        self._state = TrainState(self._model, optimizer)
        self._optimization = Optimization(
            settings, job=job, state=self._state, end_of_text=corpus.end_of_text
        )
        self._injector = FaultInjector(settings, job, events=self._events)
        self._checkpointer = Checkpointer(
            settings,
            job=job,
            state=self._state,
            writer=writer_for(settings, job, process.worker),
            events=self._events,
            report_progress=lambda: self._report_progress(self._saving.patience),
            drained_by=lambda: process.stop.drained_by,
        )
        self._saving = Saving(
            process,
            job=job,
            checkpointer=self._checkpointer,
            report_progress=self._report_progress,
        )

    def close(self) -> None:
        """However the attempt ends: it leaves nothing running in this process."""
        self._snapshots.close()
        self._checkpointer.close()

    def to_the_end(self, first: int) -> None:
        """Every step from ``first``; stops early, having saved, once any rank is told to."""
        for step in range(first, self._settings.max_steps + 1):
            agreed = self._step(step)
            if step == first:
                self._job.expect_progress(self._process.timeouts)
            if agreed.stop:
                # Also for ranks whose own pod may stay: success would mean that the run is done.
                self._process.stop.request()
                if step < self._settings.max_steps:
                    self._saving.save_and_wait(step)
                    return
        self._report_progress(self._settings.timeouts.hang_seconds)
        if not self._saving.save_the_end():
            return
        self._events.record("run_finished", digest=self._state.digest())
        self._process.stop.is_finished = True
        self._checkpointer.wait_for_deletions()
        # No rank leaves before all have come this far: one that then died alone could not
        # be replaced, for those that had left would not come back.
        self._job.everyone(True)

    def restore(self) -> int:
        """The last step that need not be done again; 0 where nothing was saved yet."""
        started = time.monotonic()
        step, source = take_up(
            self._settings,
            self._job,
            self._state,
            self._snapshots,
            self._checkpointer,
            attempt=self._events.attempt,
        )
        if step == 0 and self._settings.model.weights:
            weights = self._settings.model.weights
            usable(lambda: load_weights(self._model, weights))
        self._state.step = self._events.step = step
        self._events.record("restored", source=source, seconds=time.monotonic() - started)
        self._saving.get_ready()
        return step

    def _step(self, step: int) -> Votes:
        started = time.monotonic()
        seed_random_numbers(self._settings.model.seed, step=step, rank=self._job.rank)
        job = self._job
        ids, tokens = usable(lambda: self._batches.batch(step, job.rank, job.world_size))
        self._snapshots.start()
        loss = self._optimization.backward(tokens)
        self._injector.fire_due(step)
        share = update_safely(step, loss, self._optimization, self._snapshots)
        agreed = self._agree(share, seconds=time.monotonic() - started)
        self._snapshots.agreed(agreed)
        stall = self._saving.look_after(step, agreed)
        self._events.step = step
        seconds = time.monotonic() - started
        if not self._snapshots.is_pinning:  # steps beside it say nothing of the run's pace
            self._process.watchdog.count_step(seconds - stall)
        self._events.record(
            "step_completed",
            seconds=seconds,
            stall_seconds=stall,
            loss=agreed.loss,
            sample_ids=list(ids),
        )
        return agreed

    def _agree(self, loss: float, *, seconds: float) -> Votes:
        saving, copying = self._checkpointer.votes(), self._snapshots.votes()
        return self._job.agree(
            replace(
                copying,
                loss=loss,
                stop=float(self._process.stop.requested),
                writing=saving.writing,
                failed=saving.failed,
                seconds=seconds,
            )
        )

    def _report_progress(self, within: float | None = None) -> None:
        """Progress was made; ``within`` where what comes next is no ordinary step."""
        self._process.watchdog.expect_progress(within)
        self._attempt.report_progress()
