"""Standby processes whose workers run a line of Python from their environment, without torch."""

import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]

# Arguments: where to listen. Says when it is ready, as the real one's socket does.
STANDBY = """
import os, sys
from trainer.parent_death import die_with
from trainer.standby.process import take_over
from trainer.standby.server import Standby
die_with(os.getppid())
standby = Standby(sys.argv[1], lambda: None)
print('ready', flush=True)
forked = standby.serve()
take_over(forked.order, forked.descriptors)
exec(os.environ['MAIN'])
"""

# What a launcher starts: `trainer.train`, with another main.
WORKER = """
from trainer.standby.client import train_in_a_fork
train_in_a_fork()
import os
exec(os.environ['MAIN'])
"""


WAIT = "print(os.getpid(), flush=True); input()"


class Worker(subprocess.Popen[str]):
    """A failed assertion leaves the block too, and must not wait for a worker that waits."""

    def __exit__(self, *reason: Any) -> None:
        self.kill()
        super().__exit__(*reason)


@contextmanager
def standing_by(script: str = STANDBY) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its address, and the process, which is ready."""
    with tempfile.TemporaryDirectory() as folder:
        address = f"{folder}/standby"
        process = subprocess.Popen(
            [sys.executable, "-c", script, address],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        with process:
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
                yield address, process
            finally:
                process.kill()


def worker(
    main: str,
    *,
    standby: str,
    script: str = WORKER,
    environment: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Worker:
    """As launchers start one: in a session of its own, all descriptors piped."""
    return Worker(
        [sys.executable, "-c", script, *arguments],
        cwd=ROOT,
        env={**os.environ, "MAIN": main, "STEADFAST_STANDBY": standby, **(environment or {})},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def ended(process: Worker, stdin: str | None = None) -> tuple[int, str, str]:
    with process:
        out, err = process.communicate(stdin, timeout=20)
        return process.returncode, out, err


def is_gone(pid: int) -> bool:
    """Whether it ends within 10 s."""
    try:
        end = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([end], [], [], 10)[0])
    finally:
        os.close(end)
