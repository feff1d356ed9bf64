"""What one rank leaves of one attempt, for whoever asks why it ended.

It is ``stacks/attempt-N/rank-R.txt``. The first line says who wrote it, and where it
ran. Notes and stacks follow, if there are any. Everything is written without a
buffer, from any thread, from a signal handler and from C. Whoever comes when it has been
closed, as the next attempt does with it, is heard no more. Not covered: storage that does
not answer.
"""

import faulthandler
import json
import logging
import os
import sys
import threading
from pathlib import Path
from typing import TextIO

from trainer.node import node_name

logger = logging.getLogger(__name__)

TOLD_TO_STOP = "told to stop"
NO_PROGRESS = "no progress"
PROGRESS_AGAIN = "progress again"


def attempt_folder(run_directory: Path, attempt: int) -> Path:
    return run_directory / "stacks" / f"attempt-{attempt}"


class StackFile:
    """Opened when an attempt begins, for a rank that hangs may no longer open anything."""

    def __init__(self, folder: Path, rank: int) -> None:
        self.path = folder / f"rank-{rank}.txt"
        self.file: TextIO = sys.stderr
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self.file = self.path.open("a")
        except OSError as error:
            # A disk that is full stops no training; the container's log gets the stacks then.
            logger.warning("%s: %s; stacks go to stderr", self.path, error.strerror)
            return
        # A dump that is cut short must not pass another thread off as the main one.
        main = f"{threading.main_thread().ident or 0:#x}"
        who = {"rank": rank, "node": node_name(), "pid": os.getpid(), "main_thread": main}
        self.write(json.dumps(who))

    def write(self, line: str) -> None:
        """Add one line, past every buffer; a disk that does not take it is no reason to fail."""
        try:
            os.write(self.file.fileno(), line.encode() + b"\n")
        except OSError as error:
            logger.warning("%s: %s", self.path, error.strerror)
        except ValueError:
            logger.debug("%s is closed", self.path)

    def add_stacks(self) -> None:
        """Of every thread, as they are now."""
        try:
            faulthandler.dump_traceback(file=self.file, all_threads=True)
        except ValueError:
            logger.debug("%s is closed", self.path)

    def close(self) -> None:
        if self.file is not sys.stderr:
            self.file.close()
