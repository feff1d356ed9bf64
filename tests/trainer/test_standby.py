"""A worker forked by the standby process behaves as one that was started plainly."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.trainer.standbys import ROOT, WAIT, WORKER, ended, is_gone, line, standing_by, worker

TELL_SIGNALS = """
import signal, sys
def tell(number, frame):
    print(signal.Signals(number).name, flush=True)
for number in (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, tell)
print('ready', flush=True)
while True:
    signal.pause()
"""

# All that another process can see of a process, and what the standby itself has opened or set.
SELF = """
import json, signal, sys
fds = sorted(int(name) for name in os.listdir('/proc/self/fd'))[:-1]
handlers = [str(signal.getsignal(number)) for number in (1, 2, 3, 6, 10, 12, 15, 17)]
mask = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
umask = os.umask(0)
environment = dict(os.environ) | {'STEADFAST_STANDBY': '', 'STEADFAST_STAND_IN_PID': ''}
print(json.dumps([
    sys.argv, os.getcwd(), umask, fds, handlers, mask, environment, sys.stdin.read(),
    os.getsid(0) == os.getpgid(0) == os.getpid(), sorted(os.sched_getaffinity(0)),
]))
"""


@pytest.fixture(scope="module")
def standby() -> Iterator[str]:
    with standing_by() as (address, _):
        yield address


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
    # Not SIGINT: tests that run in the background of a shell are told to ignore it.
    with worker(TELL_SIGNALS, standby=standby) as process:
        assert line(process) == "ready"
        for name in ("SIGTERM", "SIGUSR1", "SIGUSR2"):
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
    # One write a line: both write at the same time.
    main = "os.fork(); os.write(1, b'%d\\n' % os.getpid()); import time; time.sleep(1000)"
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
