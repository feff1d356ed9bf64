"""When there is no standby process, it may not fork, or it or a worker dies."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.standbys import (
    ROOT,
    STANDBY,
    WAIT,
    WORKER,
    ended,
    is_gone,
    line,
    standing_by,
    worker,
)
from trainer.standby.readiness import reason_against_a_fork
from trainer.standby.wire import read_at_import


@pytest.fixture(scope="module")
def standby() -> Iterator[str]:
    with standing_by() as (address, _):
        yield address


def test_nobody_is_forked_before_a_killed_worker_is_gone() -> None:
    # This standby's SIGKILL is slow: the worker ends when it is told a line.
    slow = STANDBY.replace("standby =", "server.kill_group = lambda pid: None; standby =", 1)
    slow = slow.replace("import os, sys", "import os, sys; import trainer.standby.server as server")
    reader, writer = os.pipe()
    lingers = (
        f"print(os.getpid(), flush=True); os.read(os.open('/proc/{os.getpid()}/fd/{reader}', 0), 1)"
    )
    with standing_by(slow) as (address, _):
        with worker(lingers, standby=address) as first:
            pid = line(first)
            first.kill()
        with worker(f"print(os.path.exists('/proc/{pid}'))", standby=address) as second:
            assert second.stdout is not None
            assert select.select([second.stdout], [], [], 0.3)[0] == []
            os.write(writer, b"x")
            assert ended(second)[:2] == (0, "False\n")
    os.close(reader)
    os.close(writer)


def test_workers_die_with_the_standby_and_are_reported_as_failed() -> None:
    with standing_by() as (address, process), worker(WAIT, standby=address) as client:
        pid = int(line(client))
        process.kill()
        assert is_gone(pid)
        why = "steadfast: the standby process is gone, and this worker with it\n"
        assert ended(client) == (1, "", why)


def test_the_standby_dies_with_whoever_started_it() -> None:
    parent = f"""
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {STANDBY!r}, sys.argv[1]], text=True)
print(child.pid, flush=True)
input()
"""
    with socket.socket(socket.AF_UNIX):
        address = f"/tmp/steadfast-{os.getpid()}"
        command = [sys.executable, "-c", parent, address]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
            said = {line(process), line(process)}
            (pid,) = said - {"ready"}
            process.kill()
        assert is_gone(int(pid))
        Path(address).unlink()


def test_a_signal_that_comes_once_the_worker_has_ended_does_not_hide_how(standby: str) -> None:
    late = """
import signal
from trainer.standby import wire
receive = wire.receive_status
def receive_and_be_signalled(connection):
    status = receive(connection)
    assert connection.recv(1) == b''  # the standby has closed it
    signal.raise_signal(signal.SIGTERM)
    return status
wire.receive_status = receive_and_be_signalled
"""
    assert ended(worker("os._exit(7)", standby=standby, script=late + WORKER)) == (7, "", "")


def test_a_worker_that_ends_with_0_before_the_run_is_done_has_failed(
    standby: str, tmp_path: Path
) -> None:
    noted = {"STEADFAST_EXIT_FILE": str(tmp_path / "exit")}
    assert ended(worker("os._exit(0)", standby=standby, environment=noted)) == (1, "", "")


def test_a_worker_that_told_of_the_end_has_not(standby: str, tmp_path: Path) -> None:
    noted = {"STEADFAST_EXIT_FILE": str(tmp_path / "exit")}
    main = "from trainer import exit_codes; exit_codes.note_run_finished(); os._exit(0)"
    assert ended(worker(main, standby=standby, environment=noted)) == (0, "", "")


def test_a_lost_node_loses_launcher_and_forked_workers_but_not_the_standby(standby: str) -> None:
    main = """
import signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
os.write(1, b'%d\\n' % os.getpid())
signal.sigwait([signal.SIGUSR1])
from trainer.faults.node import kill_this_node
kill_this_node()
"""
    launcher = f"""
import subprocess, sys
for _ in range(2):
    subprocess.Popen([sys.executable, "-c", {WORKER!r}])
