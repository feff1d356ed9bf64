"""Runs the rendered Jobs of a deployment on this computer, as processes.

What is rehearsed is what would be applied: the documents come from the same
renderer as the manifests, and the container's own command runs with its own
environment. ``workloads/rehearsal/`` has the parts, each with its limits.
"""

import difflib
import json
import os
import random
import socket
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from deployment import Deployment, DeploymentError
from workloads.rehearsal.display import Display, DisplayWatcher, choose_display
from workloads.rehearsal.interrupts import Interrupts
from workloads.rehearsal.job import Job, RehearsalError, read_job
from workloads.rehearsal.pod_plan import Places, describe, local_path
from workloads.rehearsal.progress import EventTail
from workloads.rehearsal.report import RunResult, as_records, as_text
from workloads.rehearsal.run_folder import check_folder, new_folder
from workloads.rehearsal.run_job import Limits, run_job
from workloads.synth import render_run

DEFAULT_LIMITS = Limits(backoff_factor=0.1, seconds=600.0)
REPOSITORY = Path(__file__).resolve().parent.parent
INTERRUPTED_EXIT_CODE = 130

# Below what the kernel hands out by itself, so that no stranger takes a port in between.
PORTS = range(20_000, 32_000)
PORT_TRIES = 100


@dataclass(frozen=True, slots=True)
class RunToRehearse:
    name: str
    documents: Sequence[Mapping[str, Any]]
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
    run is refused.
    """
    try:
        chosen = [_to_rehearse(deployment, name) for name in dict.fromkeys(runs)]
        return rehearse(chosen, out, limits=DEFAULT_LIMITS, as_json=as_json, fresh=fresh)
    except (RehearsalError, DeploymentError) as error:
        sys.stderr.write(f"{error}\n")
        return 2


def _to_rehearse(deployment: Deployment, name: str) -> RunToRehearse:
    if name not in deployment.runs:
        nearest = difflib.get_close_matches(name, deployment.runs, n=1)
        hint = f"did you mean {nearest[0]!r}? " if nearest else ""
        raise RehearsalError(
            f"unknown run {name!r}; {hint}known: {', '.join(deployment.runs) or 'none'}"
        )
    settings = deployment.trainer_settings(name)
    return RunToRehearse(
        name=name,
        documents=render_run(deployment, name),
        run_directory=PurePosixPath(settings.run_directory),
        max_steps=settings.max_steps,
    )


def rehearse(
    runs: Sequence[RunToRehearse], out: Path, *, limits: Limits, as_json: bool, fresh: bool
) -> int:
    """As ``main_rehearse``, for runs that are rendered already.

    Raises:
        RehearsalError: a run cannot be rehearsed, or not in ``out``.
    """
    jobs = [(run, read_job(run.documents)) for run in runs]
    out = out.resolve()
    for run, _ in jobs:
        check_folder(out / run.name, fresh=fresh)
    results: list[RunResult] = []
    said: set[str] = set()
    with Interrupts() as interrupts, choose_display() as display:
        for run, job in jobs:
            if interrupts.count:
                break
            with ExitStack() as stack:
                scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="steadfast-"))
                places = _places(job, out / run.name, Path(scratch))
                sentences = describe(job, places, backoff_factor=limits.backoff_factor)
                stack.enter_context(new_folder(places.run_folder, sentences, fresh=fresh))
                for sentence in sentences:
                    if sentence not in said:
                        display.say(sentence)
                said.update(sentences)
                results.append(
                    _rehearse_one(
                        run, job, places, limits=limits, interrupts=interrupts, display=display
                    )
                )
    if as_json:
        sys.stdout.write(json.dumps(as_records(results), indent=2) + "\n")
    else:
        sys.stdout.write(as_text(results))
    if interrupts.count:
        return INTERRUPTED_EXIT_CODE
    return 0 if all(each.is_complete for each in results) else 1


def _rehearse_one(
    run: RunToRehearse,
    job: Job,
    places: Places,
    *,
    limits: Limits,
    interrupts: Interrupts,
    display: Display,
) -> RunResult:
    events = local_path(job, places, run.run_directory) / "events"
    watcher = DisplayWatcher(display, EventTail(events))
    display.begin(run.name, max_steps=run.max_steps)
    result = run_job(job, places, limits, interrupts=interrupts, watcher=watcher)
    display.end(result.outcome)
    return RunResult(
        run=run.name,
        result=result,
        num_restarts=watcher.progress.num_restarts,
        logs=places.pods,
        events=events,
    )


def _places(job: Job, run_folder: Path, scratch: Path) -> Places:
    return Places(
        run_folder=run_folder,
        scratch=scratch,
        ports=free_ports(job.ports),
        python=sys.executable,
        base_environment=_base_environment(os.environ),
        working_directory=REPOSITORY,
    )


def _base_environment(own: Mapping[str, str]) -> dict[str, str]:
    """What the image would set, made of as little of the caller's environment as possible."""
    # Not resolved: the interpreter of a virtual environment is a link to another folder.
    launchers = str(Path(sys.executable).parent)
    return {
        "PATH": os.pathsep.join([launchers, own.get("PATH", os.defpath)]),
        "HOME": own.get("HOME", "/"),
        "LANG": own.get("LANG", "C.UTF-8"),
        "PYTHONPATH": str(REPOSITORY),
        # NVRx 0.4.1 depends on the package that torch warns about.
        "PYTHONWARNINGS": "ignore:The pynvml package is deprecated",
    }


def free_ports(wanted: Sequence[int]) -> dict[int, int]:
    """A free port for each one wanted, at the same distances: programs count up from the first.

    Raises:
        RehearsalError: none was found.
    """
    if not wanted:
        return {}
    first, span = min(wanted), max(wanted) - min(wanted)
    for _ in range(PORT_TRIES):
        start = random.choice(range(PORTS.start, PORTS.stop - span))
        ports = {port: start + port - first for port in wanted}
        if all(map(_is_free, ports.values())):
            return ports
    raise RehearsalError(f"no free port between {PORTS.start} and {PORTS.stop} for {first}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
