"""The whole way, as a user goes it: a deployment file, its rendered Jobs, faults, the report.

One rehearsal of every run serves all claims of this file. The runs are those
of ``deployments/rehearsal.yaml``, shortened.
"""

import importlib.metadata
import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
import yaml
from torch import Tensor

from trainer.checkpoint.layout import committed
from trainer.events import Event, read_events
from trainer.faults.plan import on_ranks, plan_faults
from trainer.settings import TrainerSettings

REPOSITORY = Path(__file__).parents[1]
FAULTED = ("pod", "in-job", "in-process")
RUNS = ("unfaulted", "sync", "async", *FAULTED)
LAST_STEP = 240

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(420)]


@dataclass(frozen=True)
class Rehearsal:
    folder: Path
    summary: dict[str, Any]

    def run_directory(self, run: str) -> Path:
        (events,) = (self.folder / run).rglob("events")
        return events.parent

    def events(self, run: str, name: str) -> list[Event]:
        return [event for event in read_events(self.run_directory(run)) if event["name"] == name]


def shortened_deployment() -> dict[str, Any]:
    text = (REPOSITORY / "deployments/rehearsal.yaml").read_text()
    values: dict[str, Any] = yaml.safe_load(text)
    values["image"]["nvrx_version"] = importlib.metadata.version("nvidia-resiliency-ext")
    values["trainer"]["max_steps"] = LAST_STEP
    values["trainer"]["checkpoint"]["interval_steps"] = 40
    for run in FAULTED:
        # Exception (step 57, rank 1), hang (step 131, rank 1), SIGKILL (step 197, rank 0).
        values["runs"][run]["change"]["faults.seed"] = 2024
    return values


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    folder = tmp_path_factory.mktemp("rehearsal")
    deployment = folder / "deployment.yaml"
    deployment.write_text(yaml.safe_dump(shortened_deployment()))
    command = [sys.executable, "-m", "workloads", "rehearse", *RUNS, "--json"]
    done = subprocess.run(
        [*command, "--deployment", deployment, "--out", folder / "out"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return Rehearsal(folder / "out", json.loads(done.stdout))


@pytest.mark.parametrize("run", RUNS)
def test_every_run_ends_at_its_last_step(rehearsal: Rehearsal, run: str) -> None:
    finished = rehearsal.events(run, "run_finished")
    assert {(event["rank"], event["step"]) for event in finished} == {
        (0, LAST_STEP),
        (1, LAST_STEP),
    }


@pytest.mark.parametrize("run", RUNS)
def test_every_run_ends_with_the_state_of_the_unfaulted_one(rehearsal: Rehearsal, run: str) -> None:
    assert final_digests(rehearsal, run) == final_digests(rehearsal, "unfaulted")


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("run", ["async", *FAULTED])
def test_the_last_checkpoint_holds_the_same_bits_however_it_came_about(
    rehearsal: Rehearsal, run: str
) -> None:
    actual, expected = saved_tensors(rehearsal, run), saved_tensors(rehearsal, "sync")
    assert actual.keys() == expected.keys()
    different = [name for name in expected if not torch.equal(actual[name], expected[name])]
    assert different == []


@pytest.mark.parametrize("run", RUNS)
def test_every_step_trains_on_the_samples_of_the_unfaulted_run(
    rehearsal: Rehearsal, run: str
) -> None:
    assert kept_samples(rehearsal, run) == kept_samples(rehearsal, "unfaulted")


@pytest.mark.parametrize("run", FAULTED)
def test_the_one_plan_is_suffered_once_under_every_layer(rehearsal: Rehearsal, run: str) -> None:
    settings = TrainerSettings.from_file(rehearsal.run_directory(run) / "settings.json")
    plan = on_ranks(plan_faults(settings.faults, max_steps=LAST_STEP), 2)
    injected = [
        (event["fault"], event["step"] + 1, event["rank"], event["kind"])
        for event in rehearsal.events(run, "fault_injected")
    ]
    assert injected == [(f.name, f.step, f.rank, f.kind.value) for f in plan]
    assert Counter(f.kind.value for f in plan) == {"exception": 1, "sigkill": 1, "hang": 1}


def test_in_job_restarts_workers_in_the_same_pods(rehearsal: Rehearsal) -> None:
    assert len(rehearsal.events("in-job", "pod_started")) == 2
    # Two ranks, started once and again after each of three faults.
    assert len(rehearsal.events("in-job", "process_started")) == 8


def test_in_process_keeps_the_processes_until_one_is_killed(rehearsal: Rehearsal) -> None:
    assert len(rehearsal.events("in-process", "attempt_started")) == 8
    assert len(rehearsal.events("in-process", "process_started")) == 4
    assert len(rehearsal.events("in-process", "pod_started")) == 4


def test_pod_restart_replaces_the_pods_after_every_fault(rehearsal: Rehearsal) -> None:
    assert len(rehearsal.events("pod", "pod_started")) >= 8
    assert len(rehearsal.events("pod", "process_started")) == 8


@pytest.mark.parametrize("run", FAULTED)
def test_a_run_goes_on_from_its_newest_checkpoint_or_newer_memory(
    rehearsal: Rehearsal, run: str
) -> None:
    for restored in rehearsal.events(run, "restored"):
        saved = [
            event["step"]
            for event in rehearsal.events(run, "checkpoint_committed")
            if event["wall"] < restored["wall"]
        ]
        newest = max(saved, default=0)
        if restored["source"] in ("live", "snapshot"):
            assert restored["step"] >= newest
        else:
            assert (restored["step"], restored["source"]) == (
                newest,
                "durable" if saved else "none",
            )


def test_the_report_finds_every_result_equal(rehearsal: Rehearsal) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainer.report", rehearsal.folder, "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    runs = {run["name"]: run for run in report["runs"]}
    assert report["reference"] == "unfaulted-1"
    equal = {name: run["equals_reference"] for name, run in runs.items() if name != "unfaulted-1"}
    assert equal == {f"{name}-1": True for name in RUNS if name != "unfaulted"}
    assert {name: run["steps_kept"] for name, run in runs.items()} == {
        f"{name}-1": LAST_STEP for name in RUNS
    }


def test_nothing_is_left_running(rehearsal: Rehearsal) -> None:
    # In the environment, since the command of a spawned checkpoint worker names no folder.
    marker = str(rehearsal.folder).encode()
    left = [
        process.name
        for process in Path("/proc").iterdir()
        if process.name.isdigit() and marker in environment_of(process)
    ]
    assert left == []


def final_digests(rehearsal: Rehearsal, run: str) -> dict[int, str]:
    return {event["rank"]: event["digest"] for event in rehearsal.events(run, "run_finished")}


def saved_tensors(rehearsal: Rehearsal, run: str) -> dict[str, Tensor]:
    newest = committed(rehearsal.run_directory(run) / "checkpoints")[0]
    assert newest.record.step == LAST_STEP
    reader = dcp.FileSystemReader(newest.path)
    described = reader.read_metadata().state_dict_metadata
    tensors: dict[str, Tensor] = {
        name: torch.empty(entry.size, dtype=entry.properties.dtype)
        for name, entry in described.items()
        if isinstance(entry, dcp.metadata.TensorStorageMetadata)
    }
    dcp.load(tensors, storage_reader=reader, no_dist=True)
    return tensors


def kept_samples(rehearsal: Rehearsal, run: str) -> dict[tuple[int, int], list[int]]:
    """Sample ids by (step, rank); a step done again stands with its last execution."""
    return {
        (event["step"], event["rank"]): event["sample_ids"]
        for event in rehearsal.events(run, "step_completed")
    }


def environment_of(process: Path) -> bytes:
    try:
        return (process / "environ").read_bytes()
    except OSError:
        return b""  # it ended meanwhile
