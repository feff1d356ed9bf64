"""How long `python app.py` takes: medians for p5.yaml with 2 and with 64 nodes.

    make bench-synth
    python -m tests.infra.bench_synth --runs 9 --limit 3.0

Wall time is what somebody waits, on the processors that they have; processor time, of all
processes together, is what is left of it on a busy computer. CDK's own validation of
templates is off, as in all tests but one: it takes seconds alone.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Run:
    wall: float
    """Seconds from start to exit."""

    processor: float
    """Seconds of all processors, of Python and of the Node that CDK runs in."""


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Time python app.py for 2 and for 64 nodes.")
    parser.add_argument("--runs", type=int, default=5, help="how many are timed for each (5)")
    parser.add_argument("--limit", type=float, help="exit with 1 if a median takes more seconds")
    arguments = parser.parse_args(argv)
    if arguments.runs < 1:
        parser.error(f"--runs must be at least 1, got {arguments.runs}")
    medians = [measure(num_nodes, arguments.runs) for num_nodes in (2, 64)]
    return 1 if arguments.limit is not None and max(medians) > arguments.limit else 0


def measure(num_nodes: int, num_runs: int) -> float:
    """Print what the runs took; the median of wall time, in seconds."""
    with TemporaryDirectory() as folder:
        file = _p5_with(num_nodes, Path(folder))
        _run(file, Path(folder))  # fills the caches
        runs = [_run(file, Path(folder)) for _ in range(num_runs)]
    walls = [run.wall for run in runs]
    median = statistics.median(walls)
    print(
        f"{num_nodes:3d} nodes: {median:.2f} s wall ({min(walls):.2f} to {max(walls):.2f}), "
        f"{statistics.median(run.processor for run in runs):.2f} s processor; "
        f"medians of {num_runs} on {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}",
        flush=True,
    )
    return median


def _p5_with(num_nodes: int, folder: Path) -> Path:
    values = yaml.safe_load((ROOT / "deployments/p5.yaml").read_text())
    values["node_groups"]["p5"]["num_nodes"] = num_nodes
    file = folder / f"p5-{num_nodes}.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


def _run(file: Path, folder: Path) -> Run:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "CDK_VALIDATION": "false",
        "CDK_OUTDIR": str(folder / "out"),
        "CDK_CONTEXT_JSON": json.dumps({"deployment": str(file)}),
    }
    before, started = _processor_seconds(), time.monotonic()
    subprocess.run([sys.executable, "app.py"], cwd=ROOT, env=environment, check=True)
    return Run(time.monotonic() - started, _processor_seconds() - before)


def _processor_seconds() -> float:
    """Of all child processes that have ended, and of theirs."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
