"""When the pod ends with its launcher, when another starts in place, and what is left between."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.launch_rules import Ending, pod_exit_code

ROOT = Path(__file__).resolve().parents[2]

# The launcher is a shell script; looks and patience are short, the rules those of argv[1:4].
PID_1 = """
import sys
import trainer.launching as launching
from trainer.launch_rules import Rules
launching.LOOK_SECONDS = launching.REJOIN_PAUSE_SECONDS = 0.02
launching.WORD_PATIENCE_SECONDS = 0.2
launching.ALONE_SECONDS = 0.2
layer, rejoin_seconds, claims, shell, script = sys.argv[1:]
rules = Rules(
    in_place=layer == 'in_job', rejoin_seconds=float(rejoin_seconds), stopped_seconds=0.2,
    most_starts=3, newest_attempt=lambda: len(open(claims).read()),
)
sys.exit(launching.Launcher([shell, '-c', script], rules).run())
"""

FAILED = Ending(code=1, has_worked=True)


@pytest.mark.parametrize(
    ("ending", "in_place", "expected"),
    [
        (FAILED, False, 1),
        (FAILED, True, None),
        (Ending(code=-9, has_worked=True), True, None),  # the launcher itself was killed
        (Ending(code=-9, has_worked=True), False, 137),
        (Ending(code=1, has_worked=False), False, None),  # it found no other pod
        (Ending(code=2, has_worked=False), True, 78),  # it refused its command line
        (Ending(code=1, has_worked=True, is_late=True), True, 1),
        (Ending(code=1, has_worked=True, signals=(signal.SIGTERM,)), True, 143),
        (Ending(code=1, has_worked=True, final_word=(69, "node")), True, 69),
        (Ending(code=1, has_worked=True, final_word=(0, "done")), True, 0),
        (Ending(code=0, has_worked=True, final_word=(0, "done")), True, 0),
        (Ending(code=0, has_worked=True), False, 1),  # a rank left with 0 in mid-run
        (Ending(code=0, has_worked=True), True, None),
        (Ending(code=0, has_worked=False), True, 0),  # a spare that was never needed
    ],
)
def test_how_a_launcher_ended_decides_about_the_pod(
    ending: Ending, in_place: bool, expected: int | None
) -> None:
    assert pod_exit_code(ending, in_place=in_place) == expected


def run(
    tmp_path: Path,
    script: str,
    *,
    layer: str = "in_job",
    rejoin: float = 60,
    shell: str = "sh",
) -> tuple[int, str]:
    """Exit code of the pod and its stderr; the script works in ``tmp_path``."""
    (tmp_path / "claims").touch()
    done = subprocess.run(
        [sys.executable, "-c", PID_1, layer, str(rejoin), str(tmp_path / "claims"), shell, script],
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "STEADFAST_EXIT_FILE": str(tmp_path / "exit"),
        },
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return done.returncode, done.stderr


def test_a_launcher_that_was_killed_starts_again_and_its_workers_are_gone(tmp_path: Path) -> None:
    script = """
        touch exit
        if [ -e worker ]; then
            kill -0 $(cat worker) 2>/dev/null && echo 70 it lives > exit || echo 0 done > exit
            exit 1
        fi
        setsid sleep 60 & echo $! > worker
        kill -KILL $$
    """
    code, errors = run(tmp_path, script)
    assert code == 0
    assert errors == "steadfast: the launcher ended with -9 in mid-run; it tries again\n"


def test_a_launcher_that_fails_while_the_run_gets_nowhere_ends_the_pod(tmp_path: Path) -> None:
    assert run(tmp_path, "touch exit; echo >> tries; exit 4", rejoin=0.3)[0] == 4
    assert len((tmp_path / "tries").read_text()) > 1


def test_a_launcher_that_fails_after_an_attempt_has_its_time_anew(tmp_path: Path) -> None:
    script = """
        touch exit
        [ -s claims ] && echo 0 done > exit
        printf x >> claims
        sleep 0.3
        exit 4
    """
    assert run(tmp_path, script, rejoin=0.2)[0] == 0


@pytest.mark.parametrize("deaf", ["", "trap '' TERM;"])
def test_a_launcher_that_runs_on_after_a_final_word_is_ended(tmp_path: Path, deaf: str) -> None:
    script = f"{deaf} touch exit; echo 70 it repeats > exit; exec sleep 60"
    code, errors = run(tmp_path, script)
    assert (code, errors) == (70, "steadfast: it repeats\n")


def test_an_end_with_0_before_the_run_is_done_is_a_failure(tmp_path: Path) -> None:
    code, errors = run(tmp_path, "touch exit", layer="pod")
    assert code == 1
    assert "a rank left in mid-run" in errors
    assert run(tmp_path, "echo 0 the run is done > exit", layer="pod") == (0, "")


def test_a_launcher_that_stays_after_workers_left_with_0_in_mid_run_is_ended(
    tmp_path: Path,
) -> None:
    code, errors = run(tmp_path, "touch exit; exec sleep 60", layer="pod")
    assert code == 1
    assert "the workers left before the run was done, and the launcher stayed" in errors


def test_a_launcher_that_stays_while_it_has_a_worker_is_left_alone(tmp_path: Path) -> None:
    script = """
        touch exit
        sh -c 'sleep 0.6; echo 0 the run is done > exit'
    """
    assert run(tmp_path, script, layer="pod") == (0, "")


def test_a_launcher_that_stays_in_a_pod_that_is_stopping_is_left_alone(tmp_path: Path) -> None:
    script = """
        trap 'read -t 0.6 nothing <> pipe; exit 1' TERM
        touch exit
        kill -TERM $PPID
        read nothing <> pipe
    """
    os.mkfifo(tmp_path / "pipe")
    assert run(tmp_path, script, layer="pod", shell="bash") == (143, "")


def test_a_launcher_that_starts_workers_again_may_stay_without_any(tmp_path: Path) -> None:
    script = """
        touch exit
        read -t 0.6 nothing <> pipe
        echo 0 the run is done > exit
    """
    os.mkfifo(tmp_path / "pipe")
    assert run(tmp_path, script, shell="bash") == (0, "")


def test_a_worker_that_stays_stopped_is_killed(tmp_path: Path) -> None:
    script = "touch exit; sh -c 'kill -STOP $$'; echo $? > ended; exit 6"
    code, errors = run(tmp_path, script, layer="pod")
    assert code == 6
    assert (tmp_path / "ended").read_text() == "137\n"
    assert "has been stopped for 0.2 s; it is killed" in errors


def test_workers_that_start_again_and_again_without_an_attempt_end_the_pod(tmp_path: Path) -> None:
    script = "for i in $(seq 200); do touch exit; sleep 0.05; done"
    code, errors = run(tmp_path, script)
    assert code == 1
    assert "workers started 4 times and made no attempt" in errors


def test_workers_that_start_again_for_new_attempts_may_go_on(tmp_path: Path) -> None:
    script = """
        for i in $(seq 8); do printf x >> claims; touch exit; sleep 0.05; done
        echo 0 done > exit
    """
    assert run(tmp_path, script) == (0, "")
