"""One real run on this computer: the pods of a training Job, on its GPUs, until enough was seen.

Each pod executes the container's own command with the container's own variables, and finds
its files where a rehearsal puts them. A pod that fails is replaced as the Job's controller
would, after a tenth of its backoff.

Not covered: nodes of their own. Two pods of one computer share its disk and memory, and each
gets its part of the GPUs by ``CUDA_VISIBLE_DEVICES``.
"""

import importlib.metadata
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from infra.hardware import CATALOG
from trainer import exit_codes
from trainer.settings import TrainerSettings
from trainer.timeouts import derive_timeouts
from workloads.environment import container_environment
from workloads.launcher import RENDEZVOUS_PORT, SETTINGS_PATH, container_command
from workloads.rehearsal.job import Claim, ConfigFiles, EmptyDir, FieldRef, Job, Mount
from workloads.rehearsal.job_controller import (
    ExitCodeRule,
    FailureAction,
    JobPolicy,
    JobState,
    after_exit,
)
from workloads.rehearsal.pod_plan import Places, plan_pod
from workloads.rehearsal.pod_process import PodProcess, wait_readable
from workloads.rehearsal.run_job import last_lines
from workloads.rehearsal.this_computer import places_for

RUN_DIRECTORY = PurePosixPath("/fsx/run")
"""Of every run, as its pods see it: a checkpoint of one is then no stranger to another."""

NAME = "bench"
BACKOFF_FACTOR = 0.1
TICK_SECONDS = 0.25

_FINAL = (
    exit_codes.USAGE,
    exit_codes.REPEATED,
    exit_codes.CANNOT_WRITE,
    exit_codes.CONFIG,
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What of this computer a run gets."""

    device: str
    num_nodes: int
    workers_per_node: int
    launcher_flags: tuple[str, ...] = ()
    """For ft_launcher, beyond our own: what this computer's hardware makes necessary."""

    @property
    def num_ranks(self) -> int:
        return self.num_nodes * self.workers_per_node


def run_directory(folder: Path) -> Path:
    """The trainer's folder of the run in ``folder``."""
    return folder / "volumes" / "fsx" / RUN_DIRECTORY.name


def run(
    settings: TrainerSettings,
    machine: Machine,
    folder: Path,
    *,
    enough: Callable[[], bool],
    limit_seconds: float,
) -> str:
    """Train in ``folder`` until ``enough``; why it ended before that, or nothing.

    ``enough`` is asked several times a second. When this returns or raises, none of the run's
    processes is left.
    """
    job = job_of(settings, machine)
    with tempfile.TemporaryDirectory(prefix="steadfast-") as scratch:
        places = places_for(job, run_folder=folder, scratch=Path(scratch))
        places = replace(places, base_environment=_base_environment(places, machine))
        pods = _Pods(job, places, machine)
        try:
            return pods.watch(enough, deadline=time.monotonic() + limit_seconds)
        finally:
            pods.kill()


def keep_records(folder: Path, kept: Path) -> None:
    """Copy what a run wrote to ``kept``, its checkpoints excepted."""
    shutil.rmtree(kept, ignore_errors=True)
    ours = shutil.ignore_patterns("checkpoints")
    if run_directory(folder).exists():
        shutil.copytree(run_directory(folder), kept, ignore=ours)
    kept.mkdir(parents=True, exist_ok=True)
    for log in (folder / "pods").glob("*.log"):
        shutil.copy(log, kept)


def job_of(settings: TrainerSettings, machine: Machine) -> Job:
    """The Job as a chart would render it, for the devices of this computer."""
    timeouts = derive_timeouts(settings.timeouts, device=settings.device)
    hardware = CATALOG["p5.48xlarge" if settings.device == "cuda" else "m7i.2xlarge"]
    command = container_command(
        settings,
        nvrx_version=importlib.metadata.version("nvidia-resiliency-ext"),
        num_nodes=machine.num_nodes,
        workers_per_node=machine.workers_per_node,
        rendezvous_host=f"{NAME}-0.{NAME}",
        rendezvous_id=NAME,
        timeouts=timeouts,
    )
    variables = container_environment(settings, hardware=hardware, timeouts=timeouts)
    settings_path = PurePosixPath(SETTINGS_PATH)
    files = ((settings_path.name, settings.model_dump_json()),)
    return Job(
        name=NAME,
        namespace="default",
        service=NAME,
        ports=(RENDEZVOUS_PORT,),
        policy=JobPolicy(
            completions=machine.num_nodes,
            # A fault each, at most, and one that nobody planned.
            backoff_limit_per_index=len(settings.faults.planned) + 1,
            max_failed_indexes=0,
            rules=(ExitCodeRule(FailureAction.FAIL_JOB, frozenset(_FINAL)),),
        ),
        grace_seconds=0.0,
        command=with_flags(command, machine.launcher_flags),
        working_directory=None,
        environment=(("POD_IP", FieldRef("status.podIP")), *variables.items()),
        missing_secrets=(),
        mounts=(
            Mount("/dev/shm", "shm", EmptyDir(in_memory=True)),
            Mount("/tmp", "tmp", EmptyDir(in_memory=False)),
            Mount(str(RUN_DIRECTORY.parent), "fsx", Claim("fsx")),
            Mount(str(settings_path.parent), "settings", ConfigFiles(NAME, files)),
        ),
        resources={},
    )


def with_flags(command: tuple[str, ...], flags: tuple[str, ...]) -> tuple[str, ...]:
    """``command`` with ``flags`` for its ft_launcher; without one, as it is."""
    if "ft_launcher" not in command:
        return command
    after = command.index("ft_launcher") + 1
    return (*command[:after], *flags, *command[after:])


def devices_of(index: int, machine: Machine) -> dict[str, str]:
    """The variables that give the pod of ``index`` its part of this computer's GPUs."""
    if machine.device != "cuda":
        return {}
    first = index * machine.workers_per_node
    numbers = range(first, first + machine.workers_per_node)
    return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, numbers))}


