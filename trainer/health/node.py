"""Is this node fit to join? Asked by every rank before each attempt, ahead of the process group.

Each rank looks at its own GPU and at what the node's ranks share (fabric, storage), so
that all of them leave a node whose shared part fails. A rank that leaves says so in its
events and names the node; the first rank of each node says it of every attempt.

Not covered: what breaks during an attempt; keeping the scheduler from the node, which takes
its name and ``kubectl cordon``, or node repair.
"""

import logging
import os
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from trainer.bounded import bounded
from trainer.events import EventLog
from trainer.health import cuda, fabric, nvlink, nvml, storage
from trainer.health.counters import Counters, keep_reading, last_reading, reading_path
from trainer.health.finding import (
    Finding,
    Verdict,
    failed,
    failures,
    refuse_unhealthy,
    skipped,
)
from trainer.node import node_name
from trainer.settings import TrainerSettings

logger = logging.getLogger(__name__)

DRIVER_SECONDS = 10.0
SYSFS_SECONDS = 5.0


def refuse_unhealthy_node(settings: TrainerSettings, events: EventLog) -> None:
    """Return within a bounded time if this rank may join.

    Raises:
        NodeUnhealthy: this pod must leave its node.
        ContextBroken: this process must end.
    """
    local_rank, node = int(os.environ.get("LOCAL_RANK", "0")), node_name()
    findings = examine(settings.device, local_rank, settings.run_directory)
    for finding in findings:
        level = logging.ERROR if finding.verdict is Verdict.FAILED else logging.DEBUG
        logger.log(level, "%s %s: %s", finding.check, finding.verdict, finding.reason)
    if local_rank == 0 or failures(findings):
        told = [asdict(finding) for finding in findings]
        events.record("health_checked", node=node, findings=told)
    refuse_unhealthy(findings, node=node)


def examine(device: str, local_rank: int, run_directory: Path) -> list[Finding]:
    """Every check, in the order of a report; none of them raises, or blocks for long."""
    path = reading_path(local_rank)
    before = last_reading(path)
    now: dict[str, int] = {}
    if device == "cuda":
        findings = gpu_findings(local_rank, before, now)
    else:
        findings = no_gpu_findings("the run does not train on GPUs")
    findings += [fabric_finding(before, now), storage_finding(run_directory)]
    keep_reading(path, now)
    return findings


def gpu_findings(local_rank: int, before: Counters, now: dict[str, int]) -> list[Finding]:
    """Of one GPU; what its links have counted is added to ``now``."""
    looks = {
        nvml.CHECK: lambda driver: nvml.check_gpu(driver, local_rank),
        nvlink.CHECK: lambda driver: nvlink.check_gpu(driver, local_rank, before, now),
    }
    return [
        _timed(lambda: cuda.check_cuda(local_rank)),
        *(_timed(partial(_ask_driver, check, look)) for check, look in looks.items()),
    ]


def no_gpu_findings(why: str) -> list[Finding]:
    return [skipped(check, why) for check in (cuda.CHECK, nvml.CHECK, nvlink.CHECK)]


def fabric_finding(before: Counters, now: dict[str, int], *, sysfs: Path = fabric.SYSFS) -> Finding:
    def look() -> Finding:
        now.update(counters := fabric.read_counters(sysfs))
        return fabric.check_fabric(fabric.read_ports(sysfs), counters, before)

    return _timed(partial(_in_time, fabric.CHECK, SYSFS_SECONDS, look))


def storage_finding(run_directory: Path) -> Finding:
    return _timed(lambda: storage.check_storage(run_directory))


def _ask_driver(check: str, look: Callable[[Any], Finding]) -> Finding:
    def ask() -> Finding:
        try:
            with nvml.driver() as driver:
                return look(driver)
        except nvml.NoDriver as error:
            return skipped(check, str(error))

    return _in_time(check, DRIVER_SECONDS, ask)


def _in_time(check: str, seconds: float, look: Callable[[], Finding]) -> Finding:
    try:
        return bounded(look, seconds=seconds)
    except TimeoutError as error:
        return failed(check, str(error.strerror))


def _timed(look: Callable[[], Finding]) -> Finding:
    began = time.monotonic()
    finding = look()
    return replace(finding, seconds=round(time.monotonic() - began, 4))
