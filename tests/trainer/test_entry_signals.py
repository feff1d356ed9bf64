"""PID 1 forwards each signal once, also one that comes while the launcher is being started."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# A signal comes just as the launcher is, or is not yet, there to be told of it.
SIGNALLED_AT_ITS_START = """
import signal, sys
import trainer.launching as launching
from trainer.launch_rules import Rules
sent = []
launching.kill = lambda pid, number: sent.append(signal.Signals(number).name)
class Launcher(launching.Launcher):
    armed = False
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if self.armed and name == '_process' and (value is None) == (sys.argv[1] == 'before'):
            self.armed = False
            signal.raise_signal(signal.SIGUSR1)
rules = Rules(in_place=False, rejoin_seconds=0, stopped_seconds=9, most_starts=9,
              newest_attempt=lambda: 0)
launcher = Launcher([sys.executable, '-c', ''], rules)
Launcher.armed = True
launcher.run()
print(*sent)
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_signal_that_comes_as_the_launcher_starts_reaches_it_once(moment: str) -> None:
    command = [sys.executable, "-c", SIGNALLED_AT_ITS_START, moment]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("SIGUSR1\n", "")
