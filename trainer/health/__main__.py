"""Is this pod's node fit to train? ``python -m trainer.health [--run-directory DIR] [--json]``.

Prints every check with its verdict and reason, of every GPU that this process can see.
Exit 0 if none failed, 1 if one did, 2 for a wrong command line. Counters are only shown
as they grow between the attempts of a run, so not here.
"""

import argparse
import json
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from trainer.bounded import bounded
from trainer.health import nvml, storage
from trainer.health.finding import Finding, failures, skipped
from trainer.health.node import (
    DRIVER_SECONDS,
    fabric_finding,
    gpu_findings,
    no_gpu_findings,
    storage_finding,
)
from trainer.node import node_name


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    warnings.simplefilter("ignore", FutureWarning)  # pynvml's word on its own name
    findings = [*_findings(arguments.run_directory)]
    if arguments.json:
        content = {"node": node_name(), "findings": [asdict(each) for each in findings]}
        print(json.dumps(content, indent=2))
    else:
        print(f"node {node_name()}")
        for each in findings:
            print(f"{each.verdict:<8} {each.check:<8} {each.seconds:7.3f} s  {each.reason}")
    return 1 if failures(findings) else 0


def _findings(run_directory: Path | None) -> Iterator[Finding]:
    num_gpus = _num_gpus()
    for gpu in range(num_gpus):
        yield from gpu_findings(gpu, {}, {})
    if not num_gpus:
        yield from no_gpu_findings("no GPU can be seen here")
    yield fabric_finding({}, {})
    if run_directory is None:
        yield skipped(storage.CHECK, "no folder was given; name one with --run-directory")
    else:
        yield storage_finding(run_directory)


def _num_gpus() -> int:
    """As the driver or its devices show them: one that CUDA cannot use must not go unseen."""
    try:
        seen = bounded(_ask_driver, seconds=DRIVER_SECONDS)
    except (nvml.NoDriver, TimeoutError):
        seen = 0
    seen = seen or len([*Path("/dev").glob("nvidia[0-9]*")])
    return nvml.num_visible(seen, os.environ.get("CUDA_VISIBLE_DEVICES")) if seen else 0


def _ask_driver() -> int:
    with nvml.driver() as driver:
        try:
            return int(driver.nvmlDeviceGetCount())
        except driver.NVMLError:
            return 0


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.health",
        description="Say whether this node is fit to train, and why not.",
        epilog="exit code: 0 nothing failed; 1 a check failed; 2 a wrong command line",
    )
    parser.add_argument(
        "--run-directory", type=Path, metavar="DIR", help="folder that must take files"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
