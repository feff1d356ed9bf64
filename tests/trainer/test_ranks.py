"""The tests' own ranks: none outlives the tests that started it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.ranks import has_ended, pid_of
from trainer.checkpoint.background import BackgroundWorker
from trainer.checkpoint.shard_file import warm_up
from trainer.distributed import Job

ROOT = Path(__file__).parents[2]

TESTS = """
from tests.trainer.ranks import Crew
from tests.trainer.test_ranks import tell_and_hang
Crew(1).call(tell_and_hang)
"""

pytestmark = pytest.mark.distributed


def tell_and_hang(_: Job) -> None:
    worker = BackgroundWorker()
    worker.start(warm_up)
    os.write(1, f"{os.getpid()} {pid_of(worker)}\n".encode())
    os.read(os.pipe()[0], 1)


@pytest.mark.timeout(120)
def test_a_rank_that_hangs_and_its_worker_die_with_the_tests() -> None:
    command = [sys.executable, "-c", TESTS]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as tests:
        assert tests.stdout is not None
        pidfds = [os.pidfd_open(int(pid)) for pid in tests.stdout.readline().split()]
        tests.kill()
    assert len(pidfds) == 2
    assert [has_ended(pidfd) for pidfd in pidfds] == [True, True]
