"""Deletes saves that need not be kept, beside the step loop, since that takes seconds.

What goes was chosen once a newer checkpoint was committed, so at no instant a valid one
is missing. A process that ends in between leaves folders without a record, which are
debris to the next attempt.

Not covered: an attempt that begins between the last look for one and the deletion of a
folder, which takes seconds too.
"""

import logging
import shutil
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from trainer.checkpoint.layout import COMMIT_RECORD, sync_folder

logger = logging.getLogger(__name__)

_FAREWELL_SECONDS = 5.0
"""For the one file that is being deleted when an attempt ends."""


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
    """Deletes folders one after the other, in a thread that ends when none is left.

    Args:
        is_newest_attempt: Asked before each folder. What an attempt that has been replaced
            does not need, its successor may have gone on from. May raise ``OSError``.
    """

    def __init__(self, *, is_newest_attempt: Callable[[], bool] = lambda: True) -> None:
        self._is_newest_attempt = is_newest_attempt
        self._lock = threading.Lock()
        self._pending: dict[Path, bool] = {}
        """Folders, and whether they go even if they are checkpoints."""

        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, folders: Iterable[Path], *, unless_committed: bool = False) -> None:
        """Have ``folders`` deleted; returns at once. What cannot be deleted is warned about.

        With ``unless_committed`` a folder that meanwhile has a record stays.
        """
        with self._lock:
            is_at_work = bool(self._pending)
            for folder in folders:
                self._pending.setdefault(folder, not unless_committed)
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
                self._delete(folder, even_if_committed=self._pending[folder])
            except OSError as error:
                logger.warning("%s could not be deleted: %s", folder, error)
            with self._lock:
                del self._pending[folder]
                folder = None if self._stop.is_set() else next(iter(self._pending), None)

    def _delete(self, folder: Path, *, even_if_committed: bool) -> None:
        is_kept = not even_if_committed and (folder / COMMIT_RECORD).exists()
        if not is_kept and self._is_newest_attempt():
            delete(folder, should_stop=self._stop.is_set)
