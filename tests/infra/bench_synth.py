"""How long `python app.py` takes: medians of five for p5.yaml with 2 and with 64 nodes.

    make bench-synth

CDK's own validation of templates is off, as in all tests but one: it takes seconds alone.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

ROOT = Path(__file__).resolve().parents[2]
NUM_RUNS = 5


def main() -> None:
    for num_nodes in (2, 64):
        with TemporaryDirectory() as folder:
            file = _p5_with(num_nodes, Path(folder))
            _seconds(file, Path(folder))  # fills the caches
            runs = [_seconds(file, Path(folder)) for _ in range(NUM_RUNS)]
        print(
            f"{num_nodes:3d} nodes: {statistics.median(runs):.2f} s "
            f"(median of {NUM_RUNS}, {min(runs):.2f} to {max(runs):.2f})"
        )


def _p5_with(num_nodes: int, folder: Path) -> Path:
    values = yaml.safe_load((ROOT / "deployments/p5.yaml").read_text())
    values["node_groups"]["p5"]["num_nodes"] = num_nodes
    file = folder / f"p5-{num_nodes}.yaml"
    file.write_text(yaml.safe_dump(values))
    return file


def _seconds(file: Path, folder: Path) -> float:
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "CDK_VALIDATION": "false",
        "CDK_OUTDIR": str(folder / "out"),
        "CDK_CONTEXT_JSON": json.dumps({"deployment": str(file)}),
    }
    started = time.monotonic()
    subprocess.run([sys.executable, "app.py"], cwd=ROOT, env=environment, check=True)
    return time.monotonic() - started


if __name__ == "__main__":
    main()