def _base_environment(places: Places, machine: Machine) -> dict[str, str]:
    if machine.device != "cuda":
        return dict(places.base_environment)
    # The caller's too: it says where the driver is, and what this host's GPUs must not be asked.
    # NVLink multicast survives no abort, and a host may forbid it altogether.
    return {**os.environ, **places.base_environment, "NCCL_NVLS_ENABLE": "0"}


class _Pods:
    def __init__(self, job: Job, places: Places, machine: Machine) -> None:
        self._job, self._places, self._machine = job, places, machine
        self._state = JobState.at_start(job.policy)
        self._running: dict[int, PodProcess] = {}
        self._due = dict.fromkeys(range(machine.num_nodes), 0.0)
        self._num_started: Counter[int] = Counter()

    def watch(self, enough: Callable[[], bool], *, deadline: float) -> str:
        reason = ""
        while self._state.verdict is None:
            if enough():
                return ""
            if time.monotonic() > deadline:
                return "the time was up"
            self._start_due()
            by_descriptor = {pod.descriptor: pod for pod in self._running.values()}
            for descriptor in wait_readable(by_descriptor, TICK_SECONDS):
                reason = self._ended(by_descriptor[descriptor])
        return "" if enough() else reason

    def kill(self) -> None:
        with ExitStack() as at_last:  # every pod, also if one cannot be killed
            for pod in self._running.values():
                at_last.callback(pod.finish)
            self._running = {}

    def _start_due(self) -> None:
        for index in [each for each, due in self._due.items() if due <= time.monotonic()]:
            del self._due[index]
            plan = plan_pod(
                self._job, self._places, index=index, replacement=self._num_started[index]
            )
            plan = replace(
                plan, environment={**plan.environment, **devices_of(index, self._machine)}
            )
            self._running[index] = PodProcess(plan)
            self._num_started[index] += 1

    def _ended(self, pod: PodProcess) -> str:
        """Decide as the controller does; what the pod said at last."""
        index = pod.plan.index
        del self._running[index]
        exit_code = pod.finish()
        self._state, backoff = after_exit(
            self._job.policy, self._state, index=index, exit_code=exit_code
        )
        if backoff is not None:
            self._due[index] = time.monotonic() + BACKOFF_FACTOR * backoff
        said = " / ".join(last_lines(pod.plan.log)[-2:])
        return f"pod {pod.plan.name} ended with exit code {exit_code}: {said}"
