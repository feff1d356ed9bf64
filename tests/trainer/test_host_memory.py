"""Memory made ready ahead: touched and as it was, by a thread that ends with its attempt."""

import errno
import gc
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from tests.trainer.checkpoints import parts_of, settings_for
from tests.trainer.ranks import Crew, background_worker
from trainer.checkpoint import host_memory
from trainer.checkpoint.background import BackgroundWorker
from trainer.checkpoint.host_memory import HostMemory
from trainer.distributed import Job
from trainer.settings import TrainerSettings

CPU = torch.device("cpu")
SIZE = 256 << 20
ROOT = Path(__file__).parents[2]

WRITER = """
import os, signal, sys
from pathlib import Path
import torch
from trainer.checkpoint.host_memory import HostMemory
memory = HostMemory(1 << 20, torch.device("cpu"), file=Path(sys.argv[1]))
memory.get_ready()
memory.wait(60)
memory.values[5] = 7
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def memory() -> Iterator[HostMemory]:
    memory = HostMemory(SIZE, CPU)
    yield memory
    memory.stop()


def resident_bytes(memory: HostMemory) -> int:
    return Path(memory.path).stat().st_blocks * 512


def num_threads() -> int:
    return sum(thread.name == "host memory" for thread in threading.enumerate())


def test_memory_costs_nothing_before_it_is_to_get_ready(memory: HostMemory) -> None:
    assert resident_bytes(memory) == 0


def test_ready_memory_is_touched_as_a_whole_and_holds_what_it_held(memory: HostMemory) -> None:
    memory.values[5] = 7
    memory.values[-1] = 9
    memory.get_ready()
    memory.values[SIZE // 2] = 8  # nobody has to wait
    memory.wait(60)
    assert num_threads() == 0
    assert resident_bytes(memory) == SIZE
    assert memory.values.count_nonzero() == 3
    assert [memory.values[at].item() for at in (5, SIZE // 2, -1)] == [7, 8, 9]


def test_memory_that_is_told_to_stop_goes_on_from_there_later(
    memory: HostMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_memory, "_PIECE_BYTES", 4096)  # 65,536 pieces
    memory.get_ready()
    memory.stop()
    assert num_threads() == 0
    before = resident_bytes(memory)
    assert before < SIZE
    memory.get_ready()
    memory.wait(60)
    assert resident_bytes(memory) == SIZE


def test_a_kernel_that_cannot_touch_it_ahead_leaves_it_as_good(
    memory: HostMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_memory, "_MADV_POPULATE_WRITE", 9999)
    memory.get_ready()
    memory.wait(60)
    memory.values.fill_(1)
    assert resident_bytes(memory) == SIZE


@pytest.fixture
def file() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder) / "memory"


def test_a_file_outlives_the_process_that_wrote_it(file: Path) -> None:
    subprocess.run([sys.executable, "-c", WRITER, str(file)], cwd=ROOT, check=False)
    memory = HostMemory(1 << 20, CPU, file=file)
    assert memory.path == str(file)
    assert memory.values.nonzero().tolist() == [[5]]


def test_a_file_of_another_size_is_replaced_and_who_maps_it_keeps_it(file: Path) -> None:
    old = HostMemory(1 << 20, CPU, file=file)
    old.values.fill_(1)
    new = HostMemory(2 << 20, CPU, file=file)
    assert file.stat().st_size == 2 << 20
    assert new.values.count_nonzero() == 0
    assert old.values.sum() == 1 << 20


def test_a_file_is_reserved_before_anybody_may_write_into_it(file: Path) -> None:
    memory = HostMemory(SIZE, CPU, file=file)
    assert (memory.is_reserved, resident_bytes(memory)) == (False, 0)
    memory.get_ready()
    memory.wait(60)
    assert (memory.is_reserved, memory.is_ready, memory.failure) == (True, True, "")
    assert resident_bytes(memory) == SIZE


def test_what_was_stopped_in_the_middle_is_not_ready_until_it_went_on(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = HostMemory(SIZE, CPU, file=file)
    with monkeypatch.context() as patch:
        patch.setattr(memory, "_reserve", memory._stop.set)
        memory.get_ready()
        memory.wait(60)
    assert not memory.is_ready
    memory.get_ready()
    memory.wait(60)
    assert memory.is_ready


def test_reserving_a_file_that_holds_something_leaves_that_alone(file: Path) -> None:
    file.write_bytes(b"\x07" * (1 << 20))
    memory = HostMemory(1 << 20, CPU, file=file)
    memory.get_ready()
    memory.wait(60)
    assert memory.is_reserved
    assert memory.values.eq(7).all()


def test_a_file_that_finds_no_room_says_so_and_is_not_reserved(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    memory = HostMemory(SIZE, CPU, file=file)
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", is_full)
        memory.get_ready()
        memory.wait(60)
    assert (memory.is_reserved, memory.is_ready) == (False, False)
    assert memory.failure == f"{file}: No space left on device"
    assert resident_bytes(memory) == 0


def test_the_memory_of_an_attempt_is_the_next_ones_if_it_is_enough() -> None:
    of_others = staging_memory().keys()
    worker = BackgroundWorker()
    first = worker.memory(2 << 20, CPU)
    assert worker.memory(1 << 20, CPU) is first
    del first
    larger = worker.memory(3 << 20, CPU)
    assert larger.size_bytes == 3 << 20
    assert worker.memory(3 << 20, torch.device("meta")) is not larger
    del larger
    gc.collect()
    assert len(staging_memory().keys() - of_others) == 1


def staging_memory() -> dict[int, int]:
    """Such memories of this process by their number, with their sizes."""
    found = {}
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with suppress(OSError):
            if f"{host_memory.NAME} " in os.readlink(f"/proc/self/fd/{name}"):  # noqa: PTH115
                status = os.stat(int(name))  # noqa: PTH116
                found[status.st_ino] = status.st_size
    return found


def try_twice(job: Job, settings: TrainerSettings) -> tuple[int, int]:
    """Two attempts in one process; how many memories they had in all, and threads are left."""
    seen: set[int] = set()
    for attempt in (1, 2):
        parts = parts_of(job, settings, attempt=attempt)
        if attempt == 2:
            parts.save(job, 10)
            parts.checkpointer.wait()
            assert parts.checkpointer.committed_step == 10
        parts.close()
        seen |= staging_memory().keys()
    return len(seen), num_threads()


@pytest.mark.distributed
@pytest.mark.parametrize("mode", ["async", "async_local_shards"])
def test_attempts_in_one_process_share_one_memory_and_leave_no_thread(
    mode: str, crew: Crew, tmp_path: Path
) -> None:
    assert crew.call(try_twice, settings_for(tmp_path, mode)) == [(1, 0)] * 2


def ready_before_the_first_save(job: Job, settings: TrainerSettings) -> tuple[bool, bool]:
    """Whether memory is touched before the first save, and is all that it takes."""
    parts = parts_of(job, settings)
    for thread in threading.enumerate():
        if thread.name == "host memory":
            thread.join(60)
    before = staging_memory()
    memory = background_worker().memory(1, CPU)
    is_touched = resident_bytes(memory) >= memory.size_bytes
    parts.save(job, 10)
    parts.checkpointer.wait()
    parts.close()
    return is_touched, staging_memory() == before


@pytest.mark.distributed
@pytest.mark.parametrize("mode", ["async", "async_local_shards"])
def test_the_first_save_finds_memory_that_is_ready(mode: str, crew: Crew, tmp_path: Path) -> None:
    crew.kill()  # so that no earlier test has left any
    settings = settings_for(tmp_path, mode)
    assert crew.call(ready_before_the_first_save, settings) == [(True, True)] * 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_memory_for_a_gpu_is_pinned_and_let_go_of() -> None:
    device = torch.device("cuda", 0)
    for _ in range(3):  # a leak would refuse the same addresses, or run out
        memory = HostMemory(SIZE, device)
        memory.get_ready()
        memory.wait(60)
        assert memory.values.is_pinned()
        memory.values.copy_(torch.full((SIZE,), 3, dtype=torch.uint8, device=device))
        assert memory.values.sum().item() == 3 * SIZE
        del memory
        gc.collect()
