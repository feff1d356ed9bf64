"""The checkpoint worker: calls in order, its death noticed at once, never an orphan."""

import gc
import os
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from torch.distributed.device_mesh import DeviceMesh

from tests.trainer.ranks import has_ended, kill, once_done, pid_of
from trainer.checkpoint.background import BackgroundWorker, CallState
from trainer.checkpoint.report_area import ReportArea
from trainer.checkpoint.shard_file import LocalShardFile, Report, warm_up
from trainer.checkpoint.staging import attach

pytestmark = pytest.mark.distributed

ROOT = Path(__file__).parents[2]

# A trainer that begins a save, which is stuck in a pipe, tells its worker's id and the
# place of the staged values, and waits to be killed.
SAVING_TRAINER = """
import fcntl, multiprocessing, os, select, sys
from pathlib import Path
import torch
import torch.distributed as dist
from trainer.checkpoint.background import BackgroundWorker, CallState
from trainer.checkpoint.local_writer import LocalWriter
if __name__ == '__main__':
    folder = Path(sys.argv[1])
    dist.init_process_group('gloo', init_method=f'file://{folder}/store', rank=0, world_size=1)
    worker = BackgroundWorker()
    writer = LocalWriter(worker, rank=0)
    while worker.state() is CallState.RUNNING:
        pass
    (child,) = multiprocessing.active_children()
    pipe = folder / f'.rank-0.pt.{child.pid}'
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    tensors = {'a': torch.ones(1 << 20)}
    writer.begin(tensors, folder)
    select.select([reader], [], [])
    assert not tensors['a'].is_shared()
    print(child.pid, writer._reports.path, flush=True)
    input()
"""

# A trainer: starts its worker, tells that worker's id, and waits to be killed.
TRAINER = """
import multiprocessing, sys
import torch.distributed as dist
from trainer.checkpoint.background import BackgroundWorker, CallState
from trainer.checkpoint.shard_file import warm_up
if __name__ == '__main__':
    dist.init_process_group('gloo', init_method=f'file://{sys.argv[1]}', rank=0, world_size=1)
    worker = BackgroundWorker()
    worker.start(warm_up)
    while worker.state() is CallState.RUNNING:
        pass
    (child,) = multiprocessing.active_children()
    print(child.pid, flush=True)
    input()
"""

