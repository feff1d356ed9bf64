"""Goodput under the published fault plan: this trainer's layers beside the post's own recipe.

    python -m tests.trainer.bench_goodput --out out/bench-goodput
    python -m tests.trainer.bench_goodput --device cpu --preset tiny --seconds-a-fault 15

First an unfaulted run that saves nothing tells the step time. Then each contender trains
through the same faults, as far apart as in the plan (``bench_goodput_plan`` says which part of
it), in processes of its own. Writes OUT/NAME.json for each as soon as its run has ended;
from those the table OUT/goodput.md; and OUT/events.tar.gz, what the runs wrote. Called again
with the same OUT it runs what has not finished. Exit code: 0 all that was asked for has
finished; 1 not; 2 wrong usage; 130 interrupted.

Not covered: nodes of their own, and storage slower than this computer's disk.
"""

import argparse
import json
import math
import shlex
import shutil
import signal
import sys
import tarfile
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from tests.trainer import bench_job
from tests.trainer.bench_goodput_plan import (
    CONTENDERS,
    DEFAULT,
    PLAN_SECONDS_A_FAULT,
    UNFAULTED,
    ScaledPlan,
    least_seconds,
    scaled_plan,
    settings_of,
)
from tests.trainer.bench_goodput_table import Result, as_markdown, measured
from tests.trainer.bench_job import Machine
from tests.trainer.bench_recovery import num_gpus
from trainer import exit_codes
from trainer.events import read_events

LOOK_SECONDS = 10.0
SLACK_SECONDS = 45.0
"""A run is not begun with less time left than its steps take and this: starts and recoveries."""


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    num_ranks = 2 if arguments.device == "cpu" else num_gpus()
    if num_ranks == 0:
        sys.stderr.write("no GPU is here; try --device cpu --preset tiny\n")
        return 2
    try:
        scaled_plan(1.0, arguments.faults, arguments.seconds_a_fault)
    except ValueError as error:
        sys.stderr.write(f"tests.trainer.bench_goodput: {error}\n")
        return 2
    bench = Bench(arguments, Machine(arguments.device, 1, num_ranks, _flags(arguments)))
    code = 0
    try:
        bench.run(arguments.only)
    except KeyboardInterrupt:
        code = exit_codes.INTERRUPTED
    results = bench.results()
    _write_reports(bench.out, results)
    if arguments.json:
        print(json.dumps([asdict(each) for each in results], indent=2))
    else:
        print(as_markdown(results), end="", flush=True)
    done = {each.name for each in results if each.finished}
    return code or (0 if done >= {UNFAULTED, *arguments.only} else 1)


class Bench:
    def __init__(self, arguments: argparse.Namespace, machine: Machine) -> None:
        self.out: Path = arguments.out.absolute()
        self._machine = machine
        self._storage = (arguments.storage or arguments.out / "storage").absolute()
        self._preset: str = arguments.preset
        self._num_faults: int = arguments.faults
        self._seconds_a_fault: float = arguments.seconds_a_fault
        self._deadline = time.monotonic() + arguments.limit_seconds
        self.out.mkdir(parents=True, exist_ok=True)

    def run(self, names: Sequence[str]) -> None:
        """What of ``names`` has not finished and fits into the time left."""
        for name in dict.fromkeys((UNFAULTED, *names)):
            done = {each.name: each for each in self.results() if each.finished}
            if name in done:
                continue
            if name != UNFAULTED and UNFAULTED not in done:
                _say(f"{name}: not begun, for the step time is not known")
                continue
            plan = None if name == UNFAULTED else self._plan(done[UNFAULTED])
            needed = SLACK_SECONDS + (least_seconds(name, plan) if plan else 0.0)
            left = self._deadline - time.monotonic()
            if left < needed:
                _say(f"{name}: not begun, for it needs {needed:.0f} s and {left:.0f} s are left")
                continue
            self._measure(name, plan)

    def results(self) -> list[Result]:
        """Those of the plan that is asked for, in the order of the contenders."""
        found = []
        for path in (self.out / f"{name}.json" for name in CONTENDERS):
            result = Result.from_record(json.loads(path.read_text())) if path.exists() else None
            if result and self._is_of(result):
                found.append(result)
        return found

    def _is_of(self, result: Result) -> bool:
        blank = self._blank(result.name)
        asked = (blank.preset, blank.num_ranks, blank.num_faults, blank.seconds_a_fault)
        return asked == (
            *(result.preset, result.num_ranks, result.num_faults, result.seconds_a_fault),
        )

    def _blank(self, name: str) -> Result:
        faulted = name != UNFAULTED
        return Result(
            name,
            self._preset,
            self._machine.num_ranks,
            num_faults=self._num_faults if faulted else 0,
            seconds_a_fault=self._seconds_a_fault if faulted else 0.0,
        )

    def _plan(self, unfaulted: Result) -> ScaledPlan:
        return scaled_plan(unfaulted.step_seconds, self._num_faults, self._seconds_a_fault)

    def _measure(self, name: str, plan: ScaledPlan | None) -> None:
        folder = self._storage / name
        shutil.rmtree(folder, ignore_errors=True)
        settings = settings_of(name, self._preset, self._machine, plan)
        _say(f"{name}: {settings.max_steps} steps" + (f", {_described(plan)}" if plan else ""))
        progress = _Progress(name, bench_job.run_directory(folder), settings.max_steps)
        began = time.monotonic()
        failure = bench_job.run(
            settings,
            self._machine,
            folder,
            enough=progress.look,
            limit_seconds=self._deadline - time.monotonic(),
        )
        seconds = time.monotonic() - began
        blank = replace(
            self._blank(name),
            failure=failure,
            harness_seconds=seconds,
            max_steps=settings.max_steps,
            save_every=settings.checkpoint.interval_steps,
        )
        result = measured(blank, read_events(bench_job.run_directory(folder)), plan)
        if result.finished:
            result = replace(result, failure="")
        bench_job.keep_records(folder, self.out / "runs" / name)
        shutil.rmtree(folder, ignore_errors=True)
        draft = self.out / f"{name}.json.part"
        draft.write_text(json.dumps(asdict(result), indent=2) + "\n")
        draft.replace(self.out / f"{name}.json")
        ended = "finished" if result.finished else f"not finished ({failure})"
        _say(f"{name}: {ended} after {seconds:.0f} s, goodput {100 * result.goodput:.1f}%")


