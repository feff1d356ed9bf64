"""What identifies the corpus of a run, wherever it lies. Imports no torch: a listing starts."""

import hashlib
from array import array
from functools import lru_cache
from pydoc_data.topics import topics

from trainer.dataset_folder import identity_of_folder
from trainer.settings import DataSettings

BUILT_IN_END_OF_TEXT = 256


@lru_cache(maxsize=8)
def data_identity(settings: DataSettings) -> str:
    """Equal for a copy of the corpus, another for other tokens.

    Raises:
        DatasetError: the dataset cannot be read.
    """
    if settings.dataset is not None:
        return identity_of_folder(settings.dataset)
    tokens = built_in_tokens()  # other releases of Python have other texts
    return f"built-in {hashlib.sha256(tokens.tobytes()).hexdigest()[:16]}"


@lru_cache(maxsize=1)
def built_in_tokens() -> "array[int]":
    """Python's own help texts, byte by byte, as int64; each is closed by 256."""
    row = array("q")
    for name in sorted(topics):
        row.extend(topics[name].encode())
        row.append(BUILT_IN_END_OF_TEXT)
    return row
