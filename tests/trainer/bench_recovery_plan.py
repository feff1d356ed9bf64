"""What ``bench_recovery`` is to measure: which faults under which layer, at which steps, how."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.trainer import bench_job
from tests.trainer.bench_job import Machine
from tests.trainer.bench_recovery_table import Cell
from trainer.faults.settings import FaultKind
from trainer.settings import RecoveryLayer, TrainerSettings

KINDS: dict[str, tuple[str, ...]] = {
    # What a layer cannot catch falls outward; that comes last, for it starts the pod anew.
    "in_process": ("exception", "hang", "cuda_error"),
    "in_job": ("exception", "sigkill", "hang", "cuda_error"),
    "layered": ("exception", "hang", "sigkill", "cuda_error"),
}
SAVED_STEP = 10
"""The checkpoint from which every run starts."""

STEPS_BETWEEN = 30
"""A fault comes so many steps after what was restored: only then does the run know its pace."""

NO_SAVES = 1_000_000


@dataclass(frozen=True, slots=True)
class Order:
    """What of the command line every run needs."""

    preset: str
    machine: Machine
    save_every: int
    storage: Path
    out: Path
    deadline: float


def wanted(only: Sequence[str], device: str) -> dict[str, tuple[str, ...]]:
    """The kinds to measure under each layer; ``only`` names layers, or ``layer:kind``."""
    chosen: dict[str, tuple[str, ...]] = {}
    for name in only or KINDS:
        layer, _, kind = name.partition(":")
        more = (FaultKind(kind).value,) if kind else KINDS[RecoveryLayer(layer).value]
        chosen[layer] = chosen.get(layer, ()) + more
    on_gpu_only = {FaultKind.CUDA_ERROR.value} if device == "cpu" else set()
    return {
        layer: tuple(kind for kind in kinds if kind not in on_gpu_only)
        for layer, kinds in chosen.items()
    }


def missing(
    layer: str, kinds: Sequence[str], cells: Sequence[Cell], order: Order
) -> tuple[str, ...]:
    """``kinds`` without those that an earlier call has measured, as often as it has."""
    done = Counter(cell.key for cell in cells if not cell.failure)
    left = []
    for kind in kinds:
        key = key_of(layer, kind, order)
        if done[key]:
            done[key] -= 1
        else:
            left.append(kind)
    return tuple(left)


def key_of(layer: str, kind: str, order: Order) -> tuple[str, str, int, str]:
    """By which a cell of this kind is known, as ``Cell.key``."""
    return layer, kind, order.machine.num_nodes, order.preset


def fault_steps(number: int, save_every: int) -> list[int]:
    """Steps of ``number`` faults; what is restored may be the last step before a fault."""
    first = SAVED_STEP + STEPS_BETWEEN
    gap = STEPS_BETWEEN + save_every
    return [first + gap * index for index in range(number)]


def settings_of(order: Order, layer: str, kinds: Sequence[str], interval: int) -> TrainerSettings:
    is_tiny, num_ranks = order.preset == "tiny", order.machine.num_ranks
    steps = fault_steps(len(kinds), order.save_every)
    planned = [
        {"kind": kind, "step": step, "rank": num_ranks - 1}
        for kind, step in zip(kinds, steps, strict=True)
    ]
    values: dict[str, Any] = {
        "run_directory": str(bench_job.RUN_DIRECTORY),
        "device": order.machine.device,
        "max_steps": NO_SAVES - 1,
        "model": {"preset": order.preset, "activation_checkpointing": not is_tiny},
        "data": {
            "sequence_length": 64 if is_tiny else 2048,
            "global_batch_size": 2 * num_ranks,
        },
        # The run that makes the checkpoint of all others must not delete it again.
        "checkpoint": {"interval_steps": interval, "keep_latest": 3 if kinds else 1000},
        "recovery": {"layer": layer},
        "faults": {"planned": planned},
        "timeouts": {"hang_seconds": 30, "startup_seconds": 240, "drain_seconds": 60},
    }
    return TrainerSettings.model_validate(values)
