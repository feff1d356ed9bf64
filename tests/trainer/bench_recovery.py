"""Seconds to recover from a fault, by layer and kind of fault, split as the ledger splits them.

    make bench-gpu
    python -m tests.trainer.bench_recovery --out out/bench-recovery --limit-seconds 520
    python -m tests.trainer.bench_recovery --device cpu --preset tiny --only in_job:sigkill

One run for each layer suffers its faults one after the other, each once the run has recovered
from the one before and made steps enough to know its pace. All runs start from one
checkpoint that is made first, so none spends its time on saving. Writes
OUT/recovery.jsonl, a line for each fault as soon as the run has recovered from it; from that
the table OUT/recovery.md and OUT/recovery.json; and OUT/events.tar.gz, what the runs wrote.
Called again with the same OUT it measures what is missing.

Not covered: a save in flight when the fault comes, unless ``--save-every`` asks for saves.
"""

import argparse
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tests.trainer import bench_job
from tests.trainer.bench_job import Machine
from tests.trainer.bench_recovery_plan import (
    NO_SAVES,
    SAVED_STEP,
    Order,
    key_of,
    missing,
    settings_of,
    wanted,
)
from tests.trainer.bench_recovery_table import Cell, as_markdown, as_records, recovered
from trainer.checkpoint.layout import committed
from trainer.events import read_events

SHORTEST_RUN_SECONDS = 30.0
"""With less time left no run is begun: it would end before its first fault."""

