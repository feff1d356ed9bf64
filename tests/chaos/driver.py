"""Runs plans, some side by side, each in a process of its own, and records what they came to.

Can be stopped at any time: SIGINT or SIGTERM is passed on, and a second one ten
seconds later cuts the pods' grace short. A plan that was stopped has no record
and is run again. Folders of plans that went well are deleted.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.one_plan import LIMITS
from tests.chaos.orders import Orders
from tests.chaos.plans import Plan
from tests.chaos.records import REPOSITORY, Record, Records, code_digest
from tests.chaos.runs import TRAINER, digest_of, unfaulted
from workloads.rehearsal.interrupts import Interrupts

GRACE_SECONDS = 10.0
LIMIT_SECONDS = LIMITS.seconds + 30.0
"""The rehearsal has its own limit; this one is for a rehearsal that hangs."""

POLL_SECONDS = 0.2


class Stopped(Exception):
    """Asked to stop; nothing is left running."""


@dataclass(slots=True)
class _Running:
    plan: Plan
    process: subprocess.Popen[bytes]
    folder: Path
    began: float
    signalled: float | None = None


class Driver:
    """``out`` holds records, references and the folders of plans that failed."""

    def __init__(
        self,
        out: Path,
        interrupts: Interrupts,
        orders: Orders,
        *,
        keep: bool = False,
        at_once: int = 2,
    ) -> None:
        self.out = out.resolve()
        self.code = code_digest()
        self._interrupts = interrupts
        self._orders = orders
        self._at_once = at_once
        self._keep = keep

    def run(self, plans: Iterable[Plan], records: Records, tell: Callable[[Record], None]) -> None:
        """Run and record each plan, and call ``tell`` with its record.

        Raises:
            Stopped: a signal came.
        """
        waiting = iter(plans)
        running: list[_Running] = []
        try:
            while self._fill(running, waiting):
                time.sleep(POLL_SECONDS)
                if self._interrupts.count:
                    raise Stopped
                for each in [each for each in running if self._has_ended(each)]:
                    running.remove(each)
                    record = self._record(each)
                    records.append(record)
                    tell(record)
        finally:
            stop_all(each.process for each in running)

    def reference(self, world_size: int) -> dict[str, Any]:
        """The result of the unfaulted run, made where this code has not made it yet."""
        name = f"{self.code}-{world_size}-{digest_of(TRAINER)}.json"
        path = self.out / "references" / name
        if not path.exists():
            each = self._start(unfaulted(world_size), None)
            try:
                while not self._has_ended(each):
                    time.sleep(POLL_SECONDS)
                    if self._interrupts.count:
                        raise Stopped
            finally:
                stop_all([each.process])
            verdict = self._verdict(each)
            if verdict["problems"]:
                raise RuntimeError(f"no reference: {verdict['problems']}; see {each.folder}")
            path.parent.mkdir(parents=True, exist_ok=True)
            draft = path.with_suffix(".part")
            draft.write_text(json.dumps(verdict["result"]))
            draft.replace(path)
            shutil.rmtree(each.folder)
        result: dict[str, Any] = json.loads(path.read_text())
        return result

    def _fill(self, running: list[_Running], waiting: Iterator[Plan]) -> bool:
        """Start what there is room for; False once nothing runs and nothing waits."""
        while len(running) < self._at_once and (plan := next(waiting, None)):
            running.append(self._start(plan, self.reference(plan.world_size)))
        return bool(running)

    def _start(self, plan: Plan, reference: dict[str, Any] | None) -> _Running:
        folder = self.out / "runs" / plan.name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        order = folder / "plan.json"
        order.write_text(json.dumps(self._orders.of(plan) | {"reference": reference}))
        with (folder / "rehearsal.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.chaos.one_plan", order, folder],
                cwd=REPOSITORY,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C reaches it through us alone, or it would count as two requests.
                start_new_session=True,
            )
        return _Running(plan, process, folder, time.monotonic())

    def _has_ended(self, each: _Running) -> bool:
        if each.process.poll() is not None:
            return True
        if each.signalled is None and time.monotonic() - each.began > LIMIT_SECONDS:
            each.signalled = time.monotonic()
            stop_all([each.process])
        return each.process.poll() is not None

    def _record(self, each: _Running) -> Record:
        verdict = self._verdict(each)
        if not verdict["problems"] and not self._keep:
            shutil.rmtree(each.folder)
        return {
            "name": each.plan.name,
            "plan": str(each.plan),
            "layer": each.plan.layer.value,
            "mode": each.plan.mode.value,
            "memory": each.plan.memory,
            "kinds": [fault.kind.value for fault in each.plan.faults],
            **verdict,
        }

    def _verdict(self, each: _Running) -> dict[str, Any]:
        path = each.folder / "verdict.json"
        if path.exists():
            verdict: dict[str, Any] = json.loads(path.read_text())
            return verdict
        reason = f"no verdict, exit code {each.process.returncode}; see {each.folder}"
        seconds = round(time.monotonic() - each.began, 1)
        return {"outcome": "none", "problems": [reason], "suffered": [], "seconds": seconds}


def stop_all(processes: Iterable["subprocess.Popen[bytes]"]) -> None:
    """SIGTERM, which they pass on; once more, which ends the pods' grace; then no mercy."""
    left = [process for process in processes if process.poll() is None]
    for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        for process in left:
            if process.poll() is None:
                os.kill(process.pid, number)
        deadline = time.monotonic() + GRACE_SECONDS
        while left and time.monotonic() < deadline:
            left = [process for process in left if process.poll() is None]
            time.sleep(POLL_SECONDS)
