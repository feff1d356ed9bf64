"""What ``bench_goodput`` runs: its contenders, and the published fault plan in fewer steps.

The plan has five faults in 2,000 steps, 400 steps for each, which the post trained at about
0.4 s: 160 s. A run gets as many seconds of training for each of its faults, at its own step
time, so faults come no more often than there, and each at its own place of the plan.
Two faults are the plan's second and third, for they hold a hang and, as the whole plan
does, cost a run that saves every 500 steps over a third of its work; more are the plan's first.

Not covered: 16 ranks. Fewer suffer the plan's faults at ranks modulo their own number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any

from tests.trainer import bench_job
from tests.trainer.bench_job import Machine
from trainer.faults.plan import Fault, plan_faults
from trainer.faults.settings import FaultSettings
from trainer.settings import CheckpointMode, RecoveryLayer, TrainerSettings

PLAN_STEPS = 2000
PLAN_FAULTS = plan_faults(FaultSettings(count=5, seed=42), max_steps=PLAN_STEPS)
PLAN_STEPS_A_FAULT = PLAN_STEPS // len(PLAN_FAULTS)
PLAN_SECONDS_A_FAULT = 160.0
PLAN_SAVE_EVERY = 500

FEWEST_FAULTS = 2
UNFAULTED_STEPS = {"cuda": 80, "cpu": 400}
NEVER = 1_000_000


@dataclass(frozen=True, slots=True)
class Contender:
    layer: RecoveryLayer
    mode: CheckpointMode
    snapshots: bool


UNFAULTED = "unfaulted"
CONTENDERS: Mapping[str, Contender] = MappingProxyType(
    {
        UNFAULTED: Contender(RecoveryLayer.NONE, CheckpointMode.NONE, snapshots=False),
        "in_job": Contender(RecoveryLayer.IN_JOB, CheckpointMode.ASYNC, snapshots=True),
        "in_process": Contender(RecoveryLayer.IN_PROCESS, CheckpointMode.ASYNC, snapshots=True),
        "reference": Contender(RecoveryLayer.IN_JOB, CheckpointMode.SYNC, snapshots=False),
        "reference_in_process": Contender(
            RecoveryLayer.IN_PROCESS, CheckpointMode.SYNC, snapshots=False
        ),
    }
)
"""The recipe of the post is ``reference``, under either of its layers; it has what this
trainer adds to them too: hangs are noticed by the run's own pace."""

DEFAULT = (UNFAULTED, "in_process", "in_job", "reference")


@dataclass(frozen=True, slots=True)
class ScaledPlan:
    """Part of the published plan, in steps of a run."""

    max_steps: int
    save_every: int
    faults: tuple[Fault, ...]
    step_seconds: float

    @property
    def seconds_a_fault(self) -> float:
        """Of training, without what faults cost."""
        return self.max_steps * self.step_seconds / len(self.faults)

    @property
    def seconds_between(self) -> tuple[float, ...]:
        """From one fault to the next; before them, from the first step."""
        steps = [0, *(fault.step for fault in self.faults)]
        return tuple((later - earlier) * self.step_seconds for earlier, later in pairwise(steps))

    @property
    def steps_lost_to_saves(self) -> int:
        """What a run does again that goes on from its last save, which blocked."""
        return sum((fault.step - 1) % self.save_every for fault in self.faults)


def scaled_plan(
    step_seconds: float, num_faults: int, seconds_a_fault: float = PLAN_SECONDS_A_FAULT
) -> ScaledPlan:
    """The plan with ``num_faults`` of its faults, at a pace of ``step_seconds``.

    Raises:
        ValueError: no part of the plan has so many faults.
    """
    if not FEWEST_FAULTS <= num_faults <= len(PLAN_FAULTS):
        raise ValueError(f"faults must be {FEWEST_FAULTS} to {len(PLAN_FAULTS)}, got {num_faults}")
    scale = seconds_a_fault / (PLAN_STEPS_A_FAULT * step_seconds)
    first = 1 if num_faults == FEWEST_FAULTS else 0
    faults = tuple(
        Fault(fault.name, max(round(fault.step * scale), index + 2), fault.rank, fault.kind)
        for index, fault in enumerate(PLAN_FAULTS[first : first + num_faults])
    )
    return ScaledPlan(
        max_steps=round(num_faults * PLAN_STEPS_A_FAULT * scale),
        save_every=max(round(PLAN_SAVE_EVERY * scale), 1),
        faults=faults,
        step_seconds=step_seconds,
    )


def least_seconds(name: str, plan: ScaledPlan) -> float:
    """Below this a run cannot end: its steps, and those that it does again."""
    steps = plan.max_steps
    if not CONTENDERS[name].snapshots:
        steps += plan.steps_lost_to_saves
    return steps * plan.step_seconds


def settings_of(
    name: str, preset: str, machine: Machine, plan: ScaledPlan | None
) -> TrainerSettings:
    """``plan`` None: the run that tells the step time, which suffers and saves nothing."""
    contender, is_tiny = CONTENDERS[name], preset == "tiny"
    values: dict[str, Any] = {
        "run_directory": str(bench_job.RUN_DIRECTORY),
        "device": machine.device,
        "max_steps": plan.max_steps if plan else UNFAULTED_STEPS[machine.device],
        "model": {"preset": preset, "activation_checkpointing": not is_tiny},
        "data": {
            "sequence_length": 64 if is_tiny else 4096,
            "global_batch_size": (2 if is_tiny else 4) * machine.num_ranks,
        },
        "checkpoint": {
            "mode": contender.mode.value,
            "interval_steps": plan.save_every if plan else NEVER,
            "keep_latest": 1,
        },
        "snapshots": {"enabled": contender.snapshots},
        "recovery": {"layer": contender.layer.value},
        "faults": {
            "planned": [
                {"kind": fault.kind.value, "step": fault.step, "rank": fault.rank}
                for fault in (plan.faults if plan else ())
            ]
        },
        "timeouts": {"hang_seconds": 30, "startup_seconds": 240, "drain_seconds": 60},
    }
    return TrainerSettings.model_validate(values)
