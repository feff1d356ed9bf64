"""Echoes: what is raised for another rank's end, by type or by words, and what is not."""

import pytest
import torch.distributed as dist

from trainer.echoes import NAMES, is_echo, speaks_of_another_rank


@pytest.mark.parametrize(
    "kind", [dist.DistError, dist.DistBackendError, dist.DistNetworkError, dist.DistStoreError]
)
def test_every_error_of_the_process_group_is_an_echo_by_its_type(kind: type[Exception]) -> None:
    assert is_echo(f"{kind.__name__}: whatever it says")
    assert {base.__name__ for base in kind.__mro__} & NAMES


@pytest.mark.parametrize(
    "words",
    [
        "[pair.cc:553] Connection closed by peer [10.0.0.7]:6466",
        "NCCL communicator was aborted on rank 0.",
        "Timed out waiting 6000ms for recv operation to complete",
        "Application timeout caused pair closure",
    ],
)
def test_words_tell_an_echo_of_any_type(words: str) -> None:
    assert speaks_of_another_rank(words)
    assert is_echo(f"RuntimeError: {words}")


@pytest.mark.parametrize(
    "reason", ["ValueError: DistError is only named", "Distance: 3", "OSError: no space left", ""]
)
def test_what_a_rank_says_of_itself_is_no_echo(reason: str) -> None:
    assert not is_echo(reason)
