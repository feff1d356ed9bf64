"""The folder of one rehearsed run: made new, never mixed with or taken from another rehearsal.

Its ``rehearsal.txt`` says what differs from the cluster. That file also marks
the folder as ours to delete when asked, and is locked while the run goes on.
"""

import fcntl
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from workloads.rehearsal.job import RehearsalError

MARKER = "rehearsal.txt"


def check_folder(folder: Path, *, fresh: bool) -> None:
    """Refuse a folder that may not be used for a new rehearsal; changes nothing.

    Raises:
        RehearsalError: it holds something that is to be kept, or that is not a rehearsal's.
    """
    if not folder.exists():
        return
    if not fresh:
        raise RehearsalError(
            f"{folder} holds an earlier rehearsal; choose another --out, or delete it by --fresh"
        )
    if not (folder / MARKER).is_file():
        raise RehearsalError(
            f"{folder} was not made by a rehearsal (it has no {MARKER}), so --fresh does not "
            "delete it; choose another --out"
        )


@contextmanager
def new_folder(folder: Path, sentences: Sequence[str], *, fresh: bool) -> Iterator[None]:
    """Make ``folder`` anew, after deleting an earlier rehearsal if ``fresh``; hold it.

    Raises:
        RehearsalError: as for ``check_folder``; or another rehearsal runs there; or the folder
            cannot be written.
    """
    check_folder(folder, fresh=fresh)
    try:
        if folder.exists():
            _delete_if_idle(folder)
        (folder / "pods").mkdir(parents=True)
        marker = (folder / MARKER).open("w")
    except OSError as error:
        raise RehearsalError(
            f"{folder}: cannot be written ({error.strerror}); choose another --out"
        ) from error
    with marker:
        fcntl.flock(marker, fcntl.LOCK_EX)
        marker.write("".join(f"{sentence}\n" for sentence in sentences))
        marker.flush()
        yield


def _delete_if_idle(folder: Path) -> None:
    with (folder / MARKER).open() as marker:
        try:
            fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RehearsalError(
                f"{folder}: another rehearsal runs there; wait for it or choose another --out"
            ) from error
        shutil.rmtree(folder)
