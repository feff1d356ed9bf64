"""Rehearses one plan and judges it: ``python -m tests.chaos.one_plan PLAN.json FOLDER``.

A process of its own, so that two plans can run side by side: signals belong to
the main thread of a process. It becomes the parent of whatever its pods orphan, so what
is left of them is seen, and where the kernel lets it, it has a /dev/shm of its
own, so what is left there is this plan's. Its ports are free ones; the pods'
addresses are shared, and launchers tell runs apart by port.

Writes FOLDER/verdict.json; exit 130 if stopped. Not covered: a process that
leaves its session and its parents and dies before the end.
"""

import ctypes
import json
import os
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.chaos.judge import Result, Verdict, as_json, judge, refused_by_settings, result_of
from tests.chaos.orders import run_from
from tests.chaos.plans import Plan, PlannedFault
from trainer.events import read_events
from trainer.faults.settings import FaultKind
from trainer.processes import adopt_orphans
from trainer.settings import CheckpointMode, RecoveryLayer
from workloads.rehearsal.interrupts import Interrupts
from workloads.rehearsal.report import RunResult
from workloads.rehearsal.run_job import Limits
from workloads.rehearse import rehearse

LIMITS = Limits(backoff_factor=0.02, seconds=300.0)
SHARED_MEMORY = Path("/dev/shm")

CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 0x40000


def main(plan_file: Path, folder: Path) -> int:
    values = json.loads(plan_file.read_text())
    plan = plan_from(values["plan"])
    libc = ctypes.CDLL(None, use_errno=True)
    adopt_orphans()
    has_own_memory = own_shared_memory(libc)
    began = time.monotonic()
    reference = values["reference"]
    if "refused" in values:
        _write(folder, as_json(refused_by_settings(plan, values["refused"])), began)
        return 0
    with Interrupts() as interrupts:
        run = run_from(values["run"])
        (done,) = rehearse([run], folder, limits=LIMITS, fresh=True, interrupts=interrupts)
        if interrupts.count:
            return 130
    verdict = _verdict(plan, done, reference)
    verdict["problems"] += what_is_left(has_own_memory=has_own_memory)
    _write(folder, verdict, began)
    return 0


def _verdict(plan: Plan, done: RunResult, reference: dict[str, Any] | None) -> dict[str, Any]:
    events = read_events(done.events.parent)
    if reference is None:  # this one is to be the reference
        problems = [] if done.is_complete else [f"the unfaulted run {done.result.outcome}"]
        return {"problems": problems, "result": asdict(result_of(events)) if events else None}
    steps = {name: (list(ids), loss) for name, (ids, loss) in reference["steps"].items()}
    failed = done.result.failed_pod
    verdict: Verdict = judge(
        plan,
        events,
        Result(reference["final_step"], reference["digests"], steps),
        job_outcome=done.result.outcome,
        exit_code=failed.exit_code if failed else None,
    )
    return as_json(verdict)


def plan_from(values: dict[str, Any]) -> Plan:
    """The plan that ``dataclasses.asdict`` and JSON made text of."""
    faults = tuple(
        PlannedFault(FaultKind(each["kind"]), each["step"], each["rank"])
        for each in values["faults"]
    )
    layer, mode = RecoveryLayer(values["layer"]), CheckpointMode(values["mode"])
    return Plan(**{**values, "layer": layer, "mode": mode, "faults": faults})


def own_shared_memory(libc: Any) -> bool:
    """Give this process and its children an empty /dev/shm; False where that is not allowed."""
    if libc.unshare(CLONE_NEWNS) or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None):
        return False
    done: int = libc.mount(b"tmpfs", str(SHARED_MEMORY).encode(), b"tmpfs", 0, b"size=2g")
    return done == 0


def what_is_left(*, has_own_memory: bool) -> list[str]:
    """What the pods left behind: living descendants, and names in shared memory."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    found = [f"left running: {_command(pid)}" for pid in _children()]
    if has_own_memory:
        found += [f"left in {SHARED_MEMORY}: {path.name}" for path in SHARED_MEMORY.iterdir()]
    return found


def _children() -> list[int]:
    tasks = Path("/proc/self/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def _command(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        text = "gone"
    return f"{pid} {text[:120]}"


def _write(folder: Path, verdict: dict[str, Any], began: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    seconds = round(time.monotonic() - began, 1)
    text = json.dumps({**verdict, "seconds": seconds})
    draft = folder / "verdict.json.part"
    draft.write_text(text)
    draft.replace(folder / "verdict.json")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]).resolve()))
