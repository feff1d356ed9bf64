"""A pod's folder in shared memory is its own, and is gone with it however it ends."""

import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from trainer.snapshots.folder import VARIABLE, owned_memory, remove_abandoned

ROOT = Path(__file__).parents[3]
RUN = Path("/fsx/runs/llama")

# Says where its folder and who its worker is, then lives on until its input ends.
OWNER = """
import os, subprocess, sys
from pathlib import Path
from trainer.snapshots.folder import owned_memory
with owned_memory(Path("/fsx/runs/llama"), int(sys.argv[2]), within=Path(sys.argv[1])):
    worker = subprocess.Popen(["cat"], stdout=subprocess.DEVNULL)
    print(worker.pid, os.environ["STEADFAST_MEMORY"], flush=True)
    input()
"""

# Makes and removes folders as fast as it can, and looks whether it keeps each meanwhile.
STARTER = """
import os, sys
from pathlib import Path
from trainer.snapshots.folder import owned_memory
for _ in range(150):
    with owned_memory(Path("/run"), 0, within=Path(sys.argv[1])):
        Path(os.environ["STEADFAST_MEMORY"], "buffer").write_text("")
"""


@contextmanager
def owner(within: Path, pod: int = 0) -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A process that owns a folder, what becomes readable with its worker's end, the folder."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(within), str(pod)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        worker, folder = process.stdout.readline().split()
        worker_end = os.pidfd_open(int(worker))
        yield process, worker_end, Path(folder)
        process.kill()
        process.communicate()  # closes the worker's input, too
        assert select.select([worker_end], [], [], 10)[0]
        os.close(worker_end)


def names(within: Path) -> list[str]:
    return [path.name for path in within.iterdir()]


def test_workers_find_a_folder_that_is_gone_afterwards_with_all_in_it(folder: Path) -> None:
    with owned_memory(RUN, 3, within=folder):
        own = Path(os.environ[VARIABLE])
        assert own.parent == folder
        assert own.name.startswith("steadfast-memory-llama-3-")
        (own / "buffer").write_text("a snapshot")
    assert VARIABLE not in os.environ
    assert names(folder) == []


def test_the_folder_goes_when_an_exception_ends_its_owner(folder: Path) -> None:
    with pytest.raises(ZeroDivisionError), owned_memory(RUN, 0, within=folder):
        raise ZeroDivisionError
    assert names(folder) == []


def test_no_worker_can_put_a_file_into_a_folder_that_goes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with owned_memory(RUN, 0, within=folder):
        own = Path(os.environ[VARIABLE])
        remove, was_refused = shutil.rmtree, []

        def remove_beside_a_worker(path: Path, *, ignore_errors: bool) -> None:
            with pytest.raises(FileNotFoundError):
                (own / "late").write_text("")
            was_refused.append(True)
            remove(path, ignore_errors=ignore_errors)

        monkeypatch.setattr(shutil, "rmtree", remove_beside_a_worker)
    assert was_refused
    assert names(folder) == []


def test_a_killed_owners_folder_goes_with_the_next_start_though_its_worker_lives(
    folder: Path,
) -> None:
    with owner(folder) as (process, worker_end, abandoned):
        process.kill()
        process.wait()
        (abandoned / "buffer").write_text("a snapshot")
        assert not select.select([worker_end], [], [], 0)[0]
        with owned_memory(RUN, 0, within=folder):
            assert names(folder) == [Path(os.environ[VARIABLE]).name]
            assert Path(os.environ[VARIABLE]) != abandoned


def test_the_folder_of_a_living_owner_is_left_alone(folder: Path) -> None:
    with owner(folder) as (_, _, living):
        remove_abandoned(folder)
        assert living.exists()


def test_two_pods_of_one_run_do_not_meet(folder: Path) -> None:
    with owner(folder, 0) as (_, _, first), owner(folder, 1) as (_, _, second):
        assert first != second
        assert sorted(names(folder)) == sorted([first.name, second.name])


def test_a_pod_and_the_one_that_replaces_it_too_soon_do_not_meet(folder: Path) -> None:
    with owner(folder, 0) as (_, _, first), owner(folder, 0) as (_, _, second):
        assert first != second
        assert first.exists()


def test_pods_that_start_and_end_at_the_same_time_keep_their_folders(folder: Path) -> None:
    command = [sys.executable, "-c", STARTER, str(folder)]
    pods = [
        subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) for _ in range(4)
    ]
    assert [pod.communicate()[1] for pod in pods] == [""] * 4
    assert names(folder) == []


def test_what_others_keep_in_shared_memory_is_left_alone(folder: Path) -> None:
    (folder / "sem.mp-1").write_text("")
    (folder / "steadfast-other").mkdir()
    (folder / "steadfast-memory-file").write_text("no folder")
    remove_abandoned(folder)
    assert len(names(folder)) == 3


def test_without_shared_memory_the_pod_goes_on_without_snapshots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(VARIABLE, "another's")
    with owned_memory(RUN, 0, within=tmp_path / "none"):
        assert VARIABLE not in os.environ
    assert capsys.readouterr().err.startswith("steadfast: no snapshots in memory (")
