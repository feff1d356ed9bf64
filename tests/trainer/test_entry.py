"""The container's first process: refusals in one line, signals passed on, the right exit code."""

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.entry import launcher_arguments
from trainer.events import Event, read_events
from trainer.launch_rules import exit_code_for

ROOT = Path(__file__).parents[2]
SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "max_steps": 10,
    "model": {"preset": "tiny"},
    "data": {"sequence_length": 16, "global_batch_size": 4},
    "checkpoint": {"interval_steps": 5},
    "recovery": {"layer": "pod"},
}

# Prints when it is ready, then waits; says which signal came, and exits with 1 as launchers do.
LISTENER = """
import signal, sys
def tell(number, frame):
    print(signal.Signals(number).name, flush=True)
    sys.exit(1)
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, tell)
print('ready', flush=True)
while True:
    signal.pause()
"""

# Exits with 7 once a child of a child that is gone has left no trace, 8 if it stays a zombie.
ORPHAN_MAKER = """
import os, subprocess, sys, time
made = subprocess.run(['sh', '-c', 'sleep 0 >&- & echo $!'], capture_output=True, text=True)
deadline = time.monotonic() + 10
while os.path.exists(f'/proc/{int(made.stdout)}') and time.monotonic() < deadline:
    time.sleep(0.01)
sys.exit(8 if os.path.exists(f'/proc/{int(made.stdout)}') else 7)
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({**SETTINGS, "run_directory": str(tmp_path / "run")}))
    return path


def entry(settings: Path, *launcher: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "trainer.entry", "--settings", str(settings), "--", *launcher],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(settings: Path, *launcher: str, **environment: str) -> tuple[int, str]:
    """Exit code and stderr."""
    with entry(settings, *launcher, **environment) as process:
        _, complaints = process.communicate()
    return process.returncode, complaints


def events_of(settings: Path) -> list[Event]:
    return read_events(settings.parent / "run")


def one_line(text: str) -> str:
    (line,) = text.splitlines()
    return line


@pytest.mark.parametrize(
    ("launcher_code", "was_stopped", "expected"),
    [
        (0, False, 0),
        (0, True, 0),  # it had finished anyhow
        (1, True, 143),
        (1, False, 1),
        (-9, False, 137),
        (-15, True, 143),
    ],
)
def test_exit_code_says_whether_to_try_again(
    launcher_code: int, was_stopped: bool, expected: int
) -> None:
    assert exit_code_for(launcher_code, was_stopped=was_stopped) == expected


def test_only_the_pod_of_index_0_hosts_the_rendezvous() -> None:
    launcher = ["torchrun", "--rdzv-conf=is_host={is_host}"]
    assert launcher_arguments(launcher, 0) == ["torchrun", "--rdzv-conf=is_host=1"]
    assert launcher_arguments(launcher, 1) == ["torchrun", "--rdzv-conf=is_host=0"]


def test_pod_records_when_it_started_and_how_it_ended(settings: Path) -> None:
    assert run(settings, "sh", "-c", "exit 3", JOB_COMPLETION_INDEX="1") == (3, "")
    started, stopped = events_of(settings)
    assert (started["name"], started["pod"]) == ("pod_started", 1)
    assert (stopped["name"], stopped["pod"], stopped["exit_code"]) == ("pod_stopped", 1, 3)


def test_sigterm_reaches_the_launcher_and_the_pod_was_stopped(settings: Path) -> None:
    with entry(settings, sys.executable, "-c", LISTENER) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.stdout.read() == "SIGTERM\n"
    assert process.returncode == 143
    assert events_of(settings)[-1]["exit_code"] == 143


def test_a_sigterm_before_there_is_a_launcher_stops_the_pod_too(settings: Path) -> None:
    script = """