# In place of ``put``, which is first called when the worker has just been started.
DIE = """
import os, signal
def die(queue, item):
    (child,) = multiprocessing.active_children()
    print(child.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def process_worker() -> Iterator[BackgroundWorker]:
    worker = BackgroundWorker()
    yield worker
    worker.kill()


@pytest.fixture
def worker(process_worker: BackgroundWorker, mesh: DeviceMesh) -> BackgroundWorker:
    """A worker that lives; NVRx asks the group for its rank when it starts one."""
    assert mesh.size() == 1
    process_worker.start(warm_up)
    return process_worker


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


def wait_for_reader(fifo: Path) -> None:
    fifo.write_text("done")


def leave_cycles(path: Path) -> None:
    for _ in range(10_000):
        cycle: list[object] = []
        cycle.append(cycle)
    append(path, f"{len(gc.get_objects())}\n")


def test_what_calls_leave_behind_is_collected(worker: BackgroundWorker, tmp_path: Path) -> None:
    for _ in range(4):
        worker.call(leave_cycles, tmp_path / "counts")
    assert once_done(worker) is CallState.IDLE
    first, *_, last = map(int, (tmp_path / "counts").read_text().split())
    assert last - first < 10_000  # of 30,000


def test_calls_run_in_order(worker: BackgroundWorker, tmp_path: Path) -> None:
    for letter in "abcdef":
        worker.call(append, tmp_path / "said", letter)
    assert once_done(worker) is CallState.IDLE
    assert (tmp_path / "said").read_text() == "abcdef"


def test_a_call_is_running_until_it_returns(worker: BackgroundWorker, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    worker.call(wait_for_reader, fifo)
    assert worker.state() is CallState.RUNNING
    assert fifo.read_text() == "done"
    assert once_done(worker) is CallState.IDLE


def test_an_idle_worker_is_not_replaced(worker: BackgroundWorker) -> None:
    assert once_done(worker) is CallState.IDLE
    before = pid_of(worker)
    worker.start(warm_up)
    assert pid_of(worker) == before


def test_a_worker_that_still_owes_a_call_is_replaced(
    worker: BackgroundWorker, tmp_path: Path
) -> None:
    before = pid_of(worker)
    os.mkfifo(tmp_path / "fifo")
    worker.call(wait_for_reader, tmp_path / "fifo")
    worker.start(warm_up)
    assert pid_of(worker) != before
    worker.call(append, tmp_path / "said", "new")
    assert once_done(worker) is CallState.IDLE
    assert (tmp_path / "said").read_text() == "new"


def test_a_worker_killed_in_a_call_is_dead_at_once_and_can_be_started_anew(
    worker: BackgroundWorker, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    pid = pid_of(worker)
    worker.call(wait_for_reader, tmp_path / "fifo")
    kill(pid)
    assert worker.state() is CallState.DEAD
    worker.start(warm_up)
    assert once_done(worker) is CallState.IDLE


def test_a_worker_killed_between_calls_is_dead_too(worker: BackgroundWorker) -> None:
    assert once_done(worker) is CallState.IDLE
    kill(pid_of(worker))
    assert worker.state() is CallState.DEAD


def test_a_stopped_worker_can_be_killed_more_than_once(
    worker: BackgroundWorker, tmp_path: Path
) -> None:
    pidfd = os.pidfd_open(pid_of(worker))
    signal.pidfd_send_signal(pidfd, signal.SIGSTOP)
    worker.call(append, tmp_path / "said", "a")
    worker.kill()
    assert has_ended(pidfd)
    assert worker.state() is CallState.DEAD
    worker.kill()


@contextmanager
def trainer_of(script: str, folder: Path, argument: Path) -> Iterator[list[str]]:
    """What a trainer says of itself; it is killed at the end of the block."""
    path = folder / "run.py"
    path.write_text(script)
    with subprocess.Popen(
        [sys.executable, str(path), str(argument)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as trainer:
        assert trainer.stdout is not None
        try:
            yield trainer.stdout.readline().split()
        finally:
            trainer.send_signal(signal.SIGKILL)


def test_a_worker_dies_with_a_trainer_that_is_killed(tmp_path: Path) -> None:
    with trainer_of(TRAINER, tmp_path, tmp_path / "store") as (pid,):
        pidfd = os.pidfd_open(int(pid))
    assert has_ended(pidfd)


def test_a_worker_shares_nothing_with_its_trainer_that_has_a_name(tmp_path: Path) -> None:
    # Launchers kill whole process groups, and so the tracker that would unlink a semaphore.
    with trainer_of(TRAINER, tmp_path, tmp_path / "store") as (pid,):
        pidfd = os.pidfd_open(int(pid))
        assert "/dev/shm/" not in Path(f"/proc/{pid}/maps").read_text()
    assert has_ended(pidfd)


def test_a_trainer_killed_before_the_first_call_leaves_no_worker(tmp_path: Path) -> None:
    hasty = "from trainer.checkpoint.worker_queue import WorkerQueue\n" + TRAINER.replace(
        "    worker.start", "    WorkerQueue.put = die\n    worker.start"
    ).replace("if __name__", DIE + "if __name__")
    with trainer_of(hasty, tmp_path, tmp_path / "store") as (pid,):
        try:
            pidfd = os.pidfd_open(int(pid))
        except ProcessLookupError:
            return
        # It has to import all that it needs first.
        assert select.select([pidfd], [], [], 90)[0]
        os.close(pidfd)


def test_a_trainer_killed_during_a_save_leaves_no_process_and_no_memory(tmp_path: Path) -> None:
    with trainer_of(SAVING_TRAINER, tmp_path, tmp_path) as (pid, memory):
        pidfd = os.pidfd_open(int(pid))
        attach(memory).close()  # so it is there
        # With a name there, memory would outlive whoever made it.
        names = [path.name for path in Path("/dev/shm").iterdir()]
        assert not [n for n in names if {pid, memory.split("/")[2]} & set(re.split(r"\D", n))]
        held = Path(f"/proc/{pid}/maps").read_text()
        assert "steadfast-staging" in held
        assert "/dev/shm/torch_" not in held
    assert has_ended(pidfd)
    with pytest.raises(OSError, match="No such file"):
        attach(memory)
    assert not (tmp_path / "rank-0.pt").exists()


class Unsavable:
    """Reaches the worker, and cannot be pickled there again."""

    def __init__(self) -> None:
        self.pid = os.getpid()

    def __getstate__(self) -> dict[str, int]:
        if os.getpid() != self.pid:
            raise RuntimeError("cannot be saved")
        return {"pid": self.pid}


def test_an_exception_in_torch_save_is_reported_and_leaves_no_file(
    worker: BackgroundWorker, tmp_path: Path
) -> None:
    reports = ReportArea(1)
    assert once_done(worker) is CallState.IDLE
    worker.save({"a": Unsavable()}, LocalShardFile(tmp_path / "rank-0.pt", reports=reports.path))
    assert once_done(worker) is CallState.DEAD
    assert reports.read() == Report([], [], failure="RuntimeError: cannot be saved")
    assert list(tmp_path.iterdir()) == []


def test_a_worker_whose_trainer_is_gone_before_its_first_call_ends_in_it() -> None:
    script = """
import os
from trainer.checkpoint.shard_file import warm_up
warm_up(os.getpid())  # which is not its parent's
print('still here')
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, b"")
