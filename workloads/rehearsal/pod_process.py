"""One pod as a tree of processes: start it, tell it to stop, leave nothing of it.

When the first process of a container exits, the kernel kills all others in it.
Here nothing does, and launchers put their workers in sessions of their own, so
that neither a process group nor a session holds them all. Each pod therefore
carries a mark in its environment, which every descendant inherits, and
whatever carries it is killed.

Not covered: a descendant that clears its environment, and a rehearsal that is
itself killed with SIGKILL; nobody is left then to clean up.
"""

import os
import select
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer.snapshots.folder import remove_abandoned
from workloads.rehearsal.job import RehearsalError
from workloads.rehearsal.pod_plan import PodPlan

MARK = "STEADFAST_POD"
KILL_PATIENCE_SECONDS = 10.0
TRACKER_PATIENCE_SECONDS = 3.0
PID_1_SIGNAL_EXIT_CODE = 128
"""A process that a signal ended is reported as this plus the signal's number."""


class PodProcess:
    """A started pod. ``descriptor`` becomes readable when its first process exits."""

    def __init__(self, plan: PodPlan) -> None:
        self.plan = plan
        self.mark = f"{MARK}={uuid.uuid4()}"
        for folder in plan.folders:
            folder.mkdir(parents=True, exist_ok=True)
        for path, content in plan.files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        name, _, value = self.mark.partition("=")
        # A file and no pipe: a descendant may outlive the pod for a moment and must not block.
        with plan.log.open("wb") as log:
            try:
                self._process = subprocess.Popen(
                    plan.arguments,
                    env={**plan.environment, name: value},
                    cwd=plan.working_directory,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise RehearsalError(
                    f"pod {plan.name}: {plan.arguments[0]!r} cannot be started in "
                    f"{plan.working_directory} ({error.strerror})"
                ) from error
        self.descriptor = os.pidfd_open(self._process.pid)

    def terminate(self) -> None:
        """What the kubelet does first: SIGTERM to the first process alone."""
        self._process.terminate()

    def finish(self) -> int:
        """Kill what is left of the pod, delete its temporary folders, return its exit code.

        A pod's shared memory goes with it; this computer's stays, so what a first process that
        was killed could not remove from there is removed here.
        """
        kill_marked(self.mark)
        code = self._process.wait(KILL_PATIENCE_SECONDS)
        os.close(self.descriptor)
        remove_abandoned()
        shutil.rmtree(self.plan.scratch, ignore_errors=True)
        return PID_1_SIGNAL_EXIT_CODE - code if code < 0 else code


def kill_marked(mark: str) -> None:
    """SIGKILL every process that carries ``mark``, until none is left.

    Python's resource trackers end by themselves once the processes they serve are dead, and
    first unlink what those left in /dev/shm. A container's goes with it; this computer's stays,
    so they are given time.

    Raises:
        RuntimeError: one of them does not die, as in uninterruptible sleep.
    """
    deadline = time.monotonic() + KILL_PATIENCE_SECONDS
    trackers_deadline = time.monotonic() + TRACKER_PATIENCE_SECONDS
    # A process in the middle of an exec shows no environment for an instant: look twice.
    num_clean = 0
    while num_clean < 2:
        with _marked(mark.encode()) as found:
            num_clean = 0 if found else num_clean + 1
            trackers = {d for d in found if _is_resource_tracker(found[d])}
            if time.monotonic() > trackers_deadline:
                trackers = set()
            for descriptor in found.keys() - trackers:
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            for descriptor in found.keys() - trackers:
                if not wait_readable([descriptor], deadline - time.monotonic()):
                    raise RuntimeError(f"a process with {mark} does not die; see ps axe")
            for descriptor in trackers:
                wait_readable([descriptor], trackers_deadline - time.monotonic())


def wait_readable(descriptors: Iterable[int], seconds: float) -> set[int]:
    """Those of ``descriptors`` that become readable within ``seconds``; empty on a timeout."""
    # Not select(), which refuses descriptors from 1024 on.
    poller = select.poll()
    for descriptor in descriptors:
        poller.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poller.poll(max(seconds, 0.0) * 1000.0)}


def _is_resource_tracker(process: Path) -> bool:
    try:
        return b"multiprocessing.resource_tracker" in (process / "cmdline").read_bytes()
    except OSError:
        return False  # it is gone


@contextmanager
def _marked(mark: bytes) -> Iterator[dict[int, Path]]:
    """The processes that carry ``mark``, by descriptors that no reuse of a pid confuses."""
    found: dict[int, Path] = {}
    try:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                descriptor = os.pidfd_open(int(entry.name))
            except OSError:
                continue  # it is gone
            if _carries(entry, mark):
                found[descriptor] = entry
            else:
                os.close(descriptor)
        yield found
    finally:
        for descriptor in found:
            os.close(descriptor)


def _carries(process: Path, mark: bytes) -> bool:
    try:
        return mark in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False  # it is gone, or another user's
