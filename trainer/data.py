"""Which tokens a step trains on: a pure function of the step, whatever the world size.

A sample is one window of the corpus and its id is the window's index. Each
epoch goes through all samples once, in an order drawn from the seed and the
epoch, so nothing about the data has to be saved: a restored run asks for the
next step and gets what it would have got. Steps count from 1, as in events.
Not covered: corpora so large that one permutation (8 bytes a sample) is a burden.
"""

import random
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor

from trainer.data_identity import BUILT_IN_END_OF_TEXT, built_in_tokens
from trainer.dataset_folder import DatasetFolder
from trainer.settings import DataSettings

IGNORED_LABEL = -100
"""What cross entropy leaves out of the loss."""


class Corpus(Protocol):
    """One long row of token ids. Reading is random access and changes nothing."""

    @property
    def vocabulary_size(self) -> int: ...

    @property
    def end_of_text(self) -> int:
        """The id that ends a document, and fills the last window."""

    def __len__(self) -> int:
        """Tokens in the row."""

    def read(self, start: int, stop: int) -> Tensor:
        """A copy of tokens ``start`` to ``stop`` as int64; fewer where the row ends before."""


class BuiltInCorpus:
    """Real English that every Python brings along: its own help texts, byte by byte."""

    vocabulary_size = 257
    end_of_text = BUILT_IN_END_OF_TEXT

    def __init__(self) -> None:
        self._tokens = torch.tensor(built_in_tokens(), dtype=torch.int16)

    def __len__(self) -> int:
        return len(self._tokens)

    def read(self, start: int, stop: int) -> Tensor:
        return self._tokens[start:stop].to(torch.int64)


def open_corpus(settings: DataSettings) -> Corpus:
    """The prepared dataset where one is named, else the built-in corpus."""
    return BuiltInCorpus() if settings.dataset is None else DatasetFolder(settings.dataset)


class Batches:
    """The global batch of every step, and each rank's part of it.

    Windows follow one another: each has ``sequence_length`` tokens and the one
    after them, which is the last label, so every token but the first is a label
    once an epoch.
    """

    def __init__(self, corpus: Corpus, settings: DataSettings) -> None:
        if len(corpus) < 2:
            raise ValueError(
                f"a corpus of {len(corpus)} tokens has nothing to predict; give at least 2"
            )
        self._corpus = corpus
        self._settings = settings
        self.num_samples = -(-(len(corpus) - 1) // settings.sequence_length)

    def sample_ids(self, step: int) -> tuple[int, ...]:
        """The samples of the whole job at ``step``; a batch may straddle two epochs."""
        if step < 1:
            raise ValueError(f"steps count from 1, got step {step}")
        size = self._settings.global_batch_size
        positions = range((step - 1) * size, step * size)
        return tuple(self._sample_at(position) for position in positions)

    def batch(self, step: int, rank: int, world_size: int) -> tuple[tuple[int, ...], Tensor]:
        """This rank's sample ids and their tokens, int64 of ``[local, sequence_length + 1]``.

        Ranks hold consecutive parts of the global batch, which differ by at most one sample.
        """
        ids = self.sample_ids(step)
        if not 0 <= rank < world_size <= len(ids):
            raise ValueError(
                f"rank {rank} of {world_size} has no part in a batch of {len(ids)} sequences; "
                f"raise data.global_batch_size to at least {world_size}"
            )
        start = rank * len(ids) // world_size
        stop = (rank + 1) * len(ids) // world_size
        local = ids[start:stop]
        return local, torch.stack([self._window(sample) for sample in local])

    def _sample_at(self, position: int) -> int:
        epoch, index = divmod(position, self.num_samples)
        return int(_epoch_order(self._settings.seed, epoch, self.num_samples)[index])

    def _window(self, sample: int) -> Tensor:
        length = self._settings.sequence_length
        tokens = self._corpus.read(sample * length, (sample + 1) * length + 1)
        missing = length + 1 - len(tokens)
        return torch.nn.functional.pad(tokens, (0, missing), value=self._corpus.end_of_text)


def inputs_and_labels(tokens: Tensor, *, end_of_text: int) -> tuple[Tensor, Tensor]:
    """What the model reads and what it must say next; padding carries no label.

    An end of text that follows another one is padding: a document is never empty.
    """
    inputs, labels = tokens[:, :-1], tokens[:, 1:]
    is_padding = (inputs == end_of_text) & (labels == end_of_text)
    return inputs, labels.masked_fill(is_padding, IGNORED_LABEL)


def micro_batches(
    tokens: Tensor, settings: DataSettings, *, world_size: int, end_of_text: int
) -> list[Tensor]:
    """``tokens``, a rank's part, in pieces of at most ``micro_batch_size``; as many on every rank.

    Each pass through a sharded model is collective, so a rank that holds a sequence
    less than another may get a last piece of padding alone.
    """
    largest_part = -(-settings.global_batch_size // world_size)
    size = settings.micro_batch_size or largest_part
    pieces = list(tokens.split(size))
    if len(pieces) < -(-largest_part // size):
        pieces.append(torch.full_like(tokens[:1], end_of_text))
    return pieces


@lru_cache(maxsize=2)  # a batch needs at most the epoch that ends and the one that begins
def _epoch_order(seed: int, epoch: int, num_samples: int) -> Tensor:
    generator = torch.Generator()
    generator.manual_seed(random.Random(f"{seed} {epoch}").getrandbits(63))
    return torch.randperm(num_samples, generator=generator)
