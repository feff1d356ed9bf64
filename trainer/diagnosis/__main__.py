"""Who a run's attempt ended for: ``python -m trainer.diagnosis DIR [--attempt N] [--json]``.

Reads what the ranks left and changes nothing. Exit 0 with a diagnosis, be it that
none can be made; 2 if there is no attempt to read.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer.diagnosis.evidence import NoAttempts, diagnose_attempt, newest_attempt
from trainer.diagnosis.stack_file import attempt_folder


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parse(argv)
    directory = arguments.directory
    try:
        attempt = arguments.attempt or newest_attempt(directory)
        if not attempt_folder(directory, attempt).is_dir():
            raise NoAttempts(f"{directory}: attempt {attempt} has left nothing under stacks/")
        diagnosis = diagnose_attempt(directory, attempt)
    except NoAttempts as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename or directory}: cannot be read ({error.strerror})")
    if arguments.json:
        print(json.dumps(dataclasses.asdict(diagnosis), indent=2))
    else:
        print(f"attempt {attempt}: {diagnosis.line}")
    return 0


def _refuse(message: str) -> int:
    sys.stderr.write(f"steadfast: {message}\n")
    return 2


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m trainer.diagnosis",
        description="Say which rank an attempt of a run ended for, and why.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="the run's folder")
    parser.add_argument(
        "--attempt", type=_number, metavar="N", help="another attempt than the newest"
    )
    parser.add_argument("--json", action="store_true", help="for machines")
    return parser.parse_args(argv)


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no attempt; they count from 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
