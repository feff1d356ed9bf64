"""What a save costs training: our modes beside bare NVRx and PyTorch's own, in one run.

    make bench-gpu
    python -m tests.trainer.bench_saves --preset llama-1b --out out/bench --storage /mnt/fast
    python -m tests.trainer.bench_saves --preset tiny --only async torch_dcp_save

Each contender trains the same model in processes of its own, on every GPU of this computer
(the preset `tiny`: two processes on the CPU), and makes two to four saves. One that fails or
hangs is a row with the reason. Writes OUT/results.jsonl, and for
each contender OUT/NAME.jsonl (every save with every step's seconds) and OUT/NAME.log.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import platform
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.trainer.bench_table import Row, as_text, summary

NAMES = (
    "async",
    "torch_dcp_async",
    "nvrx_torch_async",
    "async_local_shards",
    "nvrx_dcp_async",
    "torch_dcp_save",
    "sync",
)
KILL_AFTER_SHARES = 1.5
"""A contender that takes this many times its share of the time left hangs."""

SHORTEST_LIMIT_SECONDS = 80.0
"""But not before this: what it takes to start, and to save the largest preset twice."""

SHARE_FOR_SAVES = 0.85
GRACE_SECONDS = 5.0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.trainer.bench_saves",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--preset", choices=("tiny", "llama-1b"), default="llama-1b")
    parser.add_argument("--out", type=Path, default=Path("out/bench"), help="results and logs")
    parser.add_argument("--storage", type=Path, help="where checkpoints are written (OUT/storage)")
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, metavar="CONTENDER")
    parser.add_argument("--seconds", type=float, default=520.0, help="for all contenders (520)")
    arguments = parser.parse_args(argv)
    num_ranks = 2 if arguments.preset == "tiny" else _num_gpus()
    if num_ranks == 0:
        parser.error("--preset llama-1b needs a GPU and none is here; try --preset tiny")
    arguments.out.mkdir(parents=True, exist_ok=True)
    storage = (arguments.storage or arguments.out / "storage").absolute()
    rows = []
    deadline = time.monotonic() + arguments.seconds
    with (arguments.out / "results.jsonl").open("w") as results:
        results.write(json.dumps(surroundings(arguments.preset, num_ranks)) + "\n")
        for index, name in enumerate(arguments.only):
            share = (deadline - time.monotonic()) / (len(arguments.only) - index)
            settings = settings_of(arguments.preset, num_ranks, storage / name)
            rows.append(run(name, settings, num_ranks, share=share, out=arguments.out))
            results.write(json.dumps(asdict(rows[-1])) + "\n")
            results.flush()
    print(as_text(rows), flush=True)
    return 1 if all(row.failure for row in rows) else 0


def surroundings(preset: str, num_ranks: int) -> dict[str, Any]:
    """What a reader of the figures must know of where they were measured."""
    packages = ("torch", "transformers", "nvidia-resiliency-ext")
    return {
        "preset": preset,
        "num_ranks": num_ranks,
        "python": platform.python_version(),
        "num_cores": os.cpu_count(),
        **{package: importlib.metadata.version(package) for package in packages},
    }


def settings_of(preset: str, num_ranks: int, folder: Path) -> dict[str, Any]:
    """Of the trainer; the contender's own mode and interval are set where it runs."""
    is_tiny = preset == "tiny"
    return {
        "run_directory": str(folder),
        "device": "cpu" if is_tiny else "cuda",
        "max_steps": 1_000_000,
        "model": {"preset": preset, "activation_checkpointing": not is_tiny},
        "data": {
            "sequence_length": 64 if is_tiny else 4096,
            "global_batch_size": (1 if is_tiny else 4) * num_ranks,
        },
        "checkpoint": {"interval_steps": 1_000_000},
        "timeouts": {"hang_seconds": 120, "startup_seconds": 300, "drain_seconds": 60},
    }


def run(name: str, settings: dict[str, Any], num_ranks: int, *, share: float, out: Path) -> Row:
    """Measure one contender in ``share`` seconds; whatever happens is in its row."""
    results = out.absolute() / f"{name}.jsonl"
    results.unlink(missing_ok=True)
    storage = Path(settings["run_directory"])
    shutil.rmtree(storage, ignore_errors=True)
    storage.mkdir(parents=True)
    order = {
        "contender": name,
        "settings": settings,
        "results": str(results),
        "no_save_after": time.monotonic() + SHARE_FOR_SAVES * share,
    }
    limit = max(KILL_AFTER_SHARES * share, SHORTEST_LIMIT_SECONDS)
    print(f"{name}: about {share:.0f} s ...", file=sys.stderr, flush=True)
    command = [sys.executable, "-m", "tests.trainer.bench_rank", json.dumps(order)]
    with (out / f"{name}.log").open("wb") as log:
        failure = run_ranks(command, num_ranks, log.fileno(), limit)
    shutil.rmtree(storage, ignore_errors=True)
    os.sync()  # the next one gets a disk with nothing left to write
    lines = results.read_text().splitlines() if results.exists() else []
    return summary(name, [json.loads(line) for line in lines], failure)


def run_ranks(command: Sequence[str], num_ranks: int, log: int, limit: float) -> str:
    """Run ``command`` as every rank; why that failed, or nothing. No process is left behind."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # NVRx passes one for each tensor
    ranks = [
        subprocess.Popen(
            command,
            env=_environment(rank, num_ranks, port),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=0,
        )
        for port in [_free_port()]
        for rank in range(num_ranks)
    ]
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    try:
        return _watch(ranks, limit)
    finally:
        for rank in ranks:  # with all that it started: NVRx's workers outlive their trainer
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()


def _watch(ranks: list[subprocess.Popen[bytes]], limit: float) -> str:
    deadline = time.monotonic() + limit
    while any(rank.poll() is None for rank in ranks):
        failed = [(n, rank.returncode) for n, rank in enumerate(ranks) if rank.returncode]
        if failed:
            deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
        if failed and all(rank.poll() is not None for rank in ranks):
            break
    for number, rank in enumerate(ranks):
        if rank.returncode:
            return f"rank {number} ended with exit code {rank.returncode}"
    hangs = any(rank.returncode is None for rank in ranks)
    return f"killed: not done in {limit:.0f} s" if hangs else ""


def _num_gpus() -> int:
    import torch

    return torch.cuda.device_count()


def _environment(rank: int, num_ranks: int, port: int) -> dict[str, str]:
    number = str(rank)
    return {
        **os.environ,
        **{"RANK": number, "LOCAL_RANK": number},
        **{"WORLD_SIZE": str(num_ranks), "LOCAL_WORLD_SIZE": str(num_ranks)},
        **{"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)},
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "4"),
    }


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


if __name__ == "__main__":
    sys.exit(main())
