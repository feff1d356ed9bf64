"""A header is read as it was written, or not at all."""

import dataclasses

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trainer.snapshots.header import HEADER_BYTES, PAGE_BYTES, Header, SnapshotKey, pack, unpack

KEY = SnapshotKey(coordinate=3, attempt=2, step=41, world_size=16, identity=b"0123456789abcdef")
FILLING = Header(sequence=5, key=KEY, payload_bytes=1 << 33, probe_loss=None)
WHOLE = Header(sequence=6, key=KEY, payload_bytes=1 << 33, probe_loss=2.5)

whole_numbers = st.integers(0, 2**64 - 1)
small_numbers = st.integers(0, 2**32 - 1)
keys = st.builds(
    SnapshotKey,
    coordinate=small_numbers,
    attempt=whole_numbers,
    step=whole_numbers,
    world_size=small_numbers,
    identity=st.binary(min_size=16, max_size=16),
)
headers = st.builds(
    Header,
    sequence=whole_numbers,
    key=keys,
    payload_bytes=whole_numbers,
    probe_loss=st.none() | st.floats(allow_nan=False),
)


@given(headers, st.binary(max_size=8))
def test_a_header_is_read_as_it_was_written(header: Header, behind: bytes) -> None:
    assert unpack(pack(header) + behind) == header


def test_a_header_fits_into_the_first_page() -> None:
    assert HEADER_BYTES <= PAGE_BYTES


def test_only_an_even_sequence_is_of_something_whole() -> None:
    assert WHOLE.is_whole
    assert not FILLING.is_whole


@given(headers, headers)
@example(FILLING, WHOLE)
@example(WHOLE, FILLING)
def test_a_header_torn_at_any_byte_is_no_header(old: Header, new: Header) -> None:
    for cut in range(HEADER_BYTES + 1):
        torn = pack(new)[:cut] + pack(old)[cut:]
        if torn not in (pack(old), pack(new)):
            assert unpack(torn) is None, cut


@given(st.integers(0, HEADER_BYTES - 1), st.integers(1, 255))
def test_a_header_with_one_changed_byte_is_no_header(place: int, change: int) -> None:
    content = bytearray(pack(WHOLE))
    content[place] ^= change
    assert unpack(bytes(content)) is None


@given(st.binary(max_size=HEADER_BYTES + 8))
@example(b"")
@example(bytes(PAGE_BYTES))
@example(pack(WHOLE)[:-1])
def test_junk_is_no_header(junk: bytes) -> None:
    assert unpack(junk) is None


def test_an_identity_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="must be 16 bytes long, not 3"):
        dataclasses.replace(KEY, identity=b"abc")