def _described(plan: ScaledPlan) -> str:
    faults = ", ".join(f"{fault.kind.value}@{fault.step}" for fault in plan.faults)
    between = ", ".join(f"{seconds:.0f}" for seconds in plan.seconds_between)
    note = (
        "as in the plan"
        if plan.seconds_a_fault >= 0.99 * PLAN_SECONDS_A_FAULT
        else (f"NOT comparable: the plan has {PLAN_SECONDS_A_FAULT:.0f}")
    )
    return (
        f"{faults} ({between} s of training before each), one in {plan.seconds_a_fault:.0f} s "
        f"({note}), a save every {plan.save_every}"
    )


class _Progress:
    """Says now and then how far a run is; never that it is enough, for it is to end by itself."""

    def __init__(self, name: str, run_directory: Path, max_steps: int) -> None:
        self._name, self._directory, self._max_steps = name, run_directory, max_steps
        self._next_look = time.monotonic() + LOOK_SECONDS

    def look(self) -> bool:
        if time.monotonic() >= self._next_look:
            self._next_look = time.monotonic() + LOOK_SECONDS
            events = read_events(self._directory)
            steps = [int(each["step"]) for each in events if each["name"] == "step_completed"]
            attempt = max((int(each.get("attempt", 0)) for each in events), default=0)
            faults = sum(each["name"] == "fault_injected" for each in events)
            _say(
                f"{self._name}: step {steps[-1] if steps else 0} of {self._max_steps}, "
                f"attempt {attempt}, {faults} faults"
            )
        return False


def _write_reports(out: Path, results: Sequence[Result]) -> None:
    (out / "goodput.md").write_text(as_markdown(results))
    if (out / "runs").is_dir():
        with tarfile.open(out / "events.tar.gz", "w:gz") as archive:
            archive.add(out / "runs", "runs")


def _flags(arguments: argparse.Namespace) -> tuple[str, ...]:
    return tuple(shlex.split(arguments.launcher_flags))


def _say(sentence: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {sentence}", file=sys.stderr, flush=True)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.trainer.bench_goodput",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--preset", choices=("tiny", "llama-1b"), default="llama-1b")
    add("--device", choices=("cuda", "cpu"), default="cuda")
    add("--only", nargs="+", choices=tuple(CONTENDERS), default=DEFAULT, metavar="CONTENDER")
    add("--faults", type=int, default=2, help="2 to 5 of the plan's five (2)")
    seconds = PLAN_SECONDS_A_FAULT
    add("--seconds-a-fault", type=float, default=seconds, help=f"of training ({seconds:.0f})")
    add("--launcher-flags", default="", help="more options for ft_launcher")
    add("--out", type=Path, default=Path("out/bench-goodput"), help="results and events")
    add("--storage", type=Path, help="where checkpoints are kept (OUT/storage)")
    add("--limit-seconds", type=float, default=math.inf, help="for all runs (none)")
    add("--json", action="store_true", help="print JSON instead of the table")
    return parser.parse_args(argv)


if __name__ == "__main__":
    # As Ctrl-C: not without killing the pods, which are in sessions of their own.
    def _interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(main())
