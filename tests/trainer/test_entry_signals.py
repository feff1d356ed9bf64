"""PID 1 forwards each signal once, also one that comes while the launcher is being started."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A signal comes just as the launcher is, or is not yet, there to be told of it.
SIGNALLED_AT_ITS_START = """
import signal, sys
import trainer.entry as entry
sent = []
entry._send = lambda pid, number: sent.append(signal.Signals(number).name)
class Launcher(entry.Launcher):
    armed = False
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if self.armed and name == '_process' and (value is None) == (sys.argv[1] == 'before'):
            signal.raise_signal(signal.SIGUSR1)
launcher = Launcher([sys.executable, '-c', ''])
Launcher.armed = True
launcher.run(rejoin_seconds=0)
print(*sent)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_signal_that_comes_as_the_launcher_starts_reaches_it_once(moment: str) -> None:
    command = [sys.executable, "-c", SIGNALLED_AT_ITS_START, moment]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("SIGUSR1\n", "")
