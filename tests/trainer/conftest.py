"""What several tests of the trainer stand on."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tests.trainer.ranks import Crew


@pytest.fixture
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeviceMesh]:
    """A group of this process alone, gone again after the test."""
    store: Path = tmp_path_factory.mktemp("group") / "store"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    try:
        yield init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


@pytest.fixture(scope="session")
def crew() -> Iterator[Crew]:
    """Two ranks, started when first called and kept for all tests of the session."""
    with Crew(2) as crew:
        yield crew


@pytest.fixture(scope="session")
def crew_of(crew: Crew) -> Iterator[Callable[[int], Crew]]:
    """A crew of so many ranks, started when first called and kept for the session."""
    crews = {2: crew}
    with ExitStack() as stack:

        def crew_of_size(world_size: int) -> Crew:
            if world_size not in crews:
                crews[world_size] = stack.enter_context(Crew(world_size))
            return crews[world_size]

        yield crew_of_size
