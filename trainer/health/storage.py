"""Whether the run's folder takes a file, asked so that a dead mount cannot block the asker.

A full disk passes: it costs saves, not training (decision 0509).

Not covered: storage that takes a file and loses what is in it; a mount that answers from
the node's memory though its server is gone, until it has to ask. A probe that was given
up leaves a thread, and perhaps later an empty file without a name.
"""

import errno
import tempfile
from collections.abc import Callable
from pathlib import Path

from trainer.bounded import bounded
from trainer.health.finding import Finding, failed, passed

CHECK = "storage"
PROBE_SECONDS = 30.0
"""A Lustre server that is replaced by its standby answers again within this, mostly."""

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def probe(directory: Path, *, make: bool = False, seconds: float = PROBE_SECONDS) -> None:
    """Write a few bytes that vanish again.

    Raises:
        OSError: the storage's own answer; ``TimeoutError`` where it gave none in time.
    """

    def write() -> None:
        if make:
            directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(b"probe")

    bounded(write, seconds=seconds)


def check_storage(directory: Path, *, probe: Callable[[Path], None] = probe) -> Finding:
    """Asks ``directory``, which must be there: a mount point without its mount fails."""
    try:
        probe(directory)
    except TimeoutError as error:
        return failed(CHECK, f"{directory}: {error.strerror}; its mount is dead")
    except OSError as error:
        if error.errno in FULL:
            return passed(CHECK, f"{directory} is full, which costs saves and not training")
        what = "is mounted read-only" if error.errno == errno.EROFS else "cannot be written"
        return failed(CHECK, f"{directory}: {what} ({error.strerror})")
    return passed(CHECK, f"{directory} takes files")
