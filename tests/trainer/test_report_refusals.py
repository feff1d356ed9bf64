"""What the report refuses, in one line, and how it ends when nobody reads on."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.trainer.histories import three_faults
from tests.trainer.run_folders import unfaulted, write_run
from trainer import report
from trainer.report import main


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
    write_run(tmp_path / "run", three_faults())
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
    history = unfaulted()
    history.events = [e for e in history.events if e["name"] != "run_finished"]
    write_run(tmp_path / "half", history)
    assert main([str(tmp_path), "--reference", str(tmp_path / "half")]) == 2
    assert "half: did not finish" in capsys.readouterr().err
