"""Two pods with a courier each, in folders of shared memory that are gone after the test."""

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.trainer.peers.pods import Pod, courier


@pytest.fixture
def two_pods() -> Iterator[tuple[Pod, Pod]]:
    with ExitStack() as stack:
        folders = [
            Path(stack.enter_context(tempfile.TemporaryDirectory(dir="/dev/shm"))) for _ in range(2)
        ]
        sender, receiver = (stack.enter_context(courier(folder)) for folder in folders)
        receiver.await_shards(range(4))
        yield sender, receiver
