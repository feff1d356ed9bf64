"""The watchdog: stacks of a rank that hangs are kept, and its end comes if asked for."""

import subprocess
import sys
from pathlib import Path

from trainer.watchdog import Watchdog

ROOT = Path(__file__).parents[2]

# Waiting for a pipe that nobody writes to is one long call in C.
HANG = """
import os, select, sys
from pathlib import Path
from trainer.watchdog import Watchdog
def stuck_in_a_collective(seconds=None):
    select.select([os.pipe()[0]], [], [], seconds)
"""


def run(script: str, stacks: Path) -> tuple[int, str]:
    """Exit code, and what the stacks file holds."""
    process = subprocess.run(
        [sys.executable, "-c", HANG + script, str(stacks)],
        cwd=ROOT,
        check=False,
        timeout=30,
        capture_output=True,
        text=True,
    )
    assert (process.stdout, process.stderr) == ("", "")
    return process.returncode, stacks.read_text()


def test_a_rank_that_hangs_leaves_its_stacks_and_ends(tmp_path: Path) -> None:
    script = """
watchdog = Watchdog(Path(sys.argv[1]), seconds=0.1, exits=True)
watchdog.expect_progress()
stuck_in_a_collective()
"""
    code, stacks = run(script, tmp_path / "stacks/rank-0.txt")
    assert code == 1
    assert "stuck_in_a_collective" in stacks


def test_a_rank_that_another_layer_watches_only_leaves_its_stacks(tmp_path: Path) -> None:
    script = """
watchdog = Watchdog(Path(sys.argv[1]), seconds=0.1, exits=False)
watchdog.expect_progress()
stuck_in_a_collective(0.5)
"""
    code, stacks = run(script, tmp_path / "stacks.txt")
    assert code == 0
    assert "stuck_in_a_collective" in stacks


def test_a_phase_that_was_announced_may_take_longer(tmp_path: Path) -> None:
    script = """
watchdog = Watchdog(Path(sys.argv[1]), seconds=0.1, exits=True)
watchdog.expect_progress()
watchdog.expect_progress(within=60)
stuck_in_a_collective(0.5)
"""
    assert run(script, tmp_path / "stacks.txt") == (0, "")


def test_a_rank_without_progress_for_half_the_deadline_seems_hung(tmp_path: Path) -> None:
    patient = Watchdog(tmp_path / "stacks.txt", seconds=1000.0, exits=False)
    strict = Watchdog(tmp_path / "stacks.txt", seconds=1e-9, exits=False)
    try:
        assert not patient.seems_hung()
        assert strict.seems_hung()
    finally:
        patient.stop()
        strict.stop()
