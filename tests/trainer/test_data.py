"""What a step trains on: each sample once an epoch, whatever the world size and the restarts."""

import hashlib
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from trainer.data import (
    Batches,
    BuiltInCorpus,
    inputs_and_labels,
    micro_batches,
    open_corpus,
)
from trainer.data_identity import data_identity
from trainer.settings import DataSettings


class Counting:
    """A corpus whose token at place n is n."""

    vocabulary_size = 10_000
    end_of_text = 9_999

    def __init__(self, num_tokens: int) -> None:
        self._num_tokens = num_tokens

    def __len__(self) -> int:
        return self._num_tokens

    def read(self, start: int, stop: int) -> Tensor:
        return torch.arange(start, min(stop, self._num_tokens))


def batches(num_tokens: int, *, length: int = 4, batch: int = 3, seed: int = 0) -> Batches:
    settings = DataSettings(sequence_length=length, global_batch_size=batch, seed=seed)
    return Batches(Counting(num_tokens), settings)


@given(
    num_tokens=st.integers(2, 200),
    length=st.integers(1, 17),
    batch=st.integers(1, 9),
    seed=st.integers(0, 1000),
)
def test_every_sample_is_seen_exactly_once_an_epoch(
    num_tokens: int, length: int, batch: int, seed: int
) -> None:
    data = batches(num_tokens, length=length, batch=batch, seed=seed)
    steps = range(1, 3 * data.num_samples // batch + 2)
    seen = [sample for step in steps for sample in data.sample_ids(step)]
    for epoch in range(len(seen) // data.num_samples):
        part = seen[epoch * data.num_samples : (epoch + 1) * data.num_samples]
        assert Counter(part) == Counter(range(data.num_samples))


@given(step=st.integers(1, 50), batch=st.integers(1, 12), world_size=st.integers(1, 12))
def test_ranks_together_hold_the_global_batch_in_order(
    step: int, batch: int, world_size: int
) -> None:
    data = batches(101, batch=batch)
    if world_size > batch:
        with pytest.raises(ValueError, match=f"of {world_size} has no part in a batch of {batch}"):
            data.batch(step, 0, world_size)
        return
    parts = [data.batch(step, rank, world_size) for rank in range(world_size)]
    assert tuple(sample for ids, _ in parts for sample in ids) == data.sample_ids(step)
    whole_ids, whole_tokens = data.batch(step, 0, 1)
    assert whole_ids == data.sample_ids(step)
    assert torch.equal(torch.cat([tokens for _, tokens in parts]), whole_tokens)
    assert max(len(ids) for ids, _ in parts) - min(len(ids) for ids, _ in parts) <= 1


@given(start=st.integers(1, 60))
def test_a_restored_run_sees_what_it_would_have_seen(start: int) -> None:
    straight = batches(101)
    expected = [straight.sample_ids(step) for step in range(1, 70)]
    restored = batches(101)
    assert [restored.sample_ids(step) for step in range(start, 70)] == expected[start - 1 :]


def test_a_window_ends_with_the_first_token_of_the_next() -> None:
    ids, tokens = batches(13).batch(1, 0, 1)
    assert sorted(ids) == [0, 1, 2]
    by_id = dict(zip(ids, tokens.tolist(), strict=True))
    assert by_id == {0: [0, 1, 2, 3, 4], 1: [4, 5, 6, 7, 8], 2: [8, 9, 10, 11, 12]}


def test_the_last_window_is_filled_with_end_of_text() -> None:
    ids, tokens = batches(11).batch(1, 0, 1)
    assert tokens[ids.index(2)].tolist() == [8, 9, 10, 9_999, 9_999]


def test_padding_carries_no_label() -> None:
    inputs, labels = inputs_and_labels(torch.tensor([[8, 9, 10, 99, 99]]), end_of_text=99)
    assert inputs.tolist() == [[8, 9, 10, 99]]
    assert labels.tolist() == [[9, 10, 99, -100]]


def test_seeds_and_epochs_differ_in_order() -> None:
    data = batches(401, batch=100)
    assert data.sample_ids(1) != data.sample_ids(2)
    assert data.sample_ids(1) != batches(401, batch=100, seed=1).sample_ids(1)


def test_step_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="steps count from 1, got step 0"):
        batches(101).sample_ids(0)


def test_one_token_is_refused() -> None:
    with pytest.raises(ValueError, match="a corpus of 1 tokens"):
        batches(1)


def test_built_in_corpus_is_english_closed_by_end_of_text() -> None:
    corpus = open_corpus(DataSettings(sequence_length=8, global_batch_size=1))
    assert isinstance(corpus, BuiltInCorpus)
    tokens = corpus.read(0, len(corpus))
    assert len(corpus) > 300_000
    assert tokens.dtype == torch.int64
    assert int(tokens.max()) == 256
    assert int(tokens[-1]) == 256
    assert b"assert" in bytes(tokens[tokens < 256].tolist())


@given(batch=st.integers(1, 12), world_size=st.integers(1, 6), micro=st.integers(1, 3))
def test_every_rank_has_as_many_micro_batches_and_loses_no_sequence(
    batch: int, world_size: int, micro: int
) -> None:
    world_size = min(world_size, batch)
    settings = DataSettings(sequence_length=4, global_batch_size=batch, micro_batch_size=micro)
    data = Batches(Counting(101), settings)
    counts = set()
    for rank in range(world_size):
        _, tokens = data.batch(1, rank, world_size)
        pieces = micro_batches(tokens, settings, world_size=world_size, end_of_text=9_999)
        counts.add(len(pieces))
        assert all(1 <= len(piece) <= micro for piece in pieces)
        joined = torch.cat(pieces)
        assert torch.equal(joined[: len(tokens)], tokens)
        assert torch.all(joined[len(tokens) :] == 9_999)
    assert len(counts) == 1


def test_a_rank_with_a_sequence_less_gets_a_micro_batch_of_padding() -> None:
    settings = DataSettings(sequence_length=2, global_batch_size=5, micro_batch_size=1)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])  # the other rank holds three
    pieces = micro_batches(tokens, settings, world_size=2, end_of_text=99)
    assert [piece.tolist() for piece in pieces] == [[[1, 2, 3]], [[4, 5, 6]], [[99, 99, 99]]]


def test_without_a_micro_batch_size_the_part_goes_through_at_once() -> None:
    settings = DataSettings(sequence_length=2, global_batch_size=5)
    tokens = torch.tensor([[1, 2, 3], [4, 5, 6]])
    (piece,) = micro_batches(tokens, settings, world_size=2, end_of_text=99)
    assert torch.equal(piece, tokens)


def test_the_built_in_corpus_is_known_by_name_and_content() -> None:
    settings = DataSettings(sequence_length=8, global_batch_size=1)
    other = DataSettings(sequence_length=9, global_batch_size=2)
    assert data_identity(settings).startswith("built-in ")
    assert data_identity(settings) == data_identity(other)


def test_the_identity_of_the_built_in_corpus_is_of_the_tokens_that_are_read() -> None:
    tokens = BuiltInCorpus().read(0, 10_000_000)
    digest = hashlib.sha256(tokens.numpy().tobytes()).hexdigest()
    settings = DataSettings(sequence_length=8, global_batch_size=1)
    assert data_identity(settings) == f"built-in {digest[:16]}"
