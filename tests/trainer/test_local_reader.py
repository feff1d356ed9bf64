"""Reading local shards: what is not this rank's file for this run is refused in words."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.local_shards import checkpoint_at
from trainer.checkpoint import local_reader
from trainer.checkpoint.layout import record_file

FILE = "rank-0.pt"


def live() -> dict[str, Tensor]:
    return {"a": torch.zeros(2, 3), "b": torch.zeros(0, 3), "c": torch.zeros((), dtype=torch.int64)}


def saved() -> dict[str, Any]:
    return {"a": torch.ones(2, 3), "b": torch.ones(0, 3), "c": torch.tensor(7)}


def answer(folder: Path, content: object) -> tuple[str | None, list[Any]]:
    """What the reader says of a file with ``content``, and the values that it leaves."""
    torch.save(content, folder / FILE)
    return read(folder)


def read(folder: Path) -> tuple[str | None, list[Any]]:
    checkpoint = checkpoint_at(folder, [record_file(folder / FILE)], world_size=1)
    tensors = live()
    problem = local_reader.read(checkpoint, tensors, 0)
    return problem, [tensor.tolist() for tensor in tensors.values()]


UNTOUCHED = [[[0, 0, 0], [0, 0, 0]], [], 0]


def test_values_are_read_in_place_whatever_their_shape(tmp_path: Path) -> None:
    assert answer(tmp_path, saved()) == (None, [[[1, 1, 1], [1, 1, 1]], [], 7])


def test_another_world_size_is_refused_with_both_numbers_and_what_to_do(tmp_path: Path) -> None:
    record = checkpoint_at(tmp_path, [], world_size=1).record
    assert local_reader.why_other_ranks(record, 1) is None
    assert local_reader.why_other_ranks(record, 4) == (
        "saved by 1 rank as local shards, which only 1 rank can read, and 4 run now; restart "
        "with 1 rank, or do so once with checkpoint.mode=async, whose next checkpoint any "
        "number of ranks can read"
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"a": None}, "a is no tensor"),
        ({"a": torch.ones(3, 2)}, "a is torch.float32 (3, 2), and torch.float32 (2, 3) in"),
        ({"c": torch.ones(())}, "c is torch.float32 (), and torch.int64 () in this run"),
        ({"d": torch.ones(1)}, "d is in it, and not in this run's state"),
    ],
)
def test_what_does_not_fit_is_named_and_nothing_is_read(
    changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    problem, values = answer(tmp_path, saved() | changes)
    assert problem is not None
    assert problem.startswith(f"{FILE}: {words}")
    assert values == UNTOUCHED


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    content = saved()
    del content["b"]
    assert answer(tmp_path, content) == (f"{FILE}: b is missing", UNTOUCHED)


def test_something_else_than_a_dictionary_is_refused(tmp_path: Path) -> None:
    problem = f"{FILE} holds no dictionary of tensors"
    assert answer(tmp_path, torch.ones(1)) == (problem, UNTOUCHED)


class Code:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("executed",)


def test_nothing_in_a_file_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problem, values = answer(tmp_path, saved() | {"a": Code()})
    assert problem is not None
    assert problem.startswith(f"{FILE} cannot be read: UnpicklingError")
    assert values == UNTOUCHED
    assert not Path("executed").exists()


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_a_file_cut_short_is_refused_in_one_line(size: int, tmp_path: Path) -> None:
    torch.save(saved(), tmp_path / FILE)
    os.truncate(tmp_path / FILE, size)
    problem, values = read(tmp_path)
    assert problem is not None
    assert problem.startswith(f"{FILE} cannot be read: ")
    assert "\n" not in problem
    assert values == UNTOUCHED


def test_a_file_that_the_record_does_not_answer_for_is_not_read(tmp_path: Path) -> None:
    torch.save(saved(), tmp_path / FILE)
    checkpoint = checkpoint_at(tmp_path, [], world_size=1)
    problem = local_reader.read(checkpoint, live(), 0)
    assert problem == f"{FILE} is not in the commit record"
