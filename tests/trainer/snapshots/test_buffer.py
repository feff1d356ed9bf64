"""A buffer holds a snapshot as a whole or is no snapshot, whoever wrote it and however it died."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trainer.snapshots.buffer import SnapshotBuffer, found_in, needed_bytes
from trainer.snapshots.header import Header, SnapshotKey

CPU = torch.device("cpu")
ROOT = Path(__file__).parents[3]
KEY = SnapshotKey(coordinate=1, attempt=2, step=40, world_size=4, identity=bytes(16))

# Kills itself when it has come to the moment that it was told.
WRITER = """
import os, signal, sys
from pathlib import Path
import torch
from trainer.snapshots.buffer import SnapshotBuffer
from trainer.snapshots.header import SnapshotKey
folder, moment = Path(sys.argv[1]), sys.argv[2]
buffer = SnapshotBuffer.open(folder, "a", [torch.zeros(1 << 20)], torch.device("cpu"))
buffer.get_ready()
buffer.wait(60)
for step in (40, 41):
    buffer.begin(SnapshotKey(1, 2, step, 4, bytes(16)))
    buffer.tensors[0][:1 << 19] = step
    if (moment, step) == ("filling", 41):
        os.kill(os.getpid(), signal.SIGKILL)
    buffer.tensors[0][1 << 19:] = step
    buffer.finish(float(step))
os.kill(os.getpid(), signal.SIGKILL)
"""

# Forks writers that fill two buffers in turn as fast as they can, and kills each at some moment;
# prints how many snapshots were found in all, and any that holds something of another step.
KILLER = """
import itertools, os, signal, sys
from pathlib import Path
import torch
from trainer.snapshots.buffer import SnapshotBuffer, found_in
from trainer.snapshots.header import SnapshotKey
torch.set_num_threads(1)
folder, num_found = Path(sys.argv[1]), 0
values = [torch.zeros(1 << 16), torch.zeros(3, dtype=torch.int64)]
buffers = [SnapshotBuffer.open(folder, name, values, torch.device("cpu")) for name in "ab"]
for buffer in buffers:
    buffer.get_ready()
    buffer.wait(60)
for turn in range(30):
    ours, theirs = os.pipe()
    if not (child := os.fork()):
        os.close(ours)
        for step, buffer in zip(itertools.count(1), itertools.cycle(buffers)):
            buffer.begin(SnapshotKey(turn, 1, step, 4, bytes(16)))
            os.write(theirs, b".")
            for tensor in buffer.tensors:
                tensor.fill_(step)
            buffer.finish(float(step))
    os.close(theirs)
    for _ in range(2 + turn):
        os.read(ours, 1)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(ours)
    for path, header in found_in(folder):
        num_found += 1
        again = SnapshotBuffer.open(folder, path.name, values, torch.device("cpu"))
        assert again.copy_to(values)
        if any((value != header.key.step).any() for value in values):
            print(path, header)
