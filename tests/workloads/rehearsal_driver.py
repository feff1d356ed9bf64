"""Rehearses one hand-written Job in a process of its own, for tests that interrupt it.

``python -m tests.workloads.rehearsal_driver OUT SCRIPT``: two pods run SCRIPT.
"""

import sys
from pathlib import Path, PurePosixPath

from tests.workloads.rehearsal_jobs import documents
from workloads.rehearsal.interrupts import Interrupts
from workloads.rehearsal.run_job import Limits
from workloads.rehearse import RunToRehearse, exit_code_for, rehearse

if __name__ == "__main__":
    out, script = sys.argv[1:]
    run = RunToRehearse(
        name="demo",
        documents=documents("python", "-c", script, completions=2, grace_seconds=60),
        run_directory=PurePosixPath("/fsx/runs/demo"),
        max_steps=3,
    )
    limits = Limits(backoff_factor=0.001, seconds=60.0)
    with Interrupts() as interrupts:
        results = rehearse([run], Path(out), limits=limits, fresh=False, interrupts=interrupts)
    sys.exit(exit_code_for(results, was_interrupted=interrupts.count > 0))
