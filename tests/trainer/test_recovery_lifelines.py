"""What in-process restart hangs on: once it is gone the process ends, however silently it went."""

import datetime
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from trainer.recovery.agent_store import AgentStore

ROOT = Path(__file__).parents[2]
HOST = """
import sys
import torch.distributed as dist
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""
WATCH = """
import sys, threading, time
import torch.distributed as dist
from trainer.recovery.lifelines import watch_lifelines
port, monitor, leaves = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "leaves"
store = dist.TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False)
leaving = threading.Event()
watch_lifelines(store, monitor, silence_seconds=2, leaving=leaving)
if leaves:
    leaving.set()
print("watches", flush=True)
sys.stdin.read()
sys.exit(5)
"""

pytestmark = pytest.mark.distributed


@contextmanager
def python(script: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process, ended after the block, and the first line that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.fixture
def host() -> Iterator[tuple[subprocess.Popen[str], str]]:
    with python(HOST) as (process, port):
        yield process, port


@pytest.mark.parametrize(
    ("number", "words"), [(signal.SIGKILL, "is gone"), (signal.SIGSTOP, "has not answered for 3 s")]
)
def test_a_process_ends_once_its_store_is_gone_or_silent(
    number: signal.Signals, words: str, host: tuple[subprocess.Popen[str], str]
) -> None:
    with python(WATCH, host[1], str(os.getpid()), "stays") as (watcher, _):
        host[0].send_signal(number)
        assert watcher.wait(timeout=20) == 1
        assert watcher.stderr is not None
        assert words in watcher.stderr.read()


def test_a_process_ends_once_its_monitor_is_gone(
    host: tuple[subprocess.Popen[str], str],
) -> None:
    with ExitStack() as stack:
        monitor, _ = stack.enter_context(python("print(); import sys; sys.stdin.read()"))
        watcher, _ = stack.enter_context(python(WATCH, host[1], str(monitor.pid), "stays"))
        monitor.kill()
        assert watcher.wait(timeout=20) == 1


def test_who_leaves_is_not_ended_for_a_store_that_left_before(
    host: tuple[subprocess.Popen[str], str],
) -> None:
    with python(WATCH, host[1], str(os.getpid()), "leaves") as (watcher, _):
        host[0].kill()
        host[0].wait()
        _, errors = watcher.communicate(timeout=20)
        assert (watcher.returncode, errors) == (5, "")


def test_the_host_of_the_store_waits_only_so_long_for_the_last_rank(
    host: tuple[subprocess.Popen[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    second = datetime.timedelta(seconds=1)
    store = AgentStore("127.0.0.1", int(host[1]), second)
    store.termination_barrier(ranks=[1], rendezvous_count=2, timeout=datetime.timedelta.max)


def test_a_rank_takes_leave_of_a_store_that_is_gone(
    host: tuple[subprocess.Popen[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    store = AgentStore("127.0.0.1", int(host[1]), datetime.timedelta(seconds=30))
    host[0].kill()
    host[0].wait()
    store.termination_barrier(ranks=[1], rendezvous_count=2, timeout=datetime.timedelta(0))
