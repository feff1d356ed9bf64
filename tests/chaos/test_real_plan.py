"""One plan for real, through the same driver, and one that is stopped in the middle."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.chaos.driver import Driver
from tests.chaos.orders import Orders
from tests.chaos.plans import Plan, PlannedFault
from tests.chaos.records import Record, Records
from trainer.events import read_events
from trainer.faults.settings import FaultKind
from trainer.settings import CheckpointMode, RecoveryLayer
from workloads.rehearsal.interrupts import Interrupts

pytestmark = [pytest.mark.slow, pytest.mark.distributed, pytest.mark.timeout(300)]

PLAN = Plan(
    name="alone",
    layer=RecoveryLayer.IN_PROCESS,
    mode=CheckpointMode.ASYNC,
    num_nodes=2,
    ranks_per_node=1,
    exit_code=0,
    faults=(PlannedFault(FaultKind.EXCEPTION, step=41, rank=1),),
)


def test_an_exception_in_process_is_exact_and_leaves_nothing(tmp_path: Path) -> None:
    told: list[Record] = []
    with Interrupts() as interrupts:
        driver = Driver(tmp_path, interrupts, Orders(tmp_path / "orders"))
        driver.run([PLAN], Records(tmp_path / "plans", "x"), told.append)
    (record,) = told
    assert record["problems"] == []
    assert [each["kind"] for each in record["suffered"]] == ["exception"]
    assert not (tmp_path / "runs" / PLAN.name).exists()


STOPPED = """
import sys
from pathlib import Path
from tests.chaos.__main__ import main
sys.exit(main(["--replay", "1:0"], out=Path(sys.argv[1])))
"""


def test_what_is_stopped_ends_with_130_and_leaves_no_process(tmp_path: Path) -> None:
    process = subprocess.Popen([sys.executable, "-c", STOPPED, tmp_path], start_new_session=True)
    deadline = time.monotonic() + 120
    while not _steps(tmp_path) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)  # until a rank has trained: nothing tells us but its events
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(60) == 130
    assert _left(str(tmp_path).encode()) == []


def _steps(folder: Path) -> list[Path]:
    found = folder.rglob("events")
    return [e for e in found if any(x["name"] == "step_completed" for x in read_events(e.parent))]


def _left(mark: bytes) -> list[str]:
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and mark in (process / "cmdline").read_bytes():
                found.append(process.name)
        except OSError:
            continue
    return found
