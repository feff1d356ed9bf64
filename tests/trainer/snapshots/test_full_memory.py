"""Where one rank gets no memory for its snapshots after all, no rank takes any, and all go on."""

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.ranks import Crew
from tests.trainer.snapshots.test_snapshots import Rank, folder_of
from trainer.distributed import Job


@pytest.fixture
def small(folder: Path) -> Iterator[Path]:
    """Of rank 1: a file system of 16 MiB, as a pod's /dev/shm is one of its own."""
    mounted = folder / "node-1"
    mounted.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(mounted)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("file systems may not be mounted here")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "--lazy", mounted], check=True)


class Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.sentences: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.sentences.append(record.getMessage())


def fill_up(folder: Path) -> None:
    free = os.statvfs(folder)
    with (folder / "of-others").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_bsize)


def train(job: Job, shared: Path, fills: bool) -> tuple[list[str], list[bool], list[str]]:
    """What was said, whether memory was still awaited after each step, and what is left."""
    folder, said = folder_of(job, shared), Said()
    rank = Rank(job, folder)
    logging.getLogger("trainer.snapshots").addHandler(said)
    try:
        rank.restore()
        if fills and job.rank == 1:
            fill_up(folder)
        awaited = []
        for step in range(1, 4):
            rank.step(step)
            awaited.append(rank.snapshots.is_pinning)
        rank.snapshots.close()
        assert rank.restore() == (3, "live")
        rank.steps(4, 5)
    finally:
        logging.getLogger("trainer.snapshots").removeHandler(said)
    awaited.append(rank.snapshots.is_pinning)
    return said.sentences, awaited, sorted(each.name for each in folder.iterdir())


def test_a_file_system_that_fills_up_ends_the_snapshots_of_all_ranks_in_words(
    crew: Crew, folder: Path, small: Path
) -> None:
    on_zero, on_one = crew.call(train, folder, True)
    # The first step asks for the memory, and the second tells that there is none.
    assert on_zero == ([], [True, False, False, False], [])
    ((sentence,), *others) = on_one
    assert f"{small / 'rank-1-0'}: No space left on device" in sentence
    assert others == [[True, False, False, False], ["of-others"]]


def test_where_one_rank_cannot_make_its_file_no_rank_waits_for_it(crew: Crew, folder: Path) -> None:
    in_its_place = folder / "node-1" / "rank-1-0"
    in_its_place.mkdir(parents=True)
    on_zero, on_one = crew.call(train, folder, False)
    assert on_zero == ([], [False] * 4, [])
    ((sentence,), *_) = on_one
    assert sentence.endswith(f"Is a directory: '{in_its_place}'")
