"""The benchmark of recoveries: its plan, its arithmetic, its guard, and a run of it on the CPU."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.trainer import bench_job, bench_recovery
from tests.trainer.bench_job import Machine
from tests.trainer.bench_recovery_plan import Order, fault_steps, missing, settings_of, wanted
from tests.trainer.bench_recovery_table import Cell, as_markdown, is_met, recovered
from tests.trainer.histories import History, launch, three_faults
from trainer.checkpoint.layout import CommitRecord, ShardFormat, commit, committed, folder_name
from trainer.exit_codes import CONFIG
from trainer.faults.plan import plan_faults

CELL = Cell("in_job", "sigkill", num_nodes=1, num_ranks=2, preset="tiny")


def order(folder: Path, **changes: Any) -> Order:
    machine = Machine("cpu", num_nodes=1, workers_per_node=2)
    made = Order("tiny", machine, save_every=0, storage=folder, out=folder, deadline=0.0)
    return replace(made, **changes)


def test_the_seconds_of_a_fault_are_those_of_the_ledger() -> None:
    exception, sigkill, hang = recovered(three_faults().events)
    kind, seconds, recovery = exception
    assert (kind, recovery.restored_step) == ("exception", 5)
    assert seconds == pytest.approx(
        {
            **{"detect": 0.1, "abort": 1.0, "rendezvous": 0.4, "restore": 0.5, "first step": 1.0},
            **{"startup": 0.0, "idle": 0.0, "all out": 0.3, "total": 3.0},
        }
    )
    assert (sigkill[0], sigkill[1]["all out"]) == ("sigkill", None)
    assert hang[0] == "hang"
    assert hang[1]["detect"] == pytest.approx(6.0)


def test_a_fault_is_no_cell_before_its_run_has_recovered() -> None:
    history = History(num_ranks=2)
    assert recovered(history.events) == []
    launch(history)
    history.restore(0)
    history.train(to=3)
    history.fault("hang", rank=1)
    assert recovered(history.events) == []


@pytest.mark.parametrize(
    ("kind", "seconds", "met"),
    [
        ("exception", {"total": 3.9}, True),
        ("exception", {"total": 4.1}, False),
        ("sigkill", {"total": 9.9}, True),
        ("hang", {"total": 30.0, "detect": 9.9}, True),
        ("hang", {"total": 30.0, "detect": 10.1}, False),
        ("cuda_error", {"total": 1.0}, None),
        ("exception", {}, None),
    ],
)
def test_each_kind_has_its_own_aim(kind: str, seconds: dict[str, float], met: bool | None) -> None:
    assert is_met(replace(CELL, kind=kind, seconds=seconds)) is met


def test_a_row_holds_the_medians_of_its_cells_and_failures_are_told() -> None:
    cells = [replace(CELL, seconds={"total": total, "detect": 0.5}) for total in (5.0, 7.0, 9.0)]
    text = as_markdown([*cells, replace(CELL, failure="the time was up")])
    (row,) = [line for line in text.splitlines() if line.startswith("| in_job")]
    assert row.startswith("| in_job | sigkill | tiny | 1 x 2 | 3 | 7.0 | 0.5 | - |")
    assert row.endswith("| total < 10 | yes |")
    assert "in_job, sigkill: the time was up" in text


def test_faults_come_once_the_pace_is_known() -> None:
    # Nothing is saved: each fault goes back to step 10, and 30 steps are more than enough.
    assert fault_steps(3, save_every=0) == [40, 70, 100]
    # Saved every 10 steps: up to 10 steps before the fault may be restored.
    assert fault_steps(3, save_every=10) == [40, 80, 120]


def test_the_plan_of_a_run_is_its_kinds_in_their_order(tmp_path: Path) -> None:
    settings = settings_of(order(tmp_path), "in_job", ("sigkill", "exception"), 7)
    plan = plan_faults(settings.faults, max_steps=settings.max_steps)
    assert [(f.kind, f.step, f.rank) for f in plan] == [("sigkill", 40, 1), ("exception", 70, 1)]


def test_only_names_layers_and_kinds() -> None:
    assert wanted(["in_job:oom", "in_process", "in_job:exit"], "cpu") == {
        "in_job": ("oom", "exit"),
        "in_process": ("exception", "hang"),
    }
    assert list(wanted([], "cuda")) == ["in_process", "in_job", "layered"]
    with pytest.raises(ValueError, match="in_jib"):
        wanted(["in_jib"], "cpu")


def test_what_was_measured_is_not_measured_again(tmp_path: Path) -> None:
    cells = [CELL, replace(CELL, kind="hang", failure="the time was up")]
    kinds = ("sigkill", "hang", "sigkill")
    assert missing("in_job", kinds, cells, order(tmp_path)) == ("hang", "sigkill")
    assert missing("layered", kinds, cells, order(tmp_path)) == kinds


def test_only_the_failure_that_is_tried_again_is_forgotten(tmp_path: Path) -> None:
    results = tmp_path / "recovery.jsonl"
    measured = replace(CELL, seconds={"total": 5.0, "all out": None}, gpu_mib=(1, 2))
    other = replace(CELL, layer="layered", failure="no")
    bench_recovery.append(results, replace(CELL, failure="no"), measured, other)
    bench_recovery.forget_failures(results, [CELL.key])
    kept = [(cell.layer, cell.seconds, cell.failure) for cell in bench_recovery.cells_in(results)]
    assert kept == [("in_job", {"total": 5.0, "all out": None}, ""), ("layered", {}, "no")]


def test_flags_reach_ft_launcher_alone() -> None:
    flags = ("--ft-numa-bind-strict=false",)
    command = ("python", "-m", "trainer.entry", "--", "ft_launcher", "--nnodes=1", "-m", "t")
    assert bench_job.with_flags(command, flags)[4:7] == ("ft_launcher", *flags, "--nnodes=1")
    assert bench_job.with_flags(("torchrun", "-m", "t"), flags) == ("torchrun", "-m", "t")


def test_two_nodes_share_the_gpus() -> None:
    machine = Machine("cuda", num_nodes=2, workers_per_node=2)
    assert bench_job.devices_of(0, machine) == {"CUDA_VISIBLE_DEVICES": "0,1"}
    assert bench_job.devices_of(1, machine) == {"CUDA_VISIBLE_DEVICES": "2,3"}


def test_a_run_that_cannot_start_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    wrong = order(tmp_path, machine=Machine("cpu", 1, 2))
    settings = settings_of(wrong, "in_job", ("sigkill",), 7).model_copy(update={"max_steps": 0})
    reason = bench_job.run(
        settings, wrong.machine, tmp_path, enough=lambda: False, limit_seconds=60
    )
    assert f"ended with exit code {CONFIG}" in reason
    assert "max_steps" in reason


def test_every_run_starts_from_the_same_step_however_many_were_saved(tmp_path: Path) -> None:
    shared = bench_job.run_directory(tmp_path / "prepared-tiny-cpu-2") / "checkpoints"
    for step in (10, 20):
        folder = shared / folder_name(step, attempt=1)
        folder.mkdir(parents=True)
        commit(folder, CommitRecord(step, 1, 2, {}, (), ShardFormat.DCP, "run", 100))
    assert bench_recovery.start_from_checkpoint(tmp_path / "in_job-1", order(tmp_path)) == ""
    linked = committed(bench_job.run_directory(tmp_path / "in_job-1") / "checkpoints")
    assert [checkpoint.record.step for checkpoint in linked] == [10]
    assert [checkpoint.record.step for checkpoint in committed(shared)] == [20, 10]


def test_a_model_that_needs_a_gpu_is_refused_without_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_recovery, "num_gpus", lambda: 0)
    assert bench_recovery.main([]) == 2
    assert "try --device cpu" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.distributed
def test_a_fault_is_measured_on_the_cpu(tmp_path: Path) -> None:
    arguments = ["--device", "cpu", "--preset", "tiny", "--out", str(tmp_path)]
    assert bench_recovery.main([*arguments, "--only", "in_job:sigkill"]) == 0
    (cell,) = json.loads((tmp_path / "recovery.json").read_text())
    # From the checkpoint of step 10, or from memory since; the fault comes in step 40.
    assert cell["restored_step"] >= 10
    assert cell["restored_step"] + cell["steps_lost"] == 39
    parts = ("detect", "abort", "rendezvous", "startup", "restore", "first step", "idle")
    assert sum(cell["seconds"][part] for part in parts) == pytest.approx(cell["seconds"]["total"])
    assert (tmp_path / "events.tar.gz").stat().st_size > 1000
    # Nothing is missing, so nothing is run again.
    shutil.rmtree(tmp_path / "storage")
    assert bench_recovery.main([*arguments, "--only", "in_job:sigkill"]) == 0
    assert not (tmp_path / "storage").exists()
