"""Staged memory: values as they were, readable by name, gone with whoever made it."""

import gc
import math
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainer.checkpoint.host_memory import HostMemory
from trainer.checkpoint.staging import ArrivingState, Staging, attach, needed_bytes

ROOT = Path(__file__).parents[2]
DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.bool]

tensors = st.builds(
    lambda shape, dtype: torch.randint(0, 2, shape).to(dtype),
    st.lists(st.integers(0, 5), max_size=3),
    st.sampled_from(DTYPES),
)


def named(values: list[Tensor]) -> dict[str, Tensor]:
    return {f"tensor {index}": value for index, value in enumerate(values)}


def staging_of(values: list[Tensor]) -> Staging:
    staging = Staging(named(values), HostMemory(needed_bytes(values), torch.device("cpu")))
    staging.copy_from(named(values))
    return staging


def staged(staging: Staging) -> list[Tensor]:
    """What another process would read."""
    memory = torch.frombuffer(attach(staging.shard.path), dtype=torch.uint8)
    return [slot.view(memory).clone() for slot in staging.shard.slots.values()]


@given(values=st.lists(tensors, max_size=6))
def test_slots_are_aligned_and_disjoint_and_hold_any_shape_and_type(values: list[Tensor]) -> None:
    staging = staging_of(values)
    slots = list(staging.shard.slots.values())
    starts = [slot.offset for slot in slots]
    ends = [slot.offset + math.prod(slot.shape) * slot.dtype.itemsize for slot in slots]
    assert all(start % 64 == 0 for start in starts)
    assert all(end <= needed_bytes(values) for end in ends)
    assert all(end <= start for end, start in zip(ends, starts[1:], strict=False))
    for value, copy in zip(values, staged(staging), strict=True):
        assert value.dtype == copy.dtype
        assert torch.equal(value, copy)


@given(values=st.lists(tensors, max_size=6))
def test_a_shard_arrives_as_a_dictionary_of_tensors_with_storages_of_their_own(
    values: list[Tensor],
) -> None:
    staging = staging_of(values)
    arrived = pickle.loads(pickle.dumps(ArrivingState(staging.shard)))
    assert list(arrived) == list(named(values))
    for value, copy in zip(values, arrived.values(), strict=True):
        assert (value.dtype, value.shape) == (copy.dtype, copy.shape)
        assert torch.equal(value, copy)
        assert copy.untyped_storage().nbytes() == value.numel() * value.element_size()


def test_what_changes_after_the_copy_does_not_change_the_copy() -> None:
    values = [torch.arange(5.0), torch.tensor(3.0)]
    staging = staging_of(values)
    for value in values:
        value.zero_()
    assert [copy.tolist() for copy in staged(staging)] == [[0, 1, 2, 3, 4], 3]
    assert not values[0].is_shared()


def test_the_next_copy_replaces_the_values() -> None:
    staging = staging_of([torch.zeros(3)])
    staging.copy_from(named([torch.ones(3)]))
    assert staged(staging)[0].tolist() == [1, 1, 1]


def test_another_process_reads_it_until_its_owner_is_killed() -> None:
    script = """
import torch
from trainer.checkpoint.host_memory import HostMemory
from trainer.checkpoint.staging import Staging
memory = HostMemory(2 << 20, torch.device("cpu"))
staging = Staging({"a": torch.arange(4.0)}, memory)
staging.copy_from({"a": torch.arange(4.0)})
print(staging.shard.path, staging.shard.slots["a"].offset, flush=True)
input()
"""
    owner = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        path, offset = owner.stdout.readline().split()
        memory = torch.frombuffer(attach(path), dtype=torch.uint8)
        values = memory[int(offset) : int(offset) + 16].view(torch.float32)
        assert values.tolist() == [0, 1, 2, 3]
        owner.send_signal(signal.SIGKILL)
    with pytest.raises(OSError, match="No such file"):
        attach(path)


def test_memory_goes_with_the_attempt_that_staged_in_it() -> None:
    staging = staging_of([torch.zeros(1)])
    path = staging.shard.path
    del staging
    gc.collect()
    with pytest.raises(OSError, match="No such file"):
        attach(path)


def test_a_file_that_took_over_the_name_is_not_taken_for_staged_memory(tmp_path: Path) -> None:
    precious = tmp_path / "events.jsonl"
    precious.write_text("precious")
    with precious.open("r+b") as file, pytest.raises(OSError, match="not staged memory"):
        attach(f"/proc/self/fd/{file.fileno()}")
