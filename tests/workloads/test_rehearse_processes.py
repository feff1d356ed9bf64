"""Rehearsed Jobs whose pods are real processes of this computer."""

import dataclasses
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.rehearsal_jobs import (
    PORT,
    SETTINGS_PATH,
    documents,
    fail_job_on,
    is_alive,
    pids_with,
)
from tests.workloads.rehearsal_jobs import places as places_in
from workloads.rehearsal.interrupts import Interrupts
from workloads.rehearsal.job import RehearsalError, read_job
from workloads.rehearsal.pod_plan import Places
from workloads.rehearsal.run_job import JobResult, Limits, run_job
from workloads.rehearsal.this_computer import free_ports

pytestmark = pytest.mark.distributed

SHORT = Limits(backoff_factor=0.001, seconds=30.0)

# Opening a fifo waits for the other end, so it is how a pod waits for another, or for ever.
WAIT_FOR_EVER = "import os; os.mkfifo('/fsx/never'); open('/fsx/never').read()"


class Silent:
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def tick(self, *, num_replaced: int) -> None:
        self.num_replaced = num_replaced

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    here = places_in(tmp_path, port=free_ports([PORT])[PORT])
    here.pods.mkdir(parents=True)
    return dataclasses.replace(here, python=sys.executable)


@pytest.fixture
def fsx(places: Places) -> Path:
    folder = places.volume("fsx")
    folder.mkdir(parents=True)
    return folder


def run(places: Places, script: str, *, limits: Limits = SHORT, **options: Any) -> JobResult:
    job = read_job(documents("python", "-c", script, **options))
    with Interrupts() as interrupts:
        return run_job(job, places, limits, interrupts=interrupts, watcher=Silent())


def test_a_failed_pod_is_replaced_by_one_with_a_log_of_its_own(places: Places) -> None:
    script = """
import pathlib, sys
tried = pathlib.Path('/fsx/tried')
print('again' if tried.exists() else 'first', flush=True)
sys.exit(0 if tried.exists() else tried.write_text('') or 1)
"""
    result = run(places, script)
    assert (result.outcome, result.num_pods, result.failed_pod) == ("complete", 2, None)
    assert (places.pods / "demo-0-r0.log").read_text() == "first\n"
    assert (places.pods / "demo-0-r1.log").read_text() == "again\n"


def test_a_spent_index_fails_the_job_and_ends_its_peer(places: Places, fsx: Path) -> None:
    script = f"""
import os
if os.environ['JOB_COMPLETION_INDEX'] == '0':
    open('/fsx/pid', 'w').write(str(os.getpid()))
    open('/fsx/up', 'w').close()
    {WAIT_FOR_EVER}
open('/fsx/up').read()
print(*range(9), sep='\\n')
raise SystemExit(3)
"""
    os.mkfifo(fsx / "up")
    result = run(places, script, completions=2, backoff_limit=0)
    assert (result.outcome, result.reason) == ("failed", "MaxFailedIndexesExceeded")
    assert result.failed_pod is not None
    assert (result.failed_pod.index, result.failed_pod.exit_code) == (1, 3)
    assert result.failed_pod.last_lines == ("4", "5", "6", "7", "8")
    assert not is_alive(int((fsx / "pid").read_text()))


def test_temporary_files_go_with_their_pod(places: Places) -> None:
    script = "import tempfile; print(tempfile.mkstemp(dir='/tmp')[1], tempfile.mkstemp()[1])"
    assert run(places, script).outcome == "complete"
    written = (places.pods / "demo-0-r0.log").read_text().split()
    assert [Path(each).parent for each in written] == [places.scratch / "0-r0/tmp"] * 2
    assert not list(places.scratch.iterdir())


def test_a_final_exit_code_is_not_tried_again(places: Places) -> None:
    result = run(places, "raise SystemExit(78)", rules=[fail_job_on(64, 78)])
    assert (result.outcome, result.reason, result.num_pods) == ("failed", "PodFailurePolicy", 1)


def test_a_pod_killed_by_a_signal_exits_as_a_container_would(places: Places) -> None:
    result = run(places, "import os; os.kill(os.getpid(), 9)", rules=[fail_job_on(137)])
    assert result.failed_pod is not None
    assert result.failed_pod.exit_code == 137


def test_a_grandchild_in_a_session_of_its_own_dies_with_its_pod(places: Places, fsx: Path) -> None:
    os.mkfifo(fsx / "up")
    child = f"open('/fsx/up', 'w').close(); {WAIT_FOR_EVER}"
    script = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, '-c', {child!r}], start_new_session=True)
