"""A plan as a deployment file and as the documents that ``workloads synth`` would write.

One thing is changed in the rendered Job: a CPU node has one worker, and a plan
may want two to four, so the launcher's ``--nproc-per-node`` is set. Timeouts are
the shortest that hold on a computer of two cores on which two plans run.
"""

import copy
import hashlib
import importlib.metadata
import json
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import Any

import yaml

from deployment import Deployment, DeploymentError
from tests.chaos.plans import INTERVAL_STEPS, MAX_STEPS, SHAPES, Plan
from trainer.settings import CheckpointMode, RecoveryLayer
from workloads.rehearse import RunToRehearse

REPOSITORY = Path(__file__).parents[2]

TRAINER: dict[str, Any] = {
    "max_steps": MAX_STEPS,
    "model": {"preset": "tiny"},
    # Twelve sequences divide among 2, 3 and 4 ranks; short ones make a step of a few ms.
    "data": {"sequence_length": 32, "global_batch_size": 12},
    "optimizer": {"learning_rate": 1.0e-3, "warmup_steps": 10},
    "timeouts": {
        "hang_seconds": 6,
        "shortest_hang_seconds": 3,
        "startup_seconds": 90,
        "drain_seconds": 10,
    },
}
NO_CHANGES: Mapping[str, Any] = MappingProxyType({})
SLOW = {"faults.slow_seconds": 0.1, "faults.slow_steps": 10}


def installed_nvrx() -> str:
    return importlib.metadata.version("nvidia-resiliency-ext")


def deployment_for(
    plan: Plan, changes: Mapping[str, Any] = NO_CHANGES, *, nvrx: str | None = None
) -> Deployment:
    """``deployments/rehearsal.yaml`` with the plan as its only run; ``changes`` win.

    ``nvrx`` is the version that the Job is for; None for the one installed here.

    Raises:
        DeploymentError: the settings refuse the plan.
    """
    text = (REPOSITORY / "deployments/rehearsal.yaml").read_text()
    values: dict[str, Any] = yaml.safe_load(text)
    values["image"]["nvrx_version"] = nvrx or installed_nvrx()
    values["trainer"] = copy.deepcopy(TRAINER)
    values["trainer"]["checkpoint"] = {"interval_steps": INTERVAL_STEPS}
    change = {
        "recovery.layer": plan.layer.value,
        "checkpoint.mode": plan.mode.value,
        **(SLOW | {"faults.exit_code": plan.exit_code} if plan.faults else {}),
        "faults.planned": [
            {"kind": each.kind.value, "step": each.step, "rank": each.rank} for each in plan.faults
        ],
        "snapshots.enabled": plan.memory,
        "snapshots.interval_steps": 1,
        "snapshots.peer_interval_seconds": 0.5,
        **changes,
    }
    values["runs"] = {plan.name: {"num_nodes": plan.num_nodes, "change": change}}
    try:
        return Deployment.model_validate(values)
    except ValueError as error:
        raise DeploymentError(str(error)) from error


def render(
    plan: Plan, changes: Mapping[str, Any] = NO_CHANGES, *, nvrx: str | None = None
) -> RunToRehearse:
    """The run of ``plan``, ready to rehearse.

    Raises:
        DeploymentError: the settings refuse the plan.
    """
    # Imported late: it starts Node, which a computer that is given rendered Jobs need not have.
    from workloads.synth import render_run

    deployment = deployment_for(plan, changes, nvrx=nvrx)
    settings = deployment.trainer_settings(plan.name)
    documents = copy.deepcopy(render_run(deployment, plan.name))
    for document in documents:
        if document["kind"] == "Job":
            (container,) = document["spec"]["template"]["spec"]["containers"]
            container["command"] = with_workers(container["command"], plan.ranks_per_node)
    return RunToRehearse(
        name=plan.name,
        documents=documents,
        run_directory=PurePosixPath(settings.run_directory),
        max_steps=settings.max_steps,
    )


def digest_of(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def with_workers(command: list[str], ranks_per_node: int) -> list[str]:
    """The launcher's command line, told to start so many workers in each pod."""
    option = "--nproc-per-node="
    if sum(argument.startswith(option) for argument in command) != 1:
        raise ValueError(f"{option} must stand in the command once: {command}")
    return [
        f"{option}{ranks_per_node}" if argument.startswith(option) else argument
        for argument in command
    ]


def unfaulted(world_size: int) -> Plan:
    """The run that others of so many ranks must equal: it suffers nothing and saves nothing."""
    return Plan(
        name=f"unfaulted-{world_size}",
        layer=RecoveryLayer.NONE,
        mode=CheckpointMode.NONE,
        num_nodes=1,
        ranks_per_node=world_size,
        exit_code=0,
        faults=(),
    )


def unfaulted_plans() -> tuple[Plan, ...]:
    """Those that all drawn plans are compared with."""
    return tuple(unfaulted(world_size) for world_size in sorted({n * m for n, m in SHAPES}))
