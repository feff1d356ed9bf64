"""Which checkpoints a run has, and whether they can be trusted: ``python -m trainer.inspect DIR``.

Reads every file to verify its checksum, and changes nothing. Exit 0 if at least
one checkpoint is valid, 1 if none is, 2 if there is no checkpoints folder to read,
130 if interrupted.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.box import Box
from rich.console import Console
from rich.table import Table

from trainer import exit_codes
from trainer.checkpoint.fingerprint import fingerprint
from trainer.checkpoint.layout import ShardFormat
from trainer.checkpoint.listing import Listing
from trainer.checkpoint.survey import (
    Found,
    NoCheckpoints,
    checkpoints_folder,
    gib,
    settings_of,
    survey,
)
from trainer.settings import TrainerSettings

WIDTH = 120
"""Columns of the table, at least."""

_UNDER_THE_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; what cannot be read is one line on stderr and exit status 2."""
    arguments = _parse(argv)
    try:
        root = checkpoints_folder(arguments.directory)
        found = survey(root, quick=arguments.quick, say=_say, now=time.time())
        settings = settings_of(root)
        listing = Listing(
            root=root,
            found=tuple(found),
            settings=settings,
            fingerprint=_fingerprint(settings) if settings else None,
            quick=arguments.quick,
        )
        _print(as_json(listing) if arguments.json else as_text(listing))
    except NoCheckpoints as error:
        _say(str(error))
        return 2
    except OSError as error:
        _say(f"{error.filename or arguments.directory}: cannot be read ({error.strerror})")
        return 2
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    return 1 if all(each.problem for each in listing.found) else 0


def _fingerprint(settings: TrainerSettings) -> dict[str, Any] | None:
    try:
        return fingerprint(settings)
    except ValueError as error:  # looked at from where the dataset is not
        _say(f"cannot tell whether the settings are still those of the checkpoints: {error}")
        return None


def as_json(listing: Listing) -> str:
    restored = listing.restored()
    content = {
        "folder": str(listing.root),
        "checked": "sizes" if listing.quick else "checksums",
        "restore_takes": restored.path.name if restored else None,
        "checkpoints": [_entry(listing, each) for each in listing.found],
    }
    return json.dumps(content, indent=2)


def _entry(listing: Listing, found: Found) -> dict[str, Any]:
    record = found.checkpoint.record if found.checkpoint else None
    return {
        "name": found.path.name,
        "step": record.step if record else None,
        "attempt": record.attempt if record else None,
        "size_bytes": found.size_bytes,
        "age_seconds": round(found.age_seconds, 1),
        "world_size": record.world_size if record else None,
        "format": record.format if record else None,
        "valid": not found.problem,
        "problem": found.problem or None,
        "why_not_restored": listing.why_not_restored(found) or None,
    }


def as_text(listing: Listing) -> str:
    console = Console(markup=False, emoji=False, highlight=False)
    console.width = max(console.width, WIDTH) if console.is_terminal else WIDTH
    with console.capture() as capture:
        if listing.found:
            console.print(_table(listing))
            console.print()
        console.print(verdict(listing), soft_wrap=True)
    return "\n".join(line.rstrip() for line in capture.get().splitlines())


def verdict(listing: Listing) -> str:
    """Which checkpoint a restore takes, in a sentence."""
    restored = listing.restored()
    checked = "Only sizes were compared. " if listing.quick else ""
    if restored is None or restored.checkpoint is None:
        return f"{checked}There is nothing in {listing.root} that a restore could take."
    record = restored.checkpoint.record
    ranks = ""
    if record.format is ShardFormat.LOCAL_SHARDS:
        ranks = f", on {record.world_size} ranks alone"
    return f"{checked}A restore takes {restored.path.name}{ranks}."


def _table(listing: Listing) -> Table:
    table = Table(box=_UNDER_THE_HEAD, padding=0, pad_edge=False, show_edge=False)
    table.add_column("checkpoint", overflow="fold")
    for heading in ("step", "attempt", "GiB", "age", "ranks"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("format", no_wrap=True)
    table.add_column("valid", overflow="fold")
    for each in listing.found:
        record = each.checkpoint.record if each.checkpoint else None
        table.add_row(
            each.path.name,
            str(record.step) if record else "-",
            str(record.attempt) if record else "-",
            gib(each.size_bytes),
            age(each.age_seconds),
            str(record.world_size) if record else "-",
            record.format if record else "-",
            _validity(listing, each),
        )
    return table


def _validity(listing: Listing, found: Found) -> str:
    if found.problem:
        return f"NO: {found.problem}"
    elsewhere = listing.why_not_restored(found)
    return f"yes, but {elsewhere}" if elsewhere else "yes"


def age(seconds: float) -> str:
    """In the largest unit of which there are two or more: 90 s, 3 min, 47 h, 3 d."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds // length:.0f} {unit}"
    return f"{seconds:.0f} s"


def _print(text: str) -> None:
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # ``head`` has seen enough. Python flushes once more when it ends, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(line: str) -> None:
    print(f"trainer.inspect: {line}", file=sys.stderr, flush=True)


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.inspect",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="List a run's checkpoints: step, size, age, whether each is valid, and why\n"
        "not. Says which one a restore takes. Reads every byte; changes nothing.",
        epilog="examples:\n"
        "  python -m trainer.inspect /fsx/runs/llama\n"
        "  python -m trainer.inspect /fsx/runs/llama/checkpoints --quick --json\n\n"
        "exit code: 0 a checkpoint is valid; 1 none is; 2 no checkpoints folder to read;\n"
        "130 interrupted",
    )
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="a run's folder, or its checkpoints folder"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument(
        "--quick", action="store_true", help="compare the files' sizes only, without reading them"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
