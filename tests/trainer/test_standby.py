"""A worker forked by the standby process behaves as one that was started plainly."""

import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.standbys import ROOT, STANDBY, WORKER, line, standing_by, worker
from trainer.standby.pod import environment_of_workers
from trainer.standby.readiness import reason_against_a_fork
from trainer.standby.wire import read_at_import

TELL_SIGNALS = """
import signal, sys
def tell(number, frame):
    print(signal.Signals(number).name, flush=True)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, tell)
print('ready', flush=True)
while True:
    signal.pause()
"""
WAIT = "print(os.getpid(), flush=True); input()"

# All that another process can see of a process, and what the standby itself has opened or set.
SELF = """
import json, signal, sys
fds = sorted(int(name) for name in os.listdir('/proc/self/fd'))[:-1]
handlers = [str(signal.getsignal(number)) for number in (1, 2, 3, 6, 10, 12, 15, 17)]
mask = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
umask = os.umask(0)
environment = dict(os.environ) | {'STEADFAST_STANDBY': ''}
print(json.dumps([
    sys.argv, os.getcwd(), umask, fds, handlers, mask, environment, sys.stdin.read(),
    os.getsid(0) == os.getpgid(0) == os.getpid(), sorted(os.sched_getaffinity(0)),
]))
"""


@pytest.fixture(scope="module")
def standby() -> Iterator[str]:
    with standing_by() as (address, _):
        yield address


def ended(process: subprocess.Popen[str], stdin: str | None = None) -> tuple[int, str, str]:
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


@pytest.mark.parametrize(
    ("main", "code"),
    [
        ("print('done')", 0),
        ("import sys; sys.exit(78)", 78),
        ("import sys; sys.exit('a reason')", 1),
        ("print('lost', end=''); os._exit(5)", 5),
        ("os.kill(os.getpid(), 9)", -9),
        ("os.kill(os.getpid(), 15)", -15),
        ("import sys; print('to stderr', file=sys.stderr); os.abort()", -6),
    ],
)
def test_a_forked_worker_ends_as_a_plain_one(standby: str, main: str, code: int) -> None:
    plain = ended(worker(main, standby=""))
    assert plain[0] == code
    assert ended(worker(main, standby=standby)) == plain


def test_an_error_is_told_as_by_a_plain_worker(standby: str) -> None:
    code, out, err = ended(worker("raise ValueError('why')", standby=standby))
    assert (code, out, err.splitlines()[-1]) == (1, "", "ValueError: why")


def test_a_forked_worker_finds_what_its_launcher_gave_it(
    standby: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODD", "\udcff = \n")
    # A folder, a mask, an ignored signal, a blocked one and a processor of its own.
    script = f"""
import os, signal, sys
sys.path.insert(0, {str(ROOT)!r})
os.chdir({str(tmp_path)!r})
os.umask(0o027)
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])
{WORKER}"""
    plain, forked = (
        ended(worker(SELF, standby=address, script=script, arguments=("--a", "b")), "input")
        for address in ("", standby)
    )
    assert plain[0] == 0
    assert forked == plain


def test_a_forked_worker_is_no_child_of_the_launcher_but_knows_it(standby: str) -> None:
    main = "print(os.environ['STEADFAST_LAUNCHER_PID'], os.getppid())"
    _, out, _ = ended(worker(main, standby=standby))
    launcher, parent = out.split()
    assert (launcher, parent != launcher) == (str(os.getpid()), True)


def test_signals_are_passed_on_to_the_worker(standby: str) -> None:
    with worker(TELL_SIGNALS, standby=standby) as process:
        assert line(process) == "ready"
        for name in ("SIGTERM", "SIGINT", "SIGUSR1"):
            process.send_signal(signal.Signals[name])
            assert line(process) == name
        process.kill()


def test_a_signal_that_the_worker_does_not_handle_ends_both_alike(standby: str) -> None:
    with worker(WAIT, standby=standby) as process:
        pid = int(line(process))
        process.send_signal(signal.SIGUSR1)
        assert process.wait(20) == -signal.SIGUSR1
    assert is_gone(pid)


def test_sigkill_of_the_launchers_process_kills_the_worker_and_its_group(standby: str) -> None:
    main = "child = os.fork(); print(os.getpid(), flush=True); import time; time.sleep(1000)"
    with worker(main, standby=standby) as process:
        both = int(line(process)), int(line(process))
        process.kill()
    assert [is_gone(pid) for pid in both] == [True, True]


def test_a_stopped_worker_looks_stopped_and_can_be_killed(standby: str) -> None:
    with worker(WAIT, standby=standby) as process:
        pid = int(line(process))
        os.kill(pid, signal.SIGSTOP)
        while (state := Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1].split()[0]) != "T":
            assert state in "RS"
        assert process.poll() is None
        os.kill(pid, signal.SIGKILL)
        assert process.wait(20) == -signal.SIGKILL


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
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
        "TORCH_CPP_LOG_LEVEL": "error",
        "LD_LIBRARY_PATH": "/opt",
    }
    assert read_at_import(environment) == {
        "TORCH_CPP_LOG_LEVEL": "error",
        "LD_LIBRARY_PATH": "/opt",
    }


@pytest.mark.parametrize(
    ("own", "workers", "threads"),
    [({}, 8, "1"), ({"OMP_NUM_THREADS": "4"}, 8, "4"), ({}, 1, None)],
)
def test_the_standby_has_the_threads_that_launchers_give_to_workers(
    own: dict[str, str], workers: int, threads: str | None
) -> None:
    launcher = ["ft_launcher", f"--nproc-per-node={workers}"]
    assert environment_of_workers(own, launcher).get("OMP_NUM_THREADS") == threads
