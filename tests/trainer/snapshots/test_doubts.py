"""A state that gives another loss than it did is not trained on, and is remembered as struck."""

import math
from pathlib import Path

import pytest

from trainer.snapshots.buffer import found_in
from trainer.snapshots.doubts import DoubtfulState, Probe, strike, struck_in


def probe(loss: float | None, device_type: str = "cpu") -> Probe:
    return Probe(attempt=2, step=40, loss=loss, device_type=device_type)


def test_the_same_loss_is_no_doubt() -> None:
    probe(0.1 + 0.2).check(0.1 + 0.2)


def test_on_a_cpu_one_bit_is_enough_to_doubt() -> None:
    with pytest.raises(DoubtfulState, match=r"step 41 .* step 40 of attempt 2"):
        probe(2.5).check(math.nextafter(2.5, 3))


@pytest.mark.parametrize("loss", [2.0018, 1.9982])
def test_on_a_gpu_a_sum_in_another_order_is_no_doubt(loss: float) -> None:
    probe(2.0, "cuda").check(loss)


@pytest.mark.parametrize("loss", [2.0022, 1.9978, math.nan, math.inf])
def test_on_a_gpu_more_than_a_thousandth_is_a_doubt(loss: float) -> None:
    with pytest.raises(DoubtfulState):
        probe(2.0, "cuda").check(loss)


def test_where_no_loss_was_noted_none_is_doubted() -> None:
    probe(None).check(2.5)


def test_a_loss_that_is_no_number_is_a_doubt() -> None:
    with pytest.raises(DoubtfulState):
        probe(2.5).check(math.nan)


def test_what_is_struck_stays_so_for_whoever_looks_next(tmp_path: Path) -> None:
    strike(tmp_path, attempt=2, step=40)
    strike(tmp_path, attempt=2, step=40)
    strike(tmp_path, attempt=3, step=41)
    assert struck_in(tmp_path) == {(2, 40), (3, 41)}


def test_other_files_of_the_folder_strike_nothing(tmp_path: Path) -> None:
    for name in ("own-1-2-40", "struck-1", "struck-1-2-3", "not-struck-1-2"):
        (tmp_path / name).touch()
    assert struck_in(tmp_path) == frozenset()


def test_a_struck_state_is_not_found_as_a_snapshot(tmp_path: Path) -> None:
    strike(tmp_path, attempt=2, step=40)
    assert found_in(tmp_path) == []


def test_a_folder_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="gone"):
        strike(tmp_path / "gone", attempt=1, step=1)
