"""The report, on run folders written here: tables, JSON, verdicts, exit codes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.golden_files import assert_golden
from tests.trainer.histories import History, launch, three_faults
from trainer import report
from trainer.goodput.runs import compare
from trainer.report import main
from trainer.settings import TrainerSettings

GOLDEN = Path(__file__).parents[1] / "golden" / "reports"


def test_the_report_of_a_reference_and_two_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _three_runs(tmp_path)
    assert main([str(tmp_path)]) == 0
    assert_golden(GOLDEN / "three-runs.txt", capsys.readouterr().out)


def test_the_report_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _three_runs(tmp_path)
    assert main([str(tmp_path), "--json"]) == 0
    text = capsys.readouterr().out.replace(str(tmp_path), "/runs")
    assert_golden(GOLDEN / "three-runs.json", text)


def test_the_tables_are_ascii_within_a_hundred_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path / "a-name-that-goes-on-and-on-for-a-while-1", three_faults())
    _write(tmp_path / "[bold]tagged", three_faults())
    main([str(tmp_path)])
    text = capsys.readouterr().out
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 100
    assert "[bold]tagged" in text


def test_the_lone_unfaulted_run_without_saves_is_the_reference(tmp_path: Path) -> None:
    _three_runs(tmp_path)
    reference = compare([tmp_path]).reference
    assert reference is not None
    assert reference.name == "unfaulted-1"


def test_between_two_candidates_no_reference_is_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        _write(tmp_path / name, _unfaulted(), mode="none")
    assert main([str(tmp_path)]) == 0
    assert "own median step time, stalls left out: one, two." in capsys.readouterr().out


def test_a_named_reference_need_not_be_among_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path / "elsewhere" / "yardstick", _unfaulted(seconds=0.5), mode="none")
    _write(tmp_path / "runs" / "faulted", three_faults())
    arguments = [str(tmp_path / "runs"), "--reference", str(tmp_path / "elsewhere"), "--json"]
    assert main(arguments) == 0
    report = _json(capsys)
    assert report["reference"] == "yardstick"
    (run,) = report["runs"]
    assert run["equals_reference"] is True
    assert run["goodput_fraction"] == pytest.approx(24 * 0.5 / 66.5)


@pytest.mark.parametrize(("digest", "num_steps"), [("other", 24), ("d", 23)])
def test_a_result_that_differs_from_the_reference_is_told_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], digest: str, num_steps: int
) -> None:
    _write(tmp_path / "unfaulted", _unfaulted(), mode="none")
    _write(tmp_path / "wrong", _unfaulted(digest=digest, num_steps=num_steps))
    assert main([str(tmp_path)]) == 1
    assert _row(capsys.readouterr().out, "wrong").endswith(" NO")


def test_a_run_that_trains_something_else_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path / "unfaulted", _unfaulted(), mode="none")
    _write(tmp_path / "longer", _unfaulted(num_steps=30), max_steps=30)
    assert main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert _row(text, "longer").endswith(" -")
    assert "own median step time, stalls left out: longer." in text


def test_a_run_that_did_not_finish_is_told_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(num_ranks=2)
    launch(history)
    history.restore(0)
    history.train(to=3)
    history.fault("hang", rank=1)
    _write(tmp_path / "died", history)
    assert main([str(tmp_path)]) == 1
    row = _row(capsys.readouterr().out, "died")
    assert "hang never" in row
    assert row.endswith(" unfinished")


def test_a_run_that_left_no_settings_is_reported_without_its_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _write(tmp_path / "bare", three_faults())
    (tmp_path / "bare" / "settings.json").unlink()
    assert main([str(tmp_path / "bare")]) == 0
    assert _row(capsys.readouterr().out, "bare").split()[1] == "-"


def test_runs_of_the_same_name_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    _write(tmp_path / "monday" / "pod-1", three_faults())
    _write(tmp_path / "tuesday" / "pod-1", three_faults())
    names = [run.name for run in compare([tmp_path]).runs]
    assert names == [str(tmp_path / "monday" / "pod-1"), str(tmp_path / "tuesday" / "pod-1")]


def test_a_folder_given_twice_is_reported_once(tmp_path: Path) -> None:
    _write(tmp_path / "run", three_faults())
    assert len(compare([tmp_path, tmp_path / "run", tmp_path / "." / "run"]).runs) == 1


def test_a_loss_that_is_not_finite_is_told_and_leaves_the_json_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = _unfaulted()
    for event in history.events:
        if event["name"] == "step_completed" and event["step"] == 7:
            event["loss"] = float("inf")
    _write(tmp_path / "run", history)
    main([str(tmp_path), "--json"])
    (run,) = _json(capsys)["runs"]
    assert run["nonfinite_loss_steps"] == [7]
    main([str(tmp_path)])
    assert "run: the loss is not finite at 1 steps from 7." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "no such folder"),
        ("", "holds no events"),
        ('{"name": "step_completed", "wall": 1, "rank": 0}\n', "lacks 'attempt'"),
        ('{"name": "step_completed", "wall": "noon", "rank": 0}\n', "could not convert"),
    ],
)
def test_what_cannot_be_reported_is_refused_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | None, problem: str
) -> None:
    folder = tmp_path / "run"
    if content is not None:
        (folder / "events").mkdir(parents=True)
    if content:
        (folder / "events" / "rank-0.jsonl").write_text(content)
    assert main([str(folder)]) == 2
    message = capsys.readouterr().err
    assert problem in message
    assert message.count("\n") == 1


def test_a_reader_that_has_seen_enough_causes_no_traceback(tmp_path: Path) -> None:
    _write(tmp_path / "run", three_faults())
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = subprocess.run(
            [sys.executable, "-m", "trainer.report", str(tmp_path)],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


def test_an_interrupted_report_is_exit_code_130(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "compare", interrupted)
    assert main([str(tmp_path)]) == 130


def test_an_unfinished_reference_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = _unfaulted()
    history.events = [e for e in history.events if e["name"] != "run_finished"]
    _write(tmp_path / "half", history)
    assert main([str(tmp_path), "--reference", str(tmp_path / "half")]) == 2
    assert "half: did not finish" in capsys.readouterr().err


def _three_runs(directory: Path) -> None:
    _write(directory / "unfaulted-1", _unfaulted(), layer="none", mode="none")
    _write(directory / "volumes" / "runs" / "all-layers-1", three_faults(), layer="in_process")
    history = _unfaulted(save_at={6, 12, 18})
    _write(directory / "volumes" / "runs" / "sync-1", history, layer="pod", mode="sync")


def _unfaulted(
    *,
    num_steps: int = 24,
    seconds: float = 1.0,
    save_at: frozenset[int] | set[int] = frozenset(),
    digest: str = "d",
) -> History:
    history = History(num_ranks=2)
    launch(history)
    history.restore(0)
    for step in range(1, num_steps + 1):
        history.step(seconds, stall_seconds=0.5 if step in save_at else 0.0)
    history.finish(digest)
    return history


def _write(
    folder: Path,
    history: History,
    *,
    layer: str = "in_job",
    mode: str = "async",
    max_steps: int = 24,
) -> None:
    (folder / "events").mkdir(parents=True)
    for event in history.events:
        writer = f"rank-{event['rank']}" if "rank" in event else f"pod-{event['pod']}"
        with (folder / "events" / f"{writer}.jsonl").open("a") as file:
            file.write(json.dumps(event) + "\n")
    settings = TrainerSettings.model_validate(
        {
            "run_directory": "/fsx/runs/any",
            "device": "cpu",
            "max_steps": max_steps,
            "model": {"preset": "tiny"},
            "data": {"sequence_length": 8, "global_batch_size": 2},
            "checkpoint": {"mode": mode, "interval_steps": 5},
            "recovery": {"layer": layer},
        }
    )
    (folder / "settings.json").write_text(settings.model_dump_json())


def _json(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    report: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=refuse)
    return report


def _row(text: str, name: str) -> str:
    """The first line of the run's row in the first table."""
    return next(line for line in text.splitlines() if line.startswith(name))
