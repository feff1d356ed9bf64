"""Which saves need not be kept, and their deletion beside the step loop, which takes seconds.

At no instant a valid checkpoint is missing: what is deleted is chosen once a newer one is
committed, and never again looked for. A process that ends in between leaves folders
without a record, which are debris to the next attempt.

Not covered: another process that deletes or makes folders in the same place.
"""

import logging
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from trainer.checkpoint.layout import COMMIT_RECORD, committed, saves, sync_folder

logger = logging.getLogger(__name__)

_FAREWELL_SECONDS = 5.0
"""For the one file that is being deleted when an attempt ends."""


def superfluous(root: Path, *, run: str, keep_latest: int, attempt: int) -> list[Path]:
    """All but the newest ``keep_latest`` checkpoints of ``run``, and old debris.

    Asked once ``attempt`` has committed, whose newest is therefore kept. What another
    run's record is in stays, and counts for nothing.

    Raises:
        OSError: the storage fails to answer.
    """
    readable = {checkpoint.path: checkpoint.record for checkpoint in committed(root)}
    all_saves = saves(root)
    own = [path for path, record in readable.items() if path in all_saves and record.run == run]
    torn = [path for path in all_saves if path not in readable and (path / COMMIT_RECORD).exists()]
    return [*torn, *debris(root, attempt=attempt), *own[keep_latest:]]


def debris(root: Path, *, attempt: int) -> list[Path]:
    """What attempts before ``attempt`` began and never committed.

    Raises:
        OSError: the storage fails to answer.
    """
    return [
        folder
        for folder, made_by in saves(root).items()
        if made_by < attempt and not (folder / COMMIT_RECORD).exists()
    ]


def delete(folder: Path, *, should_stop: Callable[[], bool] = lambda: False) -> None:
    """Delete a save, whole or not; asks between two files whether to leave the rest.

    The record goes first, so that a folder half deleted is never taken for whole.

    Raises:
        OSError: something of it cannot be deleted; if that is the record, nothing was.
    """
    if not folder.is_dir():
        return
    record = folder / COMMIT_RECORD
    if record.exists():
        record.unlink(missing_ok=True)
        sync_folder(folder)
    for path in sorted(folder.iterdir()):
        if should_stop():
            return
        if path.is_file():
            path.unlink(missing_ok=True)
    shutil.rmtree(folder)


class Deletions:
    """Deletes folders one after the other, in a thread that ends when none is left."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[Path, None] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, folders: Iterable[Path]) -> None:
        """Have ``folders`` deleted; returns at once. What cannot be deleted is warned about."""
        with self._lock:
            is_at_work = bool(self._pending)
            self._pending |= dict.fromkeys(folders)
            if is_at_work or not self._pending:
                return
            if self._thread is not None:
                self._thread.join()  # it has nothing left to do
            self._thread = threading.Thread(target=self._work, name="deletions", daemon=True)
            self._thread.start()

    def __contains__(self, folder: Path) -> bool:
        return folder in self._pending

    def is_done(self) -> bool:
        return not self._pending

    def close(self) -> None:
        """The attempt ends: delete no further file. What is left, the next attempt deletes."""
        self._stop.set()
        if self._thread is None:
            return
        self._thread.join(_FAREWELL_SECONDS)
        if self._thread.is_alive():
            # Harmless: it ends after this file, of a folder that nobody uses again.
            logger.warning("The storage does not answer; a deletion outlives its attempt")

    def _work(self) -> None:
        folder: Path | None = next(iter(self._pending))
        while folder is not None:
            try:
                delete(folder, should_stop=self._stop.is_set)
            except OSError as error:
                logger.warning("%s could not be deleted: %s", folder, error)
            with self._lock:
                del self._pending[folder]
                folder = None if self._stop.is_set() else next(iter(self._pending), None)
