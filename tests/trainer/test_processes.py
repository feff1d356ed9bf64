"""Descendants are found by who started them, stopped ones by how long they are."""

import subprocess
import sys
from pathlib import Path

from trainer.processes import StoppedProcesses

ROOT = Path(__file__).resolve().parents[2]

# A session of its own and a parent that is gone: only adoption makes it a descendant.
LEFT_BEHIND = """
import os, signal, subprocess, time
from trainer.processes import adopt_orphans, descendants, kill_descendants
adopt_orphans()
made = subprocess.run(['sh', '-c', 'setsid sleep 60 >&- 2>&- & echo $!'], stdout=subprocess.PIPE)
orphan = int(made.stdout)
assert descendants().keys() == {orphan}, descendants()
assert kill_descendants()
assert not descendants()
try:
    os.kill(orphan, 0)
except ProcessLookupError:
    print('gone')
"""


def test_an_orphan_in_a_session_of_its_own_is_ended_too() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEFT_BEHIND], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("gone\n", "")


def test_only_who_stays_stopped_is_found() -> None:
    stopped = StoppedProcesses()
    assert list(stopped.for_longer_than(10, {1: "T", 2: "T", 3: "S", 4: "t"}, now=0)) == []
    assert list(stopped.for_longer_than(10, {1: "T", 2: "S", 3: "T", 4: "t"}, now=6)) == []
    assert list(stopped.for_longer_than(10, {1: "T", 2: "T", 3: "T", 4: "t"}, now=11)) == [1]
    assert list(stopped.for_longer_than(10, {2: "T", 3: "T"}, now=17)) == [3]