input()
"""
    with worker(main, standby=standby, script=launcher) as node:
        pids = int(line(node)), int(line(node))
        os.kill(pids[0], signal.SIGUSR1)
        assert node.wait(10) == -signal.SIGKILL
    assert [is_gone(pid) for pid in pids] == [True, True]
    assert ended(worker("print(os.environ['STEADFAST_STANDBY'])", standby=standby))[0] == 0


def test_a_worker_that_comes_before_the_standby_is_ready_is_forked_once_it_is() -> None:
    reader, writer = os.pipe()
    imports = (
        f"print('ready', flush=True); os.read(os.open('/proc/{os.getpid()}/fd/{reader}', 0), 1)"
    )
    busy = STANDBY.replace("print('ready', flush=True)", imports)
    main = "print(os.getppid())"
    with standing_by(busy) as (address, process), worker(main, standby=address) as waiting:
        assert waiting.stdout is not None
        assert select.select([waiting.stdout], [], [], 0.3)[0] == []
        os.write(writer, b"x")
        assert ended(waiting) == (0, f"{process.pid}\n", "")
    os.close(reader)
    os.close(writer)


def test_without_a_standby_a_worker_starts_plainly(tmp_path: Path) -> None:
    main = "print(os.getppid())"
    plainly = (0, f"{os.getpid()}\n", "")
    assert ended(worker(main, standby="")) == plainly
    assert ended(worker(main, standby=str(tmp_path / "none"))) == plainly
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(tmp_path / "gone"))
    assert ended(worker(main, standby=str(tmp_path / "gone"))) == plainly


def test_a_standby_that_does_not_answer_is_done_without(tmp_path: Path) -> None:
    hasty = "import trainer.standby.client as c; c.GREETING_SECONDS = 0.05" + WORKER
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "mute"))
        listener.listen()
        process = worker("print('plain')", standby=str(tmp_path / "mute"), script=hasty)
        assert ended(process) == (0, "plain\n", "")


def test_a_standby_that_may_not_fork_says_why_and_workers_start_plainly() -> None:
    with standing_by(STANDBY.replace("None)", "'it has 3 threads')")) as (address, process):
        for _ in range(2):
            assert ended(worker("print('plain')", standby=address)) == (0, "plain\n", "")
        process.kill()
        assert process.stderr is not None
        assert process.stderr.read() == "steadfast: workers are not forked: it has 3 threads\n"


def test_a_worker_with_other_threads_than_the_standby_starts_plainly(standby: str) -> None:
    process = worker("print('plain')", standby=standby, environment={"OMP_NUM_THREADS": "3"})
    assert ended(process) == (
        0,
        "plain\n",
        "steadfast: not forked: the standby process has another OMP_NUM_THREADS\n",
    )


def test_a_fork_that_fails_leaves_a_plain_worker() -> None:
    broken = STANDBY.replace(
        "die_with(os.getppid())",
        "die_with(os.getppid())\ndef fork(): raise OSError(12, 'Cannot allocate memory')\n"
        "os.fork = fork",
    )
    with standing_by(broken) as (address, process):
        main = "import signal; print('plain', signal.getsignal(15) == signal.SIG_DFL)"
        assert ended(worker(main, standby=address)) == (0, "plain True\n", "")
        process.kill()
        assert process.stderr is not None
        assert "a worker cannot be forked (Cannot allocate memory)" in process.stderr.read()


def test_threads_and_open_gpus_forbid_a_fork() -> None:
    assert reason_against_a_fork(1, ["/dev/null", "socket:[17]"]) is None
    assert "3 threads" in (reason_against_a_fork(3, []) or "")
    assert "/dev/nvidiactl is open" in (reason_against_a_fork(1, ["/dev/nvidiactl"]) or "")


def test_variables_that_launchers_set_for_each_worker_forbid_nothing() -> None:
    environment = {
        "RANK": "1",
        "TORCHELASTIC_RUN_ID": "x",
        "TORCH_ELASTIC_WORKER_IDENTICAL": "1",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCH_CPP_LOG_LEVEL": "error",
        "LD_LIBRARY_PATH": "/opt",
    }
    assert read_at_import(environment) == {
        "TORCH_CPP_LOG_LEVEL": "error",
        "LD_LIBRARY_PATH": "/opt",
    }


def test_the_first_lines_of_a_worker_import_next_to_nothing() -> None:
    script = """
import sys
before = set(sys.modules)
import trainer.standby.client
print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))
"""
    # Without site-packages, whose own start-up files import what they like.
    command = [sys.executable, "-S", "-c", script]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    assert not {"pathlib", "logging", "argparse", "pydantic", "torch"} & set(done.stdout.split())
