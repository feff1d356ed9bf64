"""How much sooner a killed rank trains again where the pod has a standby process.

``python -m tests.trainer.bench_standby --rounds 3``: pods of two ranks under ft_launcher, on
CPU, one with a standby and one without in turn; one rank is killed in mid-run. Not covered:
GPUs, where imports take three times as long and CUDA must start as well.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.trainer.pods import run_pod
from trainer.events import Event

_FAULTS = {"count": 1, "kinds": ["sigkill"], "weights": [1], "after_step": 50}
_STEPS = 100
_MARKS = ("process_started", "attempt_started", "restored", "step_completed")


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trainer.bench_standby")
    parser.add_argument("--rounds", type=int, default=3, help="pods of each sort")
    rounds = parser.parse_args(argv).rounds
    found: dict[bool, list[list[float]]] = {False: [], True: []}
    for _ in range(rounds):
        for standby, samples in found.items():
            samples.append(_seconds(standby=standby))
    head = ["pod to first step", *(f"SIGKILL to {mark}" for mark in _MARKS)]
    sys.stdout.write(f"| seconds | {' | '.join(head)} |\n|---|{5 * '---|'}\n")
    for standby, samples in found.items():
        cells = [
            f"{median(s):.2f} ({min(s):.2f} to {max(s):.2f})" for s in zip(*samples, strict=True)
        ]
        sys.stdout.write(f"| {'forked' if standby else 'plain'} | {' | '.join(cells)} |\n")
    return 0


def _seconds(*, standby: bool) -> list[float]:
    """Until the last rank has made its first step, and has come to each of the marks again."""
    with tempfile.TemporaryDirectory() as folder:
        events = run_pod(
            Path(folder),
            max_steps=_STEPS,
            standby=standby,
            data={"sequence_length": 128, "global_batch_size": 8},
            faults=_FAULTS,
        )
    (fault,) = (event for event in events if event["name"] == "fault_injected")
    after = [event for event in events if event["wall"] > fault["wall"]]
    starts = [event for event in after if event["name"] == "process_started"]
    assert [event["forked"] for event in starts] == [standby, standby]
    (pod,) = (event for event in events if event["name"] == "pod_started")
    first_step = _last_first(events, "step_completed") - pod["wall"]
    return [first_step, *(_last_first(after, name) - fault["wall"] for name in _MARKS)]


def _last_first(events: Sequence[Event], name: str) -> float:
    """When the last rank had its first event of this name."""
    walls: dict[int, float] = {}
    for event in events:
        if event["name"] == name:
            walls.setdefault(event["rank"], event["wall"])
    assert len(walls) == 2
    return max(walls.values())


if __name__ == "__main__":
    sys.exit(main())