print(num_found)
"""


def buffer_for(folder: Path, tensors: list[Tensor], name: str = "a") -> SnapshotBuffer:
    buffer = SnapshotBuffer.open(folder, name, tensors, CPU)
    buffer.get_ready()
    buffer.wait(60)
    return buffer


def fill(buffer: SnapshotBuffer, tensors: list[Tensor], key: SnapshotKey = KEY) -> None:
    buffer.begin(key)
    for slot, tensor in zip(buffer.tensors, tensors, strict=True):
        slot.copy_(tensor)
    buffer.finish(1.5)


@pytest.fixture
def tensors() -> list[Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [
        torch.randn(5, 3, generator=generator),
        torch.tensor(9.0),
        torch.empty(0, 4),
        torch.randn(7, generator=generator).to(torch.bfloat16),
        torch.arange(11),
    ]


def test_a_snapshot_is_given_back_bit_by_bit(folder: Path, tensors: list[Tensor]) -> None:
    buffer = buffer_for(folder, tensors)
    fill(buffer, tensors)
    targets = [torch.zeros_like(tensor) for tensor in tensors]
    assert buffer.copy_to(targets)
    for tensor, target in zip(tensors, targets, strict=True):
        assert torch.equal(tensor, target)


def test_a_snapshot_says_what_it_is_of(folder: Path, tensors: list[Tensor]) -> None:
    buffer = buffer_for(folder, tensors)
    fill(buffer, tensors)
    # 60 bytes, 4, none, 14 and 88, each at a multiple of 64.
    expected = Header(sequence=2, key=KEY, payload_bytes=320, probe_loss=1.5)
    assert found_in(folder) == [(folder / "a", expected)]
    assert (folder / "a").stat().st_size == needed_bytes(tensors) == 4096 + 320


def test_a_new_buffer_holds_nothing(folder: Path, tensors: list[Tensor]) -> None:
    buffer = buffer_for(folder, tensors)
    assert buffer.header() is None
    assert not buffer.copy_to(tensors)
    assert found_in(folder) == []


def test_a_buffer_that_is_being_filled_is_not_offered(folder: Path, tensors: list[Tensor]) -> None:
    buffer = buffer_for(folder, tensors)
    fill(buffer, tensors)
    buffer.begin(KEY)
    assert found_in(folder) == []
    assert not buffer.copy_to(tensors)


def test_a_filling_that_was_given_up_can_be_begun_again(
    folder: Path, tensors: list[Tensor]
) -> None:
    buffer = buffer_for(folder, tensors)
    buffer.begin(KEY)
    fill(buffer, tensors)
    (_, header), *_ = found_in(folder)
    assert header.sequence == 4


def test_a_reader_learns_that_the_snapshot_changed_under_it(
    folder: Path, tensors: list[Tensor]
) -> None:
    buffer = buffer_for(folder, tensors)
    fill(buffer, tensors)

    class Rewritten(Tensor):
        def detach(self) -> Tensor:
            fill(buffer, tensors)  # as the same snapshot, once more
            return torch.zeros_like(tensors[0])

    targets = [torch.zeros(5, 3).as_subclass(Rewritten), *tensors[1:]]
    assert not buffer.copy_to(targets)


def test_a_buffer_cannot_be_filled_before_its_memory_is_there(
    folder: Path, tensors: list[Tensor]
) -> None:
    buffer = SnapshotBuffer.open(folder, "a", tensors, CPU)
    assert not buffer.is_ready
    with pytest.raises(AssertionError, match="is not ready"):
        buffer.begin(KEY)


def test_a_buffer_that_finds_no_room_says_so_and_can_be_removed(
    folder: Path, tensors: list[Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_full(*_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", is_full)
    buffer = buffer_for(folder, tensors)
    assert not buffer.is_ready
    assert buffer.failure == f"{folder / 'a'}: No space left on device"
    buffer.remove()
    assert list(folder.iterdir()) == []


def test_a_file_that_is_cut_short_is_not_offered(folder: Path, tensors: list[Tensor]) -> None:
    fill(buffer_for(folder, tensors), tensors)
    content = (folder / "a").read_bytes()
    (folder / "b").write_bytes(content[:-1])
    (folder / "c").write_bytes(content[:20])
    (folder / "d").mkdir()
    assert [path.name for path, _ in found_in(folder)] == ["a"]


def test_the_same_tensors_find_the_snapshot_and_others_a_new_buffer(
    folder: Path, tensors: list[Tensor]
) -> None:
    fill(buffer_for(folder, tensors), tensors)
    again = SnapshotBuffer.open(folder, "a", tensors, CPU).header()
    assert again is not None
    assert again.key == KEY
    assert SnapshotBuffer.open(folder, "a", [*tensors, torch.zeros(100)], CPU).header() is None


@pytest.mark.parametrize(("moment", "steps"), [("filling", []), ("whole", [41])])
def test_a_snapshot_outlives_its_killed_writer_only_if_it_is_whole(
    folder: Path, moment: str, steps: list[int]
) -> None:
    command = [sys.executable, "-c", WRITER, str(folder), moment]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == -signal.SIGKILL
    assert [header.key.step for _, header in found_in(folder)] == steps
    target = torch.zeros(1 << 20)
    buffer = buffer_for(folder, [target])  # ready in the background, with what it held
    assert buffer.is_ready
    assert buffer.copy_to([target]) == bool(steps)
    if steps:
        assert target.eq(41).all()


def test_no_writer_killed_at_any_moment_leaves_a_mixed_snapshot(folder: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", KILLER, str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert int(done.stdout) >= 30  # one of two is whole at least


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_buffer_for_a_gpu_is_pinned_in_each_process_that_maps_it(folder: Path) -> None:
    tensors = [torch.full((1 << 20,), 3.0, device="cuda")]
    for _ in range(2):  # as a second process would find it
        buffer = SnapshotBuffer.open(folder, "a", tensors, tensors[0].device)
        buffer.get_ready()
        buffer.wait(60)
        assert buffer.values.is_pinned()
        fill(buffer, tensors)
        target = torch.zeros_like(tensors[0])
        assert buffer.copy_to([target])
        assert target.eq(3).all()
        del buffer
