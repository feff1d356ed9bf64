"""SIGTERM: a rank that steps goes on to its next boundary; any other ends at once."""

import signal
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

START = """
import ctypes, signal, sys, time
from pathlib import Path
from trainer.stopping import StopSignal
from trainer.watchdog import Watchdog
def rank(seconds):
    watchdog = Watchdog(Path(sys.argv[1]), rank=0, seconds=seconds, shortest=5, exits=False)
    return StopSignal(watchdog, drain_seconds=20)
def hang():
    print('hangs', flush=True)
    while True:
        time.sleep(0.01)
"""


def run(script: str, tmp_path: Path) -> tuple[int, str]:
    """Exit code and stdout of a rank that tells itself to stop, or is told once it hangs."""
    command = [sys.executable, "-c", START + script, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        if said == "hangs\n":
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout=10)
        finally:
            process.kill()
        said += process.stdout.read()
    return process.returncode, said


def test_a_rank_that_steps_is_asked_and_not_ended(tmp_path: Path) -> None:
    script = """
stop = rank(seconds=1000)
with stop.heeded_after_each_step():
    print(stop.requested)
    signal.raise_signal(signal.SIGTERM)
    print(stop.requested)
"""
    assert run(script, tmp_path) == (0, "False\nTrue\n")


def test_whatever_is_saved_after_sigterm_has_one_deadline_in_all(tmp_path: Path) -> None:
    script = """
stop = rank(seconds=1000)
with stop.heeded_after_each_step():
    print(stop.drained_by)
    signal.raise_signal(signal.SIGTERM)
    first = stop.drained_by
    print(19 < first - time.monotonic() <= 20)
    signal.raise_signal(signal.SIGTERM)
    stop.request()
    print(stop.drained_by == first)
"""
    assert run(script, tmp_path) == (0, "inf\nTrue\nTrue\n")


def test_a_rank_that_hangs_in_a_step_ends_at_once(tmp_path: Path) -> None:
    script = """
with rank(seconds=1e-9).heeded_after_each_step():
    hang()
"""
    assert run(script, tmp_path) == (143, "hangs\n")


def test_a_rank_that_has_not_begun_to_step_ends_at_once(tmp_path: Path) -> None:
    script = """
stop = rank(seconds=1000)
hang()
"""
    assert run(script, tmp_path) == (143, "hangs\n")


def test_a_rank_between_two_attempts_ends_at_once(tmp_path: Path) -> None:
    script = """
stop = rank(seconds=1000)
try:
    with stop.heeded_after_each_step():
        raise ConnectionError('a peer is gone')
except ConnectionError:
    hang()
"""
    assert run(script, tmp_path) == (143, "hangs\n")


def test_a_rank_that_fails_after_it_was_told_to_stop_was_stopped(tmp_path: Path) -> None:
    script = """
with rank(seconds=1000).heeded_after_each_step():
    signal.raise_signal(signal.SIGTERM)
    print('saving', flush=True)
    raise ConnectionError('a peer is gone')
"""
    assert run(script, tmp_path) == (143, "saving\n")


def test_a_failure_without_sigterm_is_the_recovery_layers(tmp_path: Path) -> None:
    script = """
try:
    with rank(seconds=1000).heeded_after_each_step():
        raise ConnectionError('a peer is gone')
except ConnectionError as error:
    print(error)
"""
    assert run(script, tmp_path) == (0, "a peer is gone\n")


def test_a_rank_that_hangs_in_c_ends_at_once(tmp_path: Path) -> None:
    """The main thread's handler never runs, as in a collective that waits for another rank."""
    script = """
with rank(seconds=1e-9).heeded_after_each_step():
    mutex = ctypes.create_string_buffer(64)
    print('hangs', flush=True)
    while True:  # the second one waits for itself, and no signal interrupts it
        ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""
    assert run(script, tmp_path) == (143, "hangs\n")


def test_a_rank_that_is_told_to_stop_says_so_beside_its_stacks(tmp_path: Path) -> None:
    script = """
stop = rank(seconds=1000)
with stop.heeded_after_each_step():
    signal.raise_signal(signal.SIGTERM)
"""
    assert run(script, tmp_path) == (0, "")
    assert "told to stop" in (tmp_path / "stacks/rank-0.txt").read_text()
