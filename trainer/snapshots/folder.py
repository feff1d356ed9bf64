"""The folder in shared memory that a pod's snapshots lie in, as PID 1 makes and removes it.

Workers make the files, since only they know how large those must be; PID 1 outlives them.
It holds a lock on its folder for as long as it lives, so a folder that nobody has locked has
no owner, and whoever starts next on this computer removes it. A lock, and no pid: pids come
again, and pods that share a /dev/shm may each count theirs from 1.

Not covered: who removes the folder of a PID 1 that was killed, if none starts after it. In a
cluster the memory goes with the pod.
"""

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

VARIABLE = "STEADFAST_MEMORY"
SHARED_MEMORY = Path("/dev/shm")

_PREFIX = "steadfast-memory-"


@contextmanager
def owned_memory(run_directory: Path, pod: int, *, within: Path = SHARED_MEMORY) -> Iterator[None]:
    """While the block runs, workers find a folder of this pod's own by ``STEADFAST_MEMORY``.

    Where none can be made, they find no such variable, and train without snapshots.
    """
    os.environ.pop(VARIABLE, None)  # not another pod's
    owned = _new_folder(within, f"{_PREFIX}{run_directory.name[:40]}-{pod}-")
    if owned is None:
        yield
        return
    folder, lock = owned
    os.environ[VARIABLE] = str(folder)
    try:
        yield
    finally:
        os.environ.pop(VARIABLE, None)
        _remove(folder)
        os.close(lock)


def remove_abandoned(within: Path = SHARED_MEMORY) -> None:
    """Remove the folders whose owners are gone, as far as this user may."""
    for folder in within.glob(f"{_PREFIX}*"):
        with suppress(OSError):  # it has an owner, it is gone, or it is another user's
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _remove(folder)
            finally:
                os.close(lock)


def _new_folder(within: Path, prefix: str) -> tuple[Path, int] | None:
    try:
        remove_abandoned(within)
        return _locked_folder(within, prefix)
    except OSError as error:
        sys.stderr.write(f"steadfast: no snapshots in memory ({error})\n")
        return None


def _locked_folder(within: Path, prefix: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=within))
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)
        # Another pod that starts now took it for abandoned, before it was locked.


def _remove(folder: Path) -> None:
    # First under another name, so that no worker that still lives makes a file in it meanwhile.
    gone = folder.with_name(f"{folder.name}-gone")
    with suppress(OSError):
        folder.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
