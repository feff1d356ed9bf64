"""Where the time of each run went: ``python -m trainer.report DIR [DIR ...]``.

Prints a row for each run found in the folders, then the seconds in each bin.
Exit 0 if every run finished with the reference's result, 1 if not, 2 if there is
nothing to report, 130 if interrupted.
"""

import argparse
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.box import Box
from rich.console import Console
from rich.table import Table

from trainer import exit_codes
from trainer.goodput.ledger import Bin, Recovery, StepTime
from trainer.goodput.runs import Comparison, Run, RunError, Verdict, compare

WIDTH = 100
"""Columns of the tables, at least."""

UNDER_THE_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the report; what cannot be reported is one line on stderr and exit status 2."""
    arguments = _parse(argv)
    try:
        comparison = compare(arguments.directories, arguments.reference)
    except RunError as error:
        print(f"trainer.report: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    if arguments.json:
        _print(json.dumps(as_json(comparison), indent=2, allow_nan=False))
    else:
        _print(as_text(comparison))
    return 0 if all(map(_is_good, comparison.runs)) else 1


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # ``head`` has seen enough. Python flushes once more when it ends, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def as_json(comparison: Comparison) -> dict[str, Any]:
    """What the tables show, and what they leave out; numbers that are not finite become null."""
    reference = comparison.reference
    return {
        "reference": reference.name if reference else None,
        "runs": [_finite(_run_as_json(run)) for run in comparison.runs],
    }


def _run_as_json(run: Run) -> dict[str, Any]:
    settings = run.settings
    return {
        "name": run.name,
        "folder": str(run.folder),
        "recovery_layer": settings.recovery.layer if settings else None,
        "checkpoint_mode": settings.checkpoint.mode if settings else None,
        "equals_reference": {Verdict.EQUAL: True, Verdict.DIFFERENT: False}.get(run.verdict),
        **asdict(run.account),
        "recoveries": [
            {**asdict(recovery), "first_step_seconds": recovery.first_step_seconds}
            for recovery in run.account.recoveries
        ],
    }


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if math.isfinite(value) else None
        case Mapping():
            return {str(key): _finite(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_finite(inner) for inner in value]
        case _:
            return value


def as_text(comparison: Comparison) -> str:
    console = Console(markup=False, emoji=False, highlight=False)
    # In a narrower terminal its own line breaks are easier to read than folded numbers.
    console.width = max(console.width, WIDTH) if console.is_terminal else WIDTH
    with console.capture() as capture:
        console.print(runs_table(comparison))
        console.print("\nSeconds of wall time in each bin\n", style="bold")
        console.print(bins_table(comparison.runs))
        console.print()
        for note in footnotes(comparison):
            console.print(note)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def runs_table(comparison: Comparison) -> Table:
    table = _table("run", "recovery,\nsaves")
    for heading in ("steps\nkept", "steps\nredone", "faults"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("seconds\nto recover", justify="right", no_wrap=True)
    for heading in ("stall a\nsave, ms", "goodput\n%", "wall\ns"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("equals\nreference", justify="right", no_wrap=True)
    for run in comparison.runs:
        account = run.account
        table.add_row(
            run.name,
            _layer_and_mode(run),
            str(account.steps_kept),
            str(account.steps_redone),
            str(len(account.recoveries)),
            "\n".join(map(_time_to_recover, account.recoveries)) or "-",
            _milliseconds(account.stall_seconds_per_save),
            f"{100 * account.goodput_fraction:.1f}",
            f"{account.wall_seconds:.1f}",
            _result(run, comparison.reference),
        )
    return table


def bins_table(runs: Iterable[Run]) -> Table:
    table = _table("run")
    for bin_ in Bin:
        table.add_column(str(bin_), justify="right", no_wrap=True)
    for run in runs:
        seconds = run.account.seconds_by_bin
        table.add_row(run.name, *(f"{seconds[bin_]:.1f}" for bin_ in Bin))
    return table


def footnotes(comparison: Comparison) -> list[str]:
    reference = comparison.reference
    own = [run for run in comparison.runs if run.account.step_time is StepTime.OWN_MEDIAN]
    notes = ["Goodput: steps kept x the step time of a run without faults or saves / wall time."]
    if reference and reference.account.step_seconds:
        milliseconds = 1000 * reference.account.step_seconds
        notes.append(f"Step time: {milliseconds:.1f} ms, the median of {reference.name}.")
    if own:
        names = ", ".join(run.name for run in own)
        notes.append(f"Reckoned with the run's own median step time, stalls left out: {names}.")
    for run in comparison.runs:
        if steps := run.account.nonfinite_loss_steps:
            notes.append(
                f"{run.name}: the loss is not finite at {len(steps)} steps from {steps[0]}."
            )
    return notes


def _is_good(run: Run) -> bool:
    return run.account.finished and run.verdict is not Verdict.DIFFERENT


def _table(*words: str) -> Table:
    """With columns of words; those of numbers follow."""
    table = Table(box=UNDER_THE_HEAD, padding=0, pad_edge=False, show_edge=False)
    for heading in words:
        table.add_column(heading, overflow="fold")
    return table


def _result(run: Run, reference: Run | None) -> str:
    if not run.account.finished:
        return "unfinished"
    return "reference" if reference and run.folder == reference.folder else str(run.verdict)


def _layer_and_mode(run: Run) -> str:
    if run.settings is None:
        return "-"
    return f"{run.settings.recovery.layer}, {run.settings.checkpoint.mode}"


def _time_to_recover(recovery: Recovery) -> str:
    seconds = recovery.time_to_recover_seconds
    return f"{recovery.kind} {'never' if seconds is None else format(seconds, '.1f')}"


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1000 * seconds:.1f}"


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.report",
        description="Show where the wall time of each run went, and whether its result is right.",
        epilog="Exit code: 0 every run finished with the reference's result (or none is known); "
        "1 one did not finish or differs; 2 nothing to report; 130 interrupted.",
    )
    parser.add_argument(
        "directories",
        nargs="+",
        type=Path,
        metavar="DIR",
        help="a run's folder, or one that holds run folders at any depth",
    )
    parser.add_argument(
        "--reference",
        type=Path,
        metavar="DIR",
        help="folder of the run to compare with (default: the only run among those given that "
        "finished without faults and without checkpoints)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
