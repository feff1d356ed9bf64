"""Runs the rendered Jobs of a deployment on this computer, as processes.

What is rehearsed is what would be applied: the documents come from the same
renderer as the manifests, and the container's own command runs with its own
environment. ``workloads/rehearsal/`` has the parts, each with its limits.
"""

import difflib
import json
import multiprocessing
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from deployment import Deployment, DeploymentError
from trainer import exit_codes
from workloads.rehearsal.display import Display, DisplayWatcher, choose_display
from workloads.rehearsal.interrupts import Interrupts
from workloads.rehearsal.job import Job, RehearsalError, read_job
from workloads.rehearsal.pod_plan import describe, local_path
from workloads.rehearsal.progress import EventTail
from workloads.rehearsal.report import RunResult, as_records, as_text
from workloads.rehearsal.run_folder import check_folder, new_folder
from workloads.rehearsal.run_job import Limits, run_job
from workloads.rehearsal.this_computer import check_this_computer, places_for

DEFAULT_LIMITS = Limits(backoff_factor=0.1, seconds=600.0)

Documents = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class RunToRehearse:
    name: str
    documents: Documents
    run_directory: PurePosixPath
    """The trainer's folder, as a pod sees it."""

    max_steps: int


def main_rehearse(
    deployment: Deployment,
    runs: Sequence[str],
    out: Path,
    *,
    as_json: bool = False,
    fresh: bool = False,
) -> int:
    """Rehearse ``runs`` one after the other; 0 if all completed, 1 if one did not, 2 if refused.

    ``fresh`` deletes what an earlier rehearsal of the same run left in ``out``; without it such a
    run is refused. Ctrl-C ends the run in progress, skips the others and gives 130.
    """
    names = list(dict.fromkeys(runs))
    with Interrupts() as interrupts:
        try:
            for name in names:
                _check_name(name, deployment)
                check_folder(out / name, fresh=fresh)
            check_this_computer(deployment)
            results = rehearse(
                _rendered(deployment, names),
                out,
                limits=DEFAULT_LIMITS,
                fresh=fresh,
                interrupts=interrupts,
            )
        except (RehearsalError, DeploymentError) as error:
            sys.stderr.write(f"{error}\n")
            return 2
        text = json.dumps(as_records(results), indent=2) + "\n" if as_json else as_text(results)
        sys.stdout.write(text)
        return exit_code_for(results, was_interrupted=interrupts.count > 0)


def rehearse(
    runs: Sequence[RunToRehearse],
    out: Path,
    *,
    limits: Limits,
    fresh: bool,
    interrupts: Interrupts,
) -> list[RunResult]:
    """Rehearse runs that are rendered already, and show their progress on stderr.

    Raises:
        RehearsalError: a run cannot be rehearsed, or not in ``out``.
    """
    jobs = [(run, read_job(run.documents)) for run in runs]
    out = out.resolve()
    rehearsal = _Rehearsal(out, limits, fresh, interrupts)
    for run, _ in jobs:
        check_folder(out / run.name, fresh=fresh)
    results: list[RunResult] = []
    with choose_display() as display:
        for run, job in jobs:
            if interrupts.count:
                break
            results.append(rehearsal.rehearse_one(run, job, display))
    return results


def exit_code_for(results: Sequence[RunResult], *, was_interrupted: bool) -> int:
    if was_interrupted:
        return exit_codes.INTERRUPTED
    return 0 if all(each.is_complete for each in results) else 1


class _Rehearsal:
    """What all runs of one command share; each difference from a cluster is told only once."""

    def __init__(self, out: Path, limits: Limits, fresh: bool, interrupts: Interrupts) -> None:
        self._out = out
        self._limits = limits
        self._fresh = fresh
        self._interrupts = interrupts
        self._said: set[str] = set()

    def rehearse_one(self, run: RunToRehearse, job: Job, display: Display) -> RunResult:
        folder = self._out / run.name
        # Short, and deleted with all that pods left in it.
        with tempfile.TemporaryDirectory(prefix="steadfast-") as scratch:
            places = places_for(job, run_folder=folder, scratch=Path(scratch))
            sentences = describe(job, places, backoff_factor=self._limits.backoff_factor)
            events = local_path(job, places, run.run_directory) / "events"
            watcher = DisplayWatcher(display, EventTail(events))
            with new_folder(folder, sentences, fresh=self._fresh):
                for sentence in sentences:
                    if sentence not in self._said:
                        display.say(sentence)
                self._said.update(sentences)
                display.begin(run.name, max_steps=run.max_steps)
                result = run_job(
                    job, places, self._limits, interrupts=self._interrupts, watcher=watcher
                )
                display.end(result.outcome)
        return RunResult(
            run=run.name,
            result=result,
            num_restarts=watcher.progress.num_restarts,
            logs=places.pods,
            events=events,
        )


def _check_name(name: str, deployment: Deployment) -> None:
    if name in deployment.runs:
        return
    nearest = difflib.get_close_matches(name, deployment.runs, n=1)
    hint = f"did you mean {nearest[0]!r}? " if nearest else ""
    raise RehearsalError(
        f"unknown run {name!r}; {hint}known: {', '.join(deployment.runs) or 'none'}"
    )


def _rendered(deployment: Deployment, names: Sequence[str]) -> list[RunToRehearse]:
    settings = {name: deployment.trainer_settings(name) for name in names}
    # In a process and a session of its own: cdk8s keeps a Node process that would stay for the
    # whole rehearsal, and that a Ctrl-C meant for us would kill under Python's feet.
    with ProcessPoolExecutor(
        max_workers=1,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=os.setsid,
    ) as pool:
        rendered = pool.submit(_render, deployment, names).result()
    return [
        RunToRehearse(
            name=name,
            documents=documents,
            run_directory=PurePosixPath(settings[name].run_directory),
            max_steps=settings[name].max_steps,
        )
        for name, documents in zip(names, rendered, strict=True)
    ]


def _render(deployment: Deployment, names: Sequence[str]) -> list[Documents]:
    from workloads.synth import render_run  # starts Node, see above

    return [render_run(deployment, name) for name in names]
