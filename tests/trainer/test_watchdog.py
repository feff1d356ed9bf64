"""The watchdog: what a rank that hangs leaves behind, whom it tells, and how it ends."""

import subprocess
import sys
from pathlib import Path

import pytest

from trainer.diagnosis.stack_file import StackFile
from trainer.watchdog import Watchdog

ROOT = Path(__file__).parents[2]
TOLD = "told the layer\n"

START = """
import ctypes, os, select, sys, time
from pathlib import Path
from trainer import watchdog as module
from trainer.watchdog import Watchdog
module.GRACE_SECONDS, module.RESTART_GRACE_SECONDS = 0.5, 0.5
module.save_collectives = lambda folder, rank: None  # it would import torch
def watch(exits, report_hang=None, seconds=0.1):
    watchdog = Watchdog(Path(sys.argv[1]), rank=3, seconds=seconds, shortest=0.1, exits=exits)
    watchdog.expect_progress()
    watchdog.begin_attempt(7, 3, report_hang)
    return watchdog
def stuck_in_a_collective(seconds=None):
    select.select([os.pipe()[0]], [], [], seconds)
def stuck_with_the_interpreter():
    ctypes.PyDLL(None).pause()
"""


def run(script: str, run_directory: Path) -> tuple[int, str, str]:
    """Exit code, stdout, and what attempt 7 of rank 3 has left without its first line."""
    process = subprocess.run(
        [sys.executable, "-c", START + script, str(run_directory)],
        cwd=ROOT,
        check=False,
        timeout=30,
        capture_output=True,
        text=True,
    )
    left = (run_directory / "stacks/attempt-7/rank-3.txt").read_text()
    header, _, rest = left.partition("\n")
    assert '"rank": 3' in header
    return process.returncode, process.stdout, rest


def test_a_rank_that_hangs_leaves_its_stacks_and_ends(tmp_path: Path) -> None:
    code, _, stacks = run("watch(exits=True); stuck_in_a_collective()", tmp_path)
    assert code == 1
    assert "no progress for 0." in stacks
    assert "stuck_in_a_collective" in stacks


def test_a_rank_that_hangs_holding_the_interpreter_leaves_its_stacks_and_ends(
    tmp_path: Path,
) -> None:
    code, _, stacks = run("watch(exits=True); stuck_with_the_interpreter()", tmp_path)
    assert code == 1
    assert "no progress" not in stacks  # the thread never came to say so
    assert "stuck_with_the_interpreter" in stacks


def test_a_rank_that_another_layer_watches_only_leaves_its_stacks(tmp_path: Path) -> None:
    code, _, stacks = run("watch(exits=False); stuck_in_a_collective(1)", tmp_path)
    assert code == 0
    assert "stuck_in_a_collective" in stacks


def test_a_layer_that_can_restart_the_rank_is_told_after_the_stacks_are_saved(
    tmp_path: Path,
) -> None:
    script = """
def report_hang():
    left = Path(sys.argv[1], "stacks/attempt-7/rank-3.txt").read_text()
    print("told the layer" if "stuck_in_a_collective" in left else "too early", flush=True)
watch(False, report_hang)
stuck_in_a_collective(1)
"""
    code, out, _ = run(script, tmp_path)
    assert (code, out) == (0, TOLD)


def test_a_layer_that_cannot_be_told_ends_no_watch(tmp_path: Path) -> None:
    script = """
def report_hang():
    print("told the layer", flush=True)
    raise ConnectionError("its monitor is gone")
watchdog = watch(False, report_hang)
stuck_in_a_collective(1)
watchdog.begin_attempt(7, 3, report_hang)
watchdog.expect_progress()
stuck_in_a_collective(1)
"""
    assert run(script, tmp_path)[:2] == (0, 2 * TOLD)


def test_a_rank_that_completes_a_step_after_all_says_so(tmp_path: Path) -> None:
    script = """
watchdog = watch(False)
stuck_in_a_collective(1)
watchdog.expect_progress(within=60)
watchdog.count_step(1.0)
watchdog.count_step(0.1)
"""
    _, _, stacks = run(script, tmp_path)
    assert "stuck_in_a_collective" in stacks
    assert stacks.endswith("\nprogress again\n")
    assert stacks.count("progress again") == 1


def test_a_restart_after_a_hang_is_no_progress(tmp_path: Path) -> None:
    script = """
watchdog = watch(False)
stuck_in_a_collective(1)
watchdog.expect_progress(within=60)
watchdog.begin_attempt(8, 3, None)
watchdog.count_step(0.1)
"""
    assert "progress again" not in run(script, tmp_path)[2]
    assert "progress again" not in (tmp_path / "stacks/attempt-8/rank-3.txt").read_text()


def test_a_sigterm_that_comes_between_two_attempts_is_noted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watchdog = Watchdog(tmp_path, rank=0, seconds=60, shortest=5, exits=False)
    watchdog.begin_attempt(1, 0, None)

    class SlowToOpen(StackFile):
        def __init__(self, folder: Path, rank: int) -> None:
            watchdog.note_stop()  # as the handler does, between any two bytecodes
            super().__init__(folder, rank)

    monkeypatch.setattr("trainer.watchdog.StackFile", SlowToOpen)
    watchdog.begin_attempt(2, 0, None)
    watchdog.stop()
    assert "told to stop\n" in (tmp_path / "stacks/attempt-1/rank-0.txt").read_text()


def test_a_hang_that_the_layer_does_not_end_ends_the_process(tmp_path: Path) -> None:
    script = "watch(True, lambda: print('told the layer', flush=True)); stuck_in_a_collective()"
    assert run(script, tmp_path)[:2] == (1, TOLD)


def test_a_phase_that_was_announced_may_take_longer(tmp_path: Path) -> None:
    script = "watch(exits=True).expect_progress(within=60); stuck_in_a_collective(1)"
    assert run(script, tmp_path) == (0, "", "")


def test_a_run_that_knows_its_pace_notices_a_hang_sooner(tmp_path: Path) -> None:
    script = """
watchdog = watch(True, seconds=600)
for _ in range(6):
    watchdog.count_step(0.001)
watchdog.expect_progress()
stuck_in_a_collective()
"""
    assert run(script, tmp_path)[0] == 1


def test_the_next_attempt_in_a_process_knows_the_pace_too(tmp_path: Path) -> None:
    script = """
watchdog = watch(True, seconds=600)
for _ in range(6):
    watchdog.count_step(0.001)
watchdog.begin_attempt(7, 3, None)
watchdog.expect_progress()
stuck_in_a_collective()
"""
    assert run(script, tmp_path)[0] == 1


def test_a_disk_that_is_full_stops_no_watchdog(tmp_path: Path) -> None:
    (tmp_path / "stacks").touch()  # no folder can be made there
    watchdog = Watchdog(tmp_path, rank=0, seconds=60, shortest=5, exits=False)
    watchdog.begin_attempt(1, 0, None)
    watchdog.expect_progress()
    watchdog.stop()


def test_a_rank_without_progress_for_half_the_deadline_seems_hung(tmp_path: Path) -> None:
    patient = Watchdog(tmp_path, rank=0, seconds=1000.0, shortest=5, exits=False)
    strict = Watchdog(tmp_path, rank=1, seconds=1e-9, shortest=1e-9, exits=False)
    try:
        assert not patient.seems_hung()
        assert strict.seems_hung()
    finally:
        patient.stop()
        strict.stop()
