"""Which checkpoint a restore takes, as ``trainer.inspect`` says it."""

import json
from pathlib import Path

import pytest

from tests.trainer.listings import keep_settings, listed, save
from trainer.checkpoint.layout import ShardFormat
from trainer.inspect import main


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "llama"


def test_a_later_attempt_is_newer_whatever_its_step(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 30, attempt=1)
    save(run, 20, attempt=2)
    code, content = listed(capsys, str(run))
    assert code == 0
    assert content["restore_takes"] == "step-00000020-attempt-0002"
    assert [entry["step"] for entry in content["checkpoints"]] == [20, 30]


def test_a_checkpoint_of_another_run_is_valid_and_not_restored(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 10)
    save(run, 20, run="mistral")
    code, content = listed(capsys, str(run))
    assert code == 0
    assert content["restore_takes"] == "step-00000010-attempt-0001"
    assert content["checkpoints"][0]["valid"]
    assert content["checkpoints"][0]["why_not_restored"] == "it is of run 'mistral', not 'llama'"


def test_a_checkpoint_of_other_settings_is_valid_and_not_restored(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 10)
    keep_settings(run, model={"seed": 7})
    code, content = listed(capsys, str(run))
    assert code == 0
    assert content["restore_takes"] is None
    reason = content["checkpoints"][0]["why_not_restored"]
    assert reason == "its settings differ: model.seed 0 is now 7"


def test_without_the_dataset_at_hand_settings_are_not_compared(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 10)
    keep_settings(run, data={"dataset": str(tmp_path / "elsewhere")})
    assert main([str(run), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["restore_takes"] == "step-00000010-attempt-0001"
    assert "cannot tell whether the settings are still those of the checkpoints" in err


def test_the_step_to_go_back_to_is_the_one_that_a_restore_takes(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for step in (10, 20, 30):
        save(run, step)
    keep_settings(run, checkpoint={"resume_step": 20})
    _, content = listed(capsys, str(run))
    assert content["restore_takes"] == "step-00000020-attempt-0001"


def test_local_shards_are_said_to_need_as_many_ranks(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(run, 10, format=ShardFormat.LOCAL_SHARDS)
    main([str(run)])
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "A restore takes step-00000010-attempt-0001, on 2 ranks alone."