LOOK_SECONDS = 0.5


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    device, num_nodes = arguments.device, arguments.nodes
    num_ranks = max(2, num_nodes) if device == "cpu" else num_gpus()
    if num_ranks == 0 or num_ranks % num_nodes:
        sys.stderr.write(f"{num_ranks} GPUs on {num_nodes} nodes; try --device cpu --preset tiny\n")
        return 2
    machine = Machine(
        device, num_nodes, num_ranks // num_nodes, tuple(shlex.split(arguments.launcher_flags))
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    order = Order(
        preset=arguments.preset,
        machine=machine,
        save_every=arguments.save_every,
        storage=(arguments.storage or arguments.out / "storage").absolute(),
        out=arguments.out.absolute(),
        deadline=time.monotonic() + arguments.limit_seconds,
    )
    results = arguments.out / "recovery.jsonl"
    for layer, once in wanted(arguments.only, device).items():
        kinds = missing(layer, once * arguments.repeats, cells_in(results), order)
        if kinds and order.deadline - time.monotonic() > SHORTEST_RUN_SECONDS:
            forget_failures(results, [key_of(layer, kind, order) for kind in kinds])
            measure(layer, kinds, order, results)
            _write_reports(order.out, results)
    _write_reports(order.out, results)
    cells = cells_in(results)
    print(as_markdown(cells), end="", flush=True)
    return 0 if cells and not any(cell.failure for cell in cells) else 1


def measure(layer: str, kinds: Sequence[str], order: Order, results: Path) -> None:
    """One run with ``kinds`` one after the other; each cell is written once it is known."""
    folder = order.storage / f"{layer}-{order.machine.num_nodes}"
    shutil.rmtree(folder, ignore_errors=True)
    cell = Cell(layer, "", order.machine.num_nodes, order.machine.num_ranks, order.preset)
    if failure := start_from_checkpoint(folder, order):
        append(results, *(replace(cell, kind=kind, failure=failure) for kind in kinds))
        return
    settings = settings_of(order, layer, kinds, order.save_every or NO_SAVES)
    _say(f"{layer}: {', '.join(kinds)}")
    watch = _Watch(bench_job.run_directory(folder), len(kinds), cell, results)
    failure = bench_job.run(
        settings,
        order.machine,
        folder,
        enough=watch.looks_done,
        limit_seconds=order.deadline - time.monotonic(),
    )
    for kind in kinds[watch.num_written :]:
        append(results, replace(cell, kind=kind, failure=failure))
    name = f"{order.preset}-{folder.name}-{time.strftime('%H%M%S')}"
    bench_job.keep_records(folder, order.out / "runs" / name)
    shutil.rmtree(folder, ignore_errors=True)


class _Watch:
    """Follows a run by its events, and writes each recovery that it finds."""

    def __init__(self, run_directory: Path, number: int, cell: Cell, results: Path) -> None:
        self._directory, self._number = run_directory, number
        self._cell, self._results = cell, results
        self._next_look = 0.0
        self.num_written = 0

    def looks_done(self) -> bool:
        if time.monotonic() < self._next_look:
            return False
        for kind, seconds, recovery in recovered(read_events(self._directory))[self.num_written :]:
            cell = replace(
                self._cell,
                kind=kind,
                seconds=seconds,
                restored_step=recovery.restored_step,
                steps_lost=recovery.steps_lost,
                gpu_mib=gpu_memory_mib(),
            )
            append(self._results, cell)
            self.num_written += 1
            total = recovery.time_to_recover_seconds or math.nan
            _say(f"{cell.layer}: {kind} recovered in {total:.1f} s")
        self._next_look = time.monotonic() + LOOK_SECONDS
        return self.num_written >= self._number


def start_from_checkpoint(folder: Path, order: Order) -> str:
    """Give ``folder`` the checkpoint that all runs share, made if need be; or say why not."""
    ranks = order.machine.num_ranks
    shared = order.storage / f"prepared-{order.preset}-{order.machine.device}-{ranks}"
    made = _checkpoint_of(shared)
    if made is None:
        _say(f"making the checkpoint of step {SAVED_STEP}")
        shutil.rmtree(shared, ignore_errors=True)
        failure = bench_job.run(
            settings_of(order, "none", (), SAVED_STEP),
            order.machine,
            shared,
            enough=lambda: _checkpoint_of(shared) is not None,
            limit_seconds=order.deadline - time.monotonic(),
        )
        bench_job.keep_records(shared, order.out / "runs" / shared.name)
        made = _checkpoint_of(shared)
        if made is None:
            return f"no checkpoint to start from: {failure}"
    # Links: it is read alone, and a run that deletes it deletes its own name of it.
    target = bench_job.run_directory(folder) / "checkpoints" / made.name
    shutil.copytree(made, target, copy_function=os.link)
    return ""


def _checkpoint_of(shared: Path) -> Path | None:
    """That of ``SAVED_STEP``; a fast run may have made others since."""
    found = committed(bench_job.run_directory(shared) / "checkpoints")
    return next((each.path for each in found if each.record.step == SAVED_STEP), None)


def cells_in(results: Path) -> list[Cell]:
    lines = results.read_text().splitlines() if results.exists() else []
    return [Cell.from_record(json.loads(line)) for line in lines]


def forget_failures(results: Path, keys: Collection[tuple[str, str, int, str]]) -> None:
    """Drop what could not be measured and is now tried again."""
    cells = cells_in(results)
    results.unlink(missing_ok=True)
    append(results, *(cell for cell in cells if not cell.failure or cell.key not in keys))


def append(results: Path, *cells: Cell) -> None:
    """A line each, in one write: whoever is killed next has lost nothing."""
    with results.open("ab", buffering=0) as file:
        file.write(b"".join(json.dumps(asdict(cell)).encode() + b"\n" for cell in cells))


def _write_reports(out: Path, results: Path) -> None:
    cells = cells_in(results)
    (out / "recovery.md").write_text(as_markdown(cells))
    (out / "recovery.json").write_text(json.dumps(as_records(cells), indent=2) + "\n")
    if (out / "runs").is_dir():
        with tarfile.open(out / "events.tar.gz", "w:gz") as archive:
            archive.add(out / "runs", "runs")


def num_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def gpu_memory_mib() -> tuple[int, ...]:
    """In use on each GPU, as the driver says; nothing where there is none."""
    if shutil.which("nvidia-smi") is None:
        return ()
    query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    said = subprocess.run(query, capture_output=True, text=True, check=False, timeout=30)
    return tuple(map(int, said.stdout.split())) if said.returncode == 0 else ()


def _say(sentence: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {sentence}", file=sys.stderr, flush=True)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.trainer.bench_recovery",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--preset", choices=("tiny", "llama-1b"), default="llama-1b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--nodes", type=int, choices=(1, 2), default=1, help="launchers (1)")
    parser.add_argument("--only", nargs="+", default=(), metavar="LAYER[:KIND]")
    parser.add_argument("--repeats", type=int, default=1, help="faults of each kind (1)")
    parser.add_argument("--save-every", type=int, default=0, metavar="STEPS", help="(never)")
    parser.add_argument("--launcher-flags", default="", help="more options for ft_launcher")
    folder = Path("out/bench-recovery")
    parser.add_argument("--out", type=Path, default=folder, help="results and events")
    parser.add_argument("--storage", type=Path, help="where checkpoints are kept (OUT/storage)")
    parser.add_argument("--limit-seconds", type=float, default=520.0, help="for all runs (520)")
    return parser.parse_args(argv)


if __name__ == "__main__":
    # As Ctrl-C: not without killing the pods, which are in sessions of their own.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
