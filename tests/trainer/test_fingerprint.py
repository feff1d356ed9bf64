"""A run goes on after what changes no result, and not after what does."""

import json
import shutil
import struct
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.ranks import trainer_settings
from trainer.checkpoint.fingerprint import difference, fingerprint, schedule_change

MANIFEST = {"vocabulary_size": 9, "end_of_text": 0, "dtype": "uint16", "num_tokens": 4}


def print_of(tmp_path: Path, **groups: dict[str, Any]) -> dict[str, Any]:
    return fingerprint(trainer_settings(tmp_path, **groups))


@pytest.mark.parametrize(
    "groups",
    [
        {"data": {"micro_batch_size": 1}},
        {"model": {"activation_checkpointing": True}},
        {"checkpoint": {"mode": "sync"}},
    ],
)
def test_a_run_goes_on_with_another(groups: dict[str, Any], tmp_path: Path) -> None:
    assert print_of(tmp_path, **groups) == print_of(tmp_path)


@pytest.mark.parametrize(
    ("groups", "what"),
    [
        (
            {"optimizer": {"learning_rate": 1e-5}},
            "optimizer.learning_rate 0.0003 is now 1e-05",
        ),
        ({"optimizer": {"weight_decay": 0.0}}, "optimizer.weight_decay 0.1 is now 0.0"),
        ({"model": {"weights": "other"}}, "model.weights None is now 'other'"),
    ],
)
def test_a_run_does_not_go_on_with_another(
    groups: dict[str, Any], what: str, tmp_path: Path
) -> None:
    assert difference(print_of(tmp_path), print_of(tmp_path, **groups)) == what


def test_a_run_made_longer_is_told_how_its_learning_rate_jumps(tmp_path: Path) -> None:
    settings = trainer_settings(
        tmp_path, optimizer={"learning_rate": 1.0, "final_learning_rate_fraction": 0.0}
    )
    assert settings.max_steps == 100
    # Half way of 50 steps the cosine is at a half, and a quarter of the way of 100 at 0.8536.
    words = schedule_change(settings, step=25, max_steps=50)
    assert "max_steps was 50 and is 100" in words
    assert "goes from 0.5 in step 25 to 0.8423 in step 26" in words
    assert "from 0 in step 50 to 0.4843 in step 51" in schedule_change(
        settings, step=50, max_steps=50
    )
    assert schedule_change(settings, step=25, max_steps=100) == ""


@pytest.mark.parametrize("change", [{"global_batch_size": 8}, {"seed": 1}, {"sequence_length": 8}])
def test_a_run_does_not_go_on_with_other_samples(change: dict[str, Any], tmp_path: Path) -> None:
    assert print_of(tmp_path, data=change) != print_of(tmp_path)


def test_a_dataset_may_move_but_not_change(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    (here / "dataset.json").write_text(json.dumps(MANIFEST))
    (here / "tokens.bin").write_bytes(struct.pack("<4H", 1, 2, 3, 0))
    shutil.copytree(here, there)
    saved = print_of(tmp_path, data={"dataset": here})
    assert print_of(tmp_path, data={"dataset": there}) == saved
    other = shutil.copytree(here, tmp_path / "other")
    (other / "tokens.bin").write_bytes(struct.pack("<4H", 1, 2, 4, 0))
    found = difference(saved, print_of(tmp_path, data={"dataset": other}))
    assert found.startswith("data.dataset 'dataset ")
