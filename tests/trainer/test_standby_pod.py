"""The entry point starts a standby process where its layer respawns workers, and only there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.ranks import trainer_settings
from tests.trainer.standbys import ROOT
from trainer.standby.pod import environment_of_workers

TELL = ("sh", "-c", 'echo "${STEADFAST_STANDBY-unset}"; ps -ww -o args= --ppid "$PPID"')


def pod(folder: Path, layer: str, *launcher: str, **environment: str) -> str:
    """What its launcher printed."""
    settings = trainer_settings(folder / "run", recovery={"layer": layer})
    (folder / "settings.json").write_text(settings.model_dump_json())
    command = [sys.executable, "-m", "trainer.entry", "--settings", str(folder / "settings.json")]
    done = subprocess.run(
        [*command, "--", *launcher],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(folder), **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("layer", ["in_job", "layered"])
def test_a_layer_that_respawns_workers_has_a_standby_as_long_as_its_launcher_runs(
    layer: str, tmp_path: Path
) -> None:
    told, *processes = pod(tmp_path, layer, *TELL).splitlines()
    assert told.startswith(f"{tmp_path}/steadfast-")
    assert len([line for line in processes if f"-m trainer.standby {told} " in line]) == 1
    assert list(tmp_path.glob("steadfast-*")) == []


@pytest.mark.parametrize("layer", ["none", "pod", "in_process"])
def test_a_layer_that_leaves_respawning_to_kubernetes_has_none(layer: str, tmp_path: Path) -> None:
    told, *processes = pod(tmp_path, layer, *TELL).splitlines()
    assert told == "unset"
    assert "trainer.standby" not in "".join(processes)


def test_a_pod_can_be_told_to_do_without(tmp_path: Path) -> None:
    told, *processes = pod(tmp_path, "in_job", *TELL, STEADFAST_STANDBY="").splitlines()
    assert told == ""
    assert "trainer.standby" not in "".join(processes)


def test_a_temporary_folder_of_too_long_a_name_costs_only_the_standby(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100)
    deep.mkdir()
    assert pod(tmp_path, "in_job", *TELL, TMPDIR=str(deep)).splitlines()[0] == "unset"
    assert list(deep.iterdir()) == []


@pytest.mark.parametrize(
    ("own", "workers", "threads"),
    [({}, 8, "1"), ({"OMP_NUM_THREADS": "4"}, 8, "4"), ({}, 1, None)],
)
def test_the_standby_has_the_threads_that_launchers_give_to_workers(
    own: dict[str, str], workers: int, threads: str | None
) -> None:
    launcher = ["ft_launcher", f"--nproc-per-node={workers}"]
    assert environment_of_workers(own, launcher).get("OMP_NUM_THREADS") == threads