open('/fsx/pid', 'w').write(str(child.pid))
open('/fsx/up').read()
"""
    assert run(places, script).outcome == "complete"
    assert not is_alive(int((fsx / "pid").read_text()))


def test_semaphores_of_a_pod_that_left_in_a_hurry_go_with_it(places: Places, fsx: Path) -> None:
    script = (
        "import multiprocessing, os, pathlib\n"
        "semaphore = multiprocessing.get_context('spawn').Semaphore()\n"
        "pathlib.Path('/fsx/name').write_text(semaphore._semlock.name)\n"
        "os._exit(0)\n"
    )
    assert run(places, script).outcome == "complete"
    name = (fsx / "name").read_text()
    assert not Path(f"/dev/shm/sem.{name.removeprefix('/')}").exists()


def test_snapshots_of_a_pod_whose_first_process_was_killed_go_with_it(
    places: Places, fsx: Path
) -> None:
    script = (
        "import os, pathlib, signal\n"
        "from trainer.snapshots.folder import owned_memory\n"
        "with owned_memory(pathlib.Path('/fsx/run'), 0):\n"
        "    folder = os.environ['STEADFAST_MEMORY']\n"
        "    pathlib.Path(folder, 'buffer').write_text('a snapshot')\n"
        "    pathlib.Path('/fsx/folder').write_text(folder)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert run(places, script, rules=[fail_job_on(137)]).outcome == "failed"
    folder = Path((fsx / "folder").read_text())
    assert folder.parent == Path("/dev/shm")
    assert not folder.exists()


def test_a_deleted_pod_may_use_its_grace_period_to_save(places: Places, fsx: Path) -> None:
    os.mkfifo(fsx / "up")
    script = f"""
import os, signal
if os.environ['JOB_COMPLETION_INDEX'] == '0':
    def save(*_):
        open('/fsx/saved', 'w').close()
        raise SystemExit(0)
    signal.signal(signal.SIGTERM, save)
    open('/fsx/up', 'w').close()
    {WAIT_FOR_EVER}
open('/fsx/up').read()
raise SystemExit(1)
"""
    assert run(places, script, completions=2, backoff_limit=0).outcome == "failed"
    assert (fsx / "saved").exists()


def test_a_pod_that_ignores_the_request_to_stop_is_killed_after_its_grace(
    places: Places,
) -> None:
    script = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {WAIT_FOR_EVER}"
    limits = Limits(backoff_factor=0.001, seconds=1.0)
    env = [{"name": "TEST_FOLDER", "value": str(places.run_folder.relative_to("/"))}]
    result = run(places, script, limits=limits, grace_seconds=0, env=env)
    assert (result.outcome, result.reason) == ("timed out", "it was not finished after 1 s")
    assert not pids_with(f"TEST_FOLDER={places.run_folder.relative_to('/')}")


def test_a_pod_reads_the_settings_file_that_its_command_names(places: Places) -> None:
    script = f"import sys; sys.stdout.write(open('{SETTINGS_PATH}').read())"
    assert run(places, script, settings='{"run_directory": "/fsx/a"}').outcome == "complete"
    expected = f'{{"run_directory": "{places.volume("fsx")}/a"}}'
    assert (places.pods / "demo-0-r0.log").read_text() == expected


def test_two_pods_talk_over_the_name_and_port_of_the_service(places: Places, fsx: Path) -> None:
    os.mkfifo(fsx / "listening")
    script = """
import os, socket
host, port = 'demo-0.demo.training.svc.cluster.local:29500'.split(':')
if os.environ['JOB_COMPLETION_INDEX'] == '0':
    with socket.create_server((os.environ['POD_IP'], int(port))) as server:
        open('/fsx/listening', 'w').close()
        connection, _ = server.accept()
        print(connection.recv(99).decode())
else:
    open('/fsx/listening').read()
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b'hello from 1')
"""
    pod_ip = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    assert run(places, script, completions=2, env=[pod_ip]).outcome == "complete"
    assert (places.pods / "demo-0-r0.log").read_text() == "hello from 1\n"


def test_a_pod_sees_nothing_of_the_caller_but_what_it_is_given(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    script = "import os; raise SystemExit('AWS_PROFILE' in os.environ)"
    assert run(places, script).outcome == "complete"


def test_a_command_that_is_not_installed_is_named(places: Places) -> None:
    job = read_job(documents("no-such-launcher"))
    with (
        Interrupts() as interrupts,
        pytest.raises(RehearsalError, match="'no-such-launcher' cannot be started"),
    ):
        run_job(job, places, SHORT, interrupts=interrupts, watcher=Silent())
