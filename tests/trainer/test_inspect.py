"""The list of checkpoints of folders written here: validity, order, exit codes, refusals."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.listings import SHARD, flip_a_bit, keep_settings, listed, save
from trainer.checkpoint import survey as survey_module
from trainer.checkpoint.layout import COMMIT_RECORD
from trainer.checkpoint.survey import survey
from trainer.inspect import age, main


def problems(content: dict[str, Any]) -> dict[str, str | None]:
    return {entry["name"]: entry["problem"] for entry in content["checkpoints"]}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "llama"


def test_the_table_shows_each_checkpoint_and_which_one_a_restore_takes(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 10)
    save(run, 20)
    flip_a_bit(save(run, 30) / SHARD)
    assert main([str(run)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[2:5]] == [
        "step-00000030-attempt-0001",
        "step-00000020-attempt-0001",
        "step-00000010-attempt-0001",
    ]
    assert lines[2].endswith(f"NO: {SHARD} has a wrong checksum")
    assert lines[3].split()[1:] == ["20", "1", "0.00", "0", "s", "2", "dcp", "yes"]
    assert lines[-1] == "A restore takes step-00000020-attempt-0001."


def test_the_table_is_ascii_within_its_columns(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 10, run="a-run-whose-name-goes-on-and-on-[bold]for-longer-than-any-line")
    main([str(run)])
    table, _ = capsys.readouterr().out.split("\n\n")
    assert table.isascii()
    assert max(map(len, table.splitlines())) <= 120
    assert "[bold]" in table.replace("\n", "")


def test_the_checkpoints_folder_itself_is_listed_alike(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 10)
    _, of_run = listed(capsys, str(run))
    code, of_folder = listed(capsys, str(run / "checkpoints"))
    assert code == 0
    assert of_folder["restore_takes"] == of_run["restore_takes"] == "step-00000010-attempt-0001"


def test_each_kind_of_damage_is_named(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.truncate(save(run, 10) / SHARD, 999)
    (save(run, 20) / SHARD).unlink()
    flip_a_bit(save(run, 30) / "__1_0.distcp")
    os.truncate(save(run, 40) / COMMIT_RECORD, 100)
    (save(run, 50) / COMMIT_RECORD).unlink()
    code, content = listed(capsys, str(run))
    assert code == 1
    assert content["restore_takes"] is None
    assert problems(content) == {
        "step-00000030-attempt-0001": "__1_0.distcp has a wrong checksum",
        "step-00000020-attempt-0001": f"{SHARD} is missing",
        "step-00000010-attempt-0001": f"{SHARD} has 999 of 1000 bytes",
        "step-00000040-attempt-0001": f"its {COMMIT_RECORD} is torn or not from this trainer",
        "step-00000050-attempt-0001": (
            "has no commit record: a save that is in flight, or never finished"
        ),
    }


def test_sizes_are_of_the_files_whether_committed_or_not(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 20)
    (save(run, 10) / COMMIT_RECORD).unlink()
    _, content = listed(capsys, str(run))
    assert [entry["size_bytes"] for entry in content["checkpoints"]] == [2000, 2000]


def test_quick_sees_a_truncated_file_and_says_that_it_read_nothing(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip_a_bit(save(run, 10) / SHARD)
    os.truncate(save(run, 20) / SHARD, 1)
    code, content = listed(capsys, str(run), "--quick")
    assert code == 0
    assert content["checked"] == "sizes"
    assert problems(content) == {
        "step-00000020-attempt-0001": f"{SHARD} has 1 of 1000 bytes",
        "step-00000010-attempt-0001": None,
    }
    main([str(run), "--quick"])
    assert "Only sizes were compared." in capsys.readouterr().out


def test_looking_changes_nothing(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(run, 10)
    flip_a_bit(save(run, 20) / SHARD)
    (save(run, 30) / COMMIT_RECORD).unlink()
    before = _everything_in(run)
    listed(capsys, str(run))
    assert _everything_in(run) == before


def test_a_checkpoint_that_retention_deletes_meanwhile_is_left_out(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(run, 10)
    doomed = save(run, 20)
    monkeypatch.setattr(survey_module, "LONG_BYTES", 1)

    def delete(line: str) -> None:
        if doomed.name in line:
            shutil.rmtree(doomed, ignore_errors=True)

    found = survey(run / "checkpoints", quick=False, say=delete, now=0.0)
    assert [(each.path.name, each.problem) for each in found] == [
        ("step-00000010-attempt-0001", "")
    ]


def test_long_files_are_announced_on_stderr(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 10)
    monkeypatch.setattr(survey_module, "LONG_BYTES", 1000)
    main([str(run), "--json"])
    out, err = capsys.readouterr()
    assert json.loads(out)
    assert err.splitlines()[0] == (
        f"trainer.inspect: checking step-00000010-attempt-0001/{SHARD} (0.00 GiB)"
    )


@pytest.mark.parametrize("options", [{}, {"checkpoint": {"resume_step": 10}}])
def test_a_list_needs_no_torch(run: Path, options: dict[str, dict[str, Any]]) -> None:
    save(run, 10, fingerprint={})  # compared with the settings, and told how it differs
    keep_settings(run, **options)
    program = (
        "import sys; from trainer.inspect import main; main(sys.argv[1:]); "
        "print('torch' in sys.modules)"
    )
    command = [sys.executable, "-c", program, str(run)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "its settings differ" in done.stdout.replace("\n", "")
    assert done.stdout.splitlines()[-1] == "False"
    assert not done.stderr


def test_a_run_that_has_saved_nothing_has_no_valid_checkpoint(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / "checkpoints").mkdir(parents=True)
    assert main([str(run)]) == 1
    assert capsys.readouterr().out == (
        f"There is nothing in {run}/checkpoints that a restore could take.\n"
    )


def test_one_checkpoint_is_refused_with_where_to_look(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(save(run, 10))]) == 2
    assert capsys.readouterr().err.endswith("is one checkpoint; give its run's folder\n")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda _: None, "no such folder; give a run's folder"),
        (lambda run: run.touch(), "no such folder; give a run's folder"),
        (lambda run: run.mkdir(), "holds no folder 'checkpoints'"),
    ],
)
def test_what_holds_no_checkpoints_is_refused_in_one_line(
    run: Path, capsys: pytest.CaptureFixture[str], make: Any, message: str
) -> None:
    make(run)
    assert main([str(run)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert len(err.splitlines()) == 1
    assert message in err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (7199, "119 min"),
        (7200, "2 h"),
        (172_800, "2 d"),
    ],
)
def test_an_age_has_its_largest_fitting_unit(seconds: float, text: str) -> None:
    assert age(seconds) == text


def _everything_in(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in folder.rglob("*")
    }
