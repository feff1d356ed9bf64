"""Attempts are numbered from 1, each number once, whoever asks."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainer.attempts import claim_attempt
from trainer.checkpoint.layout import folder_name


def test_attempts_count_from_1(tmp_path: Path) -> None:
    assert [claim_attempt(tmp_path) for _ in range(3)] == [1, 2, 3]


def test_numbers_are_compared_as_numbers(tmp_path: Path) -> None:
    for _ in range(10):
        claim_attempt(tmp_path)
    assert claim_attempt(tmp_path) == 11


def test_a_stray_file_is_no_attempt(tmp_path: Path) -> None:
    claim_attempt(tmp_path)
    (tmp_path / "attempts" / ".nfs000012").touch()
    assert claim_attempt(tmp_path) == 2


def test_two_that_ask_at_once_get_different_numbers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(claim_attempt, [tmp_path] * 40))
    assert sorted(numbers) == list(range(1, 41))


def test_an_attempt_comes_after_those_that_saved_even_if_their_notes_are_lost(
    tmp_path: Path,
) -> None:
    (tmp_path / "checkpoints" / folder_name(20, 4)).mkdir(parents=True)
    assert claim_attempt(tmp_path) == 5