import signal, sys
from trainer import entry
entry.why_not_writable = lambda directory: signal.raise_signal(signal.SIGTERM)  # it takes long
sys.exit(entry.main(sys.argv[1:]))
"""
    (settings.parent / "run").mkdir()
    command = [sys.executable, "-c", script, "--settings", str(settings), "--", "sleep", "60"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (143, "")


def test_another_signal_is_passed_on_and_is_no_request_to_stop(settings: Path) -> None:
    with entry(settings, sys.executable, "-c", LISTENER) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGUSR1)
        assert process.stdout.read() == "SIGUSR1\n"
    assert process.returncode == 1


def test_a_signal_that_comes_as_the_launcher_ends_does_not_hide_how(settings: Path) -> None:
    script = "import os; print(os.getpid(), flush=True); input()"
    with entry(settings, sys.executable, "-c", script) as process:
        try:
            assert process.stdout is not None
            launcher = int(process.stdout.readline())
            process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            end = os.pidfd_open(launcher)
            os.kill(launcher, signal.SIGKILL)
            assert select.select([end], [], [], 10)[0]  # it has ended, and nobody waited for it
            os.close(end)
            process.terminate()
            process.send_signal(signal.SIGCONT)
            assert process.communicate(timeout=10) == ("", "")
        finally:
            process.kill()
    assert process.returncode == 143


def test_last_word_that_a_worker_left_is_the_pods(settings: Path, tmp_path: Path) -> None:
    exit_file = str(tmp_path / "exit")
    script = 'echo 78 the reason > "$STEADFAST_EXIT_FILE"; echo Traceback >&2; exit 1'
    code, errors = run(settings, "sh", "-c", script, STEADFAST_EXIT_FILE=exit_file)
    assert code == 78
    assert errors.splitlines() == ["Traceback", "steadfast: the reason"]


def test_code_left_by_an_earlier_launcher_is_not(settings: Path, tmp_path: Path) -> None:
    exit_file = tmp_path / "exit"
    exit_file.write_text("78")
    script = '[ -e "$STEADFAST_EXIT_FILE" ] && exit 2; touch "$STEADFAST_EXIT_FILE"; exit 1'
    assert run(settings, "sh", "-c", script, STEADFAST_EXIT_FILE=str(exit_file)) == (1, "")


def test_a_launcher_that_met_nobody_is_started_again_in_place(
    settings: Path, tmp_path: Path
) -> None:
    # Fails before it has started a worker, then starts one that fails for good.
    script = 'mkdir "$0" && exit 1; touch "$STEADFAST_EXIT_FILE"; exit 5'
    command = ("sh", "-c", script, str(tmp_path / "tried"))
    code, complaints = run(settings, *command, STEADFAST_EXIT_FILE=str(tmp_path / "exit"))
    assert code == 5
    assert "it tries again" in complaints
    assert len([e for e in events_of(settings) if e["name"] == "pod_started"]) == 1


def test_a_launcher_is_not_started_again_for_ever(settings: Path, tmp_path: Path) -> None:
    values = json.loads(settings.read_text())
    settings.write_text(json.dumps({**values, "timeouts": {"startup_seconds": 0.001}}))
    exit_file = str(tmp_path / "exit")
    assert run(settings, "sh", "-c", "exit 6", STEADFAST_EXIT_FILE=exit_file)[0] == 6


def test_a_launcher_that_does_not_know_its_options_is_not_started_again(
    settings: Path, tmp_path: Path
) -> None:
    exit_file = str(tmp_path / "exit")
    script = "echo unrecognized arguments >&2; exit 2"
    code, errors = run(settings, "sh", "-c", script, STEADFAST_EXIT_FILE=exit_file)
    assert (code, errors) == (78, "unrecognized arguments\n")


def test_a_launcher_that_was_interrupted_is_not_started_again(
    settings: Path, tmp_path: Path
) -> None:
    script = "echo ready; read never"
    exit_file = str(tmp_path / "exit")
    with entry(settings, "sh", "-c", script, STEADFAST_EXIT_FILE=exit_file) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        process.wait()  # before stdin is closed, which would end the shell as well
        assert process.communicate() == ("", "")
    assert process.returncode == 130


def test_orphans_are_waited_for(settings: Path) -> None:
    assert run(settings, sys.executable, "-c", ORPHAN_MAKER) == (7, "")


def test_a_misspelt_setting_is_one_line_and_final(settings: Path) -> None:
    settings.write_text(json.dumps({**SETTINGS, "run_directory": "/x", "max_step": 3}))
    code, complaints = run(settings, "true")
    assert code == 78
    assert "unknown setting 'max_step'; did you mean 'max_steps'?" in one_line(complaints)


def test_missing_settings_are_one_line_and_final(tmp_path: Path) -> None:
    code, complaints = run(tmp_path / "none.json", "true")
    assert code == 78
    assert "none.json: cannot be read (No such file or directory)" in one_line(complaints)


def test_a_run_folder_that_cannot_be_made_is_one_line_and_final(settings: Path) -> None:
    (settings.parent / "run").write_text("a file")
    code, complaints = run(settings, "true")
    assert code == 73
    line = one_line(complaints)
    assert f"run_directory {settings.parent / 'run'}: cannot be written (File exists)" in line
    assert "is the volume mounted" in line


def test_a_launcher_that_is_not_installed_is_one_line_and_final(settings: Path) -> None:
    code, complaints = run(settings, "no-such-launcher")
    assert code == 78
    assert "no-such-launcher: cannot be started" in one_line(complaints)
    assert [event["name"] for event in events_of(settings)] == ["pod_started", "pod_stopped"]
