"""PID 1 gives its workers a folder in shared memory, and no end of its own leaves it behind."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.ranks import trainer_settings
from trainer.snapshots.folder import SHARED_MEMORY

ROOT = Path(__file__).parents[3]

# PID 1 is told to end at the very moment at which its folder has been made.
TOLD_AT_ONCE = """
import signal, sys, tempfile
from trainer import entry
make = tempfile.mkdtemp
def make_and_tell(*arguments, **options):
    made = make(*arguments, **options)
    print(made, flush=True)
    if "steadfast-memory" in made:
        signal.raise_signal(signal.SIGTERM)
    return made
tempfile.mkdtemp = make_and_tell
sys.exit(entry.main(sys.argv[1:]))
"""


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "settings.json"
    values = trainer_settings(tmp_path / "run", recovery={"layer": "in_process"})
    path.write_text(values.model_dump_json())
    return path


def entry(settings: Path, script: str) -> list[str]:
    return [
        *(sys.executable, "-m", "trainer.entry", "--settings", str(settings), "--"),
        *("sh", "-c", script),
    ]


def folder_said(output: str) -> Path:
    """The folder that a pod's worker was told, which is of the run and in /dev/shm."""
    folder = Path(output.strip())
    assert folder.parent == SHARED_MEMORY
    assert folder.name.startswith("steadfast-memory-run-")
    return folder


def test_the_pods_workers_have_the_folder_while_it_lasts(settings: Path) -> None:
    script = 'touch "$STEADFAST_MEMORY/buffer" && echo "$STEADFAST_MEMORY"; exit 3'
    done = subprocess.run(
        entry(settings, script), cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert not folder_said(done.stdout).exists()


def test_a_pod_that_is_stopped_leaves_no_folder(settings: Path) -> None:
    script = 'echo "$STEADFAST_MEMORY"; read never'
    with subprocess.Popen(
        entry(settings, script),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        folder = folder_said(process.stdout.readline())
        assert folder.exists()
        process.terminate()
        assert process.wait(10) == 128 + signal.SIGTERM
    assert not folder.exists()


def test_a_pod_that_is_stopped_as_it_makes_the_folder_leaves_none(settings: Path) -> None:
    _, _, _, *arguments = entry(settings, "exec sleep 60")
    done = subprocess.run(
        [sys.executable, "-c", TOLD_AT_ONCE, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 128 + signal.SIGTERM
    assert not folder_said(done.stdout).exists()


def test_a_run_without_snapshots_has_no_folder(settings: Path) -> None:
    values = json.loads(settings.read_text())
    settings.write_text(json.dumps({**values, "snapshots": {"enabled": False}}))
    done = subprocess.run(
        entry(settings, 'echo "<$STEADFAST_MEMORY>"'),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    assert done.stdout == "<>\n"
