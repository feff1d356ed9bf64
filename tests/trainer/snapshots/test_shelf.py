"""All ranks have as many buffers as the fullest node has room for, or none of them has any."""

from pathlib import Path

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh

from trainer.distributed import Job
from trainer.snapshots import shelf
from trainer.snapshots.buffer import needed_bytes
from trainer.snapshots.shelf import open_buffers, planned_buffers
from trainer.snapshots.sizes import Room

TENSORS = [torch.zeros(1 << 16)]


@pytest.mark.parametrize(("ranks_here", "has_room"), [("1", True), ("8", False)])
def test_the_ranks_of_a_node_share_its_room(
    mesh: DeviceMesh, monkeypatch: pytest.MonkeyPatch, ranks_here: str, has_room: bool
) -> None:
    job = Job(0, 1, torch.device("cpu"), mesh)
    room = Room(folder_bytes=8 * needed_bytes(TENSORS), memory_bytes=None)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", ranks_here)
    monkeypatch.setattr(shelf, "room_in", lambda _: room)
    plan = planned_buffers(job, TENSORS, Path("unused"), 2)
    assert (plan.num_buffers > 0) == has_room


def test_a_rank_whose_files_cannot_be_made_has_no_buffers(mesh: DeviceMesh, tmp_path: Path) -> None:
    job = Job(0, 1, torch.device("cpu"), mesh)
    assert open_buffers(job, TENSORS, tmp_path / "gone", 2) == []
