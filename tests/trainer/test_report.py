"""The report, on run folders written here: tables, JSON, verdicts."""

from pathlib import Path

import pytest

from tests.golden_files import assert_golden
from tests.trainer.histories import History, launch, three_faults
from tests.trainer.run_folders import json_of, row_of, three_runs, unfaulted, write_run
from trainer.goodput.runs import compare
from trainer.report import main

GOLDEN = Path(__file__).parents[1] / "golden" / "reports"


def test_the_report_of_a_reference_and_two_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three_runs(tmp_path)
    assert main([str(tmp_path)]) == 0
    assert_golden(GOLDEN / "three-runs.txt", capsys.readouterr().out)


def test_the_report_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    three_runs(tmp_path)
    assert main([str(tmp_path), "--json"]) == 0
    text = capsys.readouterr().out.replace(str(tmp_path), "/runs")
    assert_golden(GOLDEN / "three-runs.json", text)


def test_the_tables_are_ascii_within_a_hundred_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "a-name-that-goes-on-and-on-for-a-while-1", three_faults())
    write_run(tmp_path / "[bold]tagged", three_faults())
    main([str(tmp_path)])
    text = capsys.readouterr().out
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 100
    assert "[bold]tagged" in text


def test_the_lone_unfaulted_run_without_saves_is_the_reference(tmp_path: Path) -> None:
    three_runs(tmp_path)
    reference = compare([tmp_path]).reference
    assert reference is not None
    assert reference.name == "unfaulted-1"


def test_between_two_candidates_no_reference_is_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("one", "two"):
        write_run(tmp_path / name, unfaulted(), mode="none")
    assert main([str(tmp_path)]) == 0
    assert "own median step time, stalls left out: one, two." in capsys.readouterr().out


def test_a_named_reference_need_not_be_among_the_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "elsewhere" / "yardstick", unfaulted(seconds=0.5), mode="none")
    write_run(tmp_path / "runs" / "faulted", three_faults())
    arguments = [str(tmp_path / "runs"), "--reference", str(tmp_path / "elsewhere"), "--json"]
    assert main(arguments) == 0
    report = json_of(capsys)
    assert report["reference"] == "yardstick"
    (run,) = report["runs"]
    assert run["equals_reference"] is True
    assert run["goodput_fraction"] == pytest.approx(24 * 0.5 / 66.5)


@pytest.mark.parametrize(("digest", "num_steps"), [("other", 24), ("d", 23)])
def test_a_result_that_differs_from_the_reference_is_told_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], digest: str, num_steps: int
) -> None:
    write_run(tmp_path / "unfaulted", unfaulted(), mode="none")
    write_run(tmp_path / "wrong", unfaulted(digest=digest, num_steps=num_steps))
    assert main([str(tmp_path)]) == 1
    assert row_of(capsys.readouterr().out, "wrong").endswith(" NO")


def test_a_run_that_trains_something_else_is_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "unfaulted", unfaulted(), mode="none")
    write_run(tmp_path / "longer", unfaulted(num_steps=30), max_steps=30)
    assert main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert row_of(text, "longer").endswith(" -")
    assert "own median step time, stalls left out: longer." in text


def test_a_run_that_did_not_finish_is_told_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = History(num_ranks=2)
    launch(history)
    history.restore(0)
    history.train(to=3)
    history.fault("hang", rank=1)
    write_run(tmp_path / "died", history)
    assert main([str(tmp_path)]) == 1
    row = row_of(capsys.readouterr().out, "died")
    assert "hang never" in row
    assert row.endswith(" unfinished")


def test_a_run_that_left_no_settings_is_reported_without_its_layer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "bare", three_faults())
    (tmp_path / "bare" / "settings.json").unlink()
    assert main([str(tmp_path / "bare")]) == 0
    assert row_of(capsys.readouterr().out, "bare").split()[1] == "-"


def test_runs_of_the_same_name_are_told_apart_by_their_folder(tmp_path: Path) -> None:
    write_run(tmp_path / "monday" / "pod-1", three_faults())
    write_run(tmp_path / "tuesday" / "pod-1", three_faults())
    names = [run.name for run in compare([tmp_path]).runs]
    assert names == [str(tmp_path / "monday" / "pod-1"), str(tmp_path / "tuesday" / "pod-1")]


def test_a_folder_given_twice_is_reported_once(tmp_path: Path) -> None:
    write_run(tmp_path / "run", three_faults())
    assert len(compare([tmp_path, tmp_path / "run", tmp_path / "." / "run"]).runs) == 1


def test_a_loss_that_is_not_finite_is_told_and_leaves_the_json_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history = unfaulted()
    for event in history.events:
        if event["name"] == "step_completed" and event["step"] == 7:
            event["loss"] = float("inf")
    write_run(tmp_path / "run", history)
    main([str(tmp_path), "--json"])
    (run,) = json_of(capsys)["runs"]
    assert run["nonfinite_loss_steps"] == [7]
    main([str(tmp_path)])
    assert "run: the loss is not finite at 1 steps from 7." in capsys.readouterr().out
